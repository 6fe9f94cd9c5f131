"""The op set and the attention share one library, also where none can be kept."""

from __future__ import annotations

import logging

import pytest

from octavo.config.auto import AutoContext
from octavo.config.schema import EngineConfig, ModelConfig
from octavo_plugins.native.cpu_calls import load_library
from octavo_plugins.native.cpu_reasons import why_not_ops


def test_all_who_ask_get_the_same_kernels():
    assert load_library() is load_library()


def test_kernels_of_a_compiler_that_is_gone_are_taken_and_one_line_says_so(monkeypatch, caplog):
    load_library()  # the cache holds them from here on
    monkeypatch.setenv("CXX", "no-such-compiler")
    context = AutoContext(engine=EngineConfig(), model=ModelConfig(), chosen={})
    with caplog.at_level(logging.WARNING):
        assert why_not_ops(context) == []
    (record,) = caplog.records
    assert record.getMessage() == (
        "the CPU kernels are those that another compiler made: no-such-compiler: not found "
        "(from CXX)"
    )


@pytest.mark.parametrize("name", ["", "   "])
def test_an_empty_cxx_names_no_compiler(monkeypatch, caplog, name):
    load_library()
    monkeypatch.setenv("CXX", name)
    context = AutoContext(engine=EngineConfig(), model=ModelConfig(), chosen={})
    assert why_not_ops(context) == []
    assert caplog.records == []
