"""What components declare of single requests: the models, and what is wrong with some."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import BaseModel, ConfigDict

from octavo.config.resolve import resolve
from octavo.config.resolved import ResolvedConfig
from octavo.errors import (
    ComponentConflictError,
    ConfigError,
    InvalidComponentError,
    PluginBrokenError,
)
from octavo.interfaces.sampler import SamplerStage
from octavo.plugin.catalogue import Entry, component_of
from octavo.plugin.component import Component
from octavo.plugin.options import RequestParams
from octavo.plugin.request_params import declared_params, unread_fields
from octavo.sampling_params import SamplingParams

HOW = "  write: class Params(octavo.plugin.options.RequestParams)"


class TiltParams(RequestParams):
    tilt: float = 0.0


class OtherTilt(RequestParams):
    tilt: int = 0


def entry(name, params):
    component = Component(name=name, target="m:Stage", params=params)
    return Entry(kind="sampler-stage", component=component, provider=f"{name} 1.0")


def test_a_component_that_declares_none_has_none():
    assert declared_params([entry("a", None)]) == {}


class Urgent:
    """A policy that is passed as a class, and reads priorities."""

    offers = ("priority",)


class Blind:
    """One that does not."""


@pytest.mark.parametrize("name", ["fcfs", Blind])
def test_priorities_are_unread_under_a_scheduler_that_does_not_offer_them(name):
    chosen = resolve(overrides={"scheduler": name}).chosen["scheduler"]

    assert unread_fields(chosen) == {
        "priority": f"the scheduler '{chosen.name}' does not read it (--scheduler priority does)"
    }


@pytest.mark.parametrize("name", ["priority", Urgent])
def test_priorities_are_read_by_a_scheduler_that_offers_them(name):
    assert unread_fields(resolve(overrides={"scheduler": name}).chosen["scheduler"]) == {}


def test_two_components_may_share_a_model():
    found = declared_params([entry("a", TiltParams), entry("b", TiltParams)])
    assert found == {"tilt": TiltParams}


def test_two_models_of_one_name_are_a_conflict():
    with pytest.raises(ComponentConflictError) as caught:
        declared_params([entry("a", TiltParams), entry("b", OtherTilt)])

    assert str(caught.value) == (
        "the parameter 'tilt' of requests is declared by 2 components\n"
        "  sampler-stage 'a' (a 1.0)\n"
        "  sampler-stage 'b' (b 1.0)\n"
        "  components may share a name by one model"
    )


class Plain(BaseModel):
    tilt: float = 0.0


class Loose(RequestParams):
    model_config = ConfigDict(extra="allow")


class Demanding(RequestParams):
    tilt: float


class Shadow(RequestParams):
    top_p: float = 1.0


@pytest.mark.parametrize(
    ("model", "facts"),
    [
        (
            Plain,
            f"Plain is not a RequestParams\n{HOW}",
        ),
        (
            Loose,
            f"Loose must be frozen and forbid unknown keys\n{HOW}",
        ),
        (Demanding, "tilt needs a default: most requests do not give it"),
        (Shadow, "top_p is a field of SamplingParams"),
    ],
)
def test_models_that_cannot_serve_are_refused(model, facts):
    with pytest.raises(InvalidComponentError) as caught:
        declared_params([entry("a", model)])

    assert str(caught.value) == f"sampler-stage 'a' (a 1.0) has invalid params\n  {facts}"


def test_a_model_that_cannot_be_imported_is_named():
    with pytest.raises(PluginBrokenError, match="cannot import the params of sampler-stage 'a'"):
        declared_params([entry("a", "no_such_package.params:Model")])


def test_a_class_brings_its_model_as_an_attribute():
    class Tilt(SamplerStage):
        Params = TiltParams

    assert component_of(Tilt).params is TiltParams


def test_the_model_travels_with_the_resolved_config():
    config = resolve(overrides={"model": "x"})
    sent = ResolvedConfig.from_json(config.to_json())

    names = set(declared_params(sent.in_use))
    assert names == set(declared_params(config.in_use))
    assert {"typical_p", "dry_multiplier", "mirostat"} <= names
    assert not names & set(SamplingParams.__dataclass_fields__)


def test_a_model_of_this_process_alone_does_not_travel():
    class Local(RequestParams):
        tilt: float = 0.0

    stage = Component(name="tilt", target="m:Stage", params=Local)
    config = resolve(overrides={"model": "x", "sampler_stage": [stage, "temperature"]})

    assert declared_params(config.in_use) == {"tilt": Local}
    with pytest.raises(ConfigError, match="cannot be sent to another process"):
        config.to_json()


def test_the_stock_models_import_neither_torch_nor_numpy():
    script = (
        "import sys; from octavo.config.resolve import resolve\n"
        "from octavo.plugin.request_params import declared_params\n"
        "assert declared_params(resolve(overrides={'model': 'x'}).in_use)\n"
        "print([m for m in ('torch', 'numpy', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
