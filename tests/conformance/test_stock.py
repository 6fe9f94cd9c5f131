"""All stock components keep their promises."""

from __future__ import annotations

import pytest

from adapter_samples import peft_adapters
from dialect_samples import ANTHROPIC, OPENAI, OPS, POOLING, TEXTS
from family_samples import gemmas, hybrids, llamas
from format_samples import (
    dummy_model,
    gguf_model,
    gguf_vocabulary,
    local_references,
    model_folder,
)
from octavo.testing.subjects import stock_catalogue
from one_thread import one_thread_fixture
from stock_suites import Given, effort_here, stock_suites, strangers

one_thread = pytest.fixture(autouse=True, scope="module")(one_thread_fixture)

SIMULATED = {"num-blocks": 40, "vocab-size": 258, "fixed-ms": 10, "per-token-ms": 1}
PART = {"num-layers": 1, "chunk-tokens": 8}
NETWORK = "its samples lie on a network: tests/unit/sources tries it with a stand-in for that"
#: all that is not here needs no options and no sample
GIVEN = {
    ("adapter", "lora"): (Given(sample=peft_adapters),),
    ("architecture", "gemma"): (Given(sample=gemmas),),
    ("architecture", "linear-hybrid"): (Given(sample=hybrids),),
    ("architecture", "llama"): (Given(sample=llamas),),
    ("attention", "triton"): (Given(sample={"device": "cuda"}),),
    ("dialect", "anthropic"): (Given(sample=ANTHROPIC),),
    ("dialect", "openai"): (Given(sample=OPENAI),),
    ("dialect", "ops"): (Given(sample=OPS),),
    ("dialect", "pooling"): (Given(sample=POOLING),),
    ("dialect", "text"): (Given(sample=TEXTS),),
    ("executor", "inline"): (Given(sample={"threads": 1}),),
    ("executor", "ranks"): (Given(sample={"tensor_parallel_size": 2}, is_full=True),),
    ("executor", "simulated"): (Given(SIMULATED),),
    ("grammar", "llguidance"): (Given({"max-compile-s": 3}),),
    ("grammar", "xgrammar"): (Given({"max-compile-s": 3}),),
    ("proposer", "draft-model"): (
        Given(),
        Given({"num-layers": 1, "chunk-tokens": 8}, name="part"),
    ),
    ("proposer", "ngram"): (Given(), Given({"min-ngram": 1, "num-drafts": 3}, name="short")),
    ("scheduler", "priority"): (Given(), Given({"ageing-s": 5}, name="ageing")),
    ("source", "hub"): (Given(why_not=NETWORK),),
    ("source", "local"): (Given(sample=local_references),),
    ("source", "pypi"): (Given(why_not=NETWORK),),
    ("tokenizer", "gguf"): (Given(sample=gguf_vocabulary),),
    ("tokenizer", "hf"): (Given(sample=model_folder),),
    ("weights", "dummy"): (Given(sample=dummy_model),),
    ("weights", "gguf"): (Given(sample=gguf_model),),
    ("weights", "safetensors"): (Given(sample=model_folder),),
}
globals().update({one.__name__: one for one in stock_suites(GIVEN)})


@pytest.fixture
def octavo_effort(pytestconfig):
    return effort_here(pytestconfig)


def test_all_that_is_given_is_there():
    assert strangers(GIVEN) == []


def test_a_component_that_is_new_is_tried():
    tried = {(one.promises.kind, one.component) for one in stock_suites({})}
    for kind in ("scheduler", "allocator", "eviction", "sampler-stage", "proposer", "ops"):
        assert {(kind, one.name) for one in stock_catalogue().all(kind)} <= tried
