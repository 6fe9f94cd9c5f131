"""vLLM's `kv-cache-dtype` is the option `cache-dtype` of whichever stock attention is in use."""

from __future__ import annotations

import pytest

from octavo.config.resolve import resolve
from octavo.errors import ConfigError

STOCK_ONLY = {"OCTAVO_NO_PLUGINS": "1"}


def kept(name: str, dtype: str, **flags: str) -> str:
    """Return what an attention is told to keep, when a flag says `dtype`."""
    flags = {"attention": name, "kv-cache-dtype": dtype, **flags}
    return resolve(flags=flags, environ=STOCK_ONLY).chosen["attention"].options["cache-dtype"]


@pytest.mark.parametrize("dtype", ["auto", "float32", "float16", "int8", "int4"])
def test_the_flag_of_vllm_says_what_the_cpu_attention_keeps(dtype):
    assert kept("cpu", dtype) == dtype


@pytest.mark.parametrize("name", ["torch", "cpu", "triton"])
def test_every_stock_attention_takes_auto_as_vllm_does(name):
    assert kept(name, "auto") == "auto"


def test_the_keyword_of_vllm_says_the_same():
    config = resolve(overrides={"attention": "cpu", "kv_cache_dtype": "int8"}, environ=STOCK_ONLY)
    assert config.chosen["attention"].options == {"cache-dtype": "int8"}


def test_two_names_of_one_option_must_agree():
    with pytest.raises(ConfigError) as caught:
        kept("cpu", "int8", **{"attention.cache-dtype": "int4"})
    assert str(caught.value) == (
        "two values for attention.cache-dtype\n"
        "  --kv-cache-dtype: 'int8'\n"
        "  --attention.cache-dtype: 'int4'\n"
        "  give one of them"
    )


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("cpu", "'auto', 'float32', 'float16', 'int8' or 'int4'"),
        ("torch", "'auto', 'float32', 'float16' or 'bfloat16'"),
    ],
)
@pytest.mark.parametrize("dtype", ["fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc"])
def test_floats_of_8_bits_are_refused_with_the_reason(name, valid, dtype):
    with pytest.raises(ConfigError) as caught:
        kept(name, dtype)
    assert str(caught.value) == (
        f"invalid options of attention '{name}' (--kv-cache-dtype)\n"
        f"  cache-dtype: input should be {valid}: no kernel here reads floats of 8 bits; "
        f"int8, by attention 'cpu', is as small, got '{dtype}'"
    )


def test_another_unknown_dtype_is_answered_with_the_valid_ones():
    with pytest.raises(ConfigError, match="'float32', 'float16', 'int8' or 'int4'"):
        kept("cpu", "int3")
