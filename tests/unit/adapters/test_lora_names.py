"""Adapters as they are named: in flags, in config files, and for each of several prompts."""

from __future__ import annotations

import argparse
import math

import pytest

import octavo
from octavo.config.flags import add_config_arguments, resolve_arguments
from octavo.config.resolve import resolve
from octavo.errors import ConfigError, RequestError
from octavo.lora import LoraModule, LoRARequest, adapters_of_each, lora_module


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("sql=/adapters/sql", LoraModule("sql", "/adapters/sql")),
        ("sql = relative/path", LoraModule("sql", "relative/path")),
        ("a=b=c", LoraModule("a", "b=c")),
        ('{"name": "sql", "path": "/s", "base_model_name": null}', LoraModule("sql", "/s")),
        ('{"name": "a=b", "path": "/s", "base_model_name": "m"}', LoraModule("a=b", "/s", "m")),
    ],
)
def test_forms_of_an_adapter_that_is_served(text, module):
    assert lora_module(text) == module


@pytest.mark.parametrize(
    "text",
    ["sql", "=path", "sql=", "", "{", '{"name": "a"}', '{"name": "a", "path": ""}',
     '{"name": "a", "path": "/a", "scale": 2}', '{"name": 3, "path": "/a"}',
     '{"name": "a", "path": "/a", "base_model_name": 1}'],
)  # fmt: skip
def test_other_forms_are_refused(text):
    with pytest.raises(ValueError, match=r"as name=path|no valid JSON|must hold the texts"):
        lora_module(text)


def served(*words):
    parser = argparse.ArgumentParser()
    add_config_arguments(parser)
    return resolve_arguments(parser.parse_args(list(words))).server.lora_modules


def test_a_flag_takes_several_and_may_be_repeated():
    assert served("smollm2", "--lora-modules", "a=/a", "b=/b", "--port", "1") == ("a=/a", "b=/b")
    assert served("smollm2", "--lora-modules", "a=/a", "--lora-modules", "b=/b") == ("a=/a", "b=/b")
    assert served("smollm2") == ()


def test_a_config_file_takes_a_list_or_one(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text('[server]\nlora-modules = ["a=/a", "b=/b"]\nlora-root = "/r"\n')
    server = resolve(file=path).server
    assert server.lora_modules == ("a=/a", "b=/b")
    assert server.lora_root == "/r"
    path.write_text('[server]\nlora-modules = "a=/a"\n')
    assert resolve(file=path).server.lora_modules == ("a=/a",)
    path.write_text('[server]\nlora-modules = ["a=/a", "a=/b"]\n')
    with pytest.raises(ConfigError, match="two adapters have the name 'a'"):
        resolve(file=path)


def test_adapters_of_each_prompt():
    one, two = (LoRARequest(name, 1, f"/{name}") for name in ("one", "two"))
    assert adapters_of_each(None, 2) == [None, None]
    assert adapters_of_each(one, 2) == [one, one]
    assert adapters_of_each((one, two), 2) == [(one, two)] * 2
    assert adapters_of_each([one, None, [one, two]], 3) == [one, None, [one, two]]
    with pytest.raises(RequestError, match="2 prompts, but 1 lora_request"):
        adapters_of_each([one], 2)


@pytest.mark.parametrize(
    "scale",
    [1000.5, -1001, 1e20, 1e39, 1e308, 10**400, math.inf, -math.inf, math.nan, "1", True,
     None],
)  # fmt: skip
def test_a_scale_that_is_no_scale_is_refused_with_the_limits(scale):
    with pytest.raises(RequestError, match="'one' must be a number from -1000 to 1000") as caught:
        LoRARequest("one", 1, "/one", scale)
    assert caught.value.param == "lora_request"


@pytest.mark.parametrize("scale", [0, 1000, -1000.0, 1e-300])
def test_scales_within_the_limits_are_taken(scale):
    assert LoRARequest("one", 1, "/one", scale).use.scale == scale


def test_it_is_a_public_name():
    assert octavo.LoRARequest is LoRARequest
    assert "LoRARequest" in dir(octavo)
    assert octavo.LoRARequest("a", 3, "/a").lora_path == "/a"
