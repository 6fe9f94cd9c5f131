"""Speculation with the demo model: the same texts, in fewer steps where they repeat themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from octavo import LLM, SamplingParams
from octavo.bench.speculation import REPETITIVE
from octavo.interfaces.executor import StepCosts

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=1)
SEEDED = replace(GREEDY, temperature=1, seed=7)
PROMPTS = (REPETITIVE, "The sea is", REPETITIVE, "List three fruits and say what they taste of.")
PARAMS = (GREEDY, GREEDY, SEEDED, SEEDED)


def open_llm(**settings):
    return LLM("smollm2", max_num_seqs=4, max_model_len=512, **settings)


@pytest.fixture(scope="module")
def plain():
    with open_llm() as llm:
        return llm.generate(PROMPTS, PARAMS, use_tqdm=False)


def assert_same(outputs, expected):
    for output, wanted in zip(outputs, expected, strict=True):
        one, other = output.outputs[0], wanted.outputs[0]
        assert (one.text, list(one.token_ids)) == (other.text, list(other.token_ids))
        for mine, theirs in zip(one.logprobs, other.logprobs, strict=True):
            assert list(mine) == list(theirs)
            values = [entry.logprob for entry in mine.values()]
            assert values == pytest.approx([one.logprob for one in theirs.values()], abs=1e-2)


@pytest.fixture
def set_costs(monkeypatch):
    """What is measured at start depends on what else the machine does."""

    def setting(costs):
        monkeypatch.setattr(
            "octavo_plugins.executors.inline.measure_costs", lambda runner, **how: costs
        )
        monkeypatch.setattr("octavo.execution.load.measure_draft_ms", lambda rehearse: 0.0)

    return setting


def test_ngram_writes_the_same_in_fewer_steps(plain, set_costs):
    set_costs(StepCosts(((1, 35.0), (2, 47.0), (6, 64.0), (16, 73.0))))  # the torch ops' here
    config = {"method": "ngram", "num_speculative_tokens": 5}
    with open_llm(speculative_config=config) as llm:
        outputs = llm.generate(PROMPTS, PARAMS, use_tqdm=False)
        before = llm.get_metrics()
        (alone,) = llm.generate([REPETITIVE], GREEDY, use_tqdm=False)
        after = llm.get_metrics()

    assert_same(outputs, plain)
    assert_same([alone], plain[:1])
    assert after.step - before.step <= 12
    assert after.accepted_tokens - before.accepted_tokens >= 12


def test_its_first_layers_write_the_same_when_every_draft_is_verified(plain, set_costs):
    """They are right once in thirty times, so that none is made unless drafts cost nothing."""
    set_costs(StepCosts.linear(1.0, 1e-6))
    config = {"method": "draft_model", "model": "smollm2", "num_layers": 6}
    with open_llm(speculative_config=config) as llm:
        assert_same(llm.generate(PROMPTS, PARAMS, use_tqdm=False), plain)
        assert llm.get_metrics().draft_tokens > 100
