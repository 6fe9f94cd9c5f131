"""The stock formats, sources and platforms keep their promises, on small models."""

from __future__ import annotations

from format_samples import (
    dummy_model,
    gguf_model,
    gguf_vocabulary,
    local_references,
    model_folder,
)
from octavo.testing import PlatformSuite, SourceSuite, TokenizerSuite, WeightsSuite


class TestHfTokenizer(TokenizerSuite):
    component = "hf"
    sample = model_folder


class TestGgufTokenizer(TokenizerSuite):
    component = "gguf"
    sample = gguf_vocabulary


class TestSafetensors(WeightsSuite):
    component = "safetensors"
    sample = model_folder


class TestGguf(WeightsSuite):
    component = "gguf"
    sample = gguf_model


class TestDummy(WeightsSuite):
    component = "dummy"
    sample = dummy_model


class TestLocal(SourceSuite):
    component = "local"
    sample = local_references


class TestCpu(PlatformSuite):
    component = "cpu"
