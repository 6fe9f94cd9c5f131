"""Whole runs on a tiny model, recorded and replayed or executed step by step: the same bits.

The runs hold chunks, prefix hits, preemption, drafts and row counts that change from step to
step; every log-probability is compared exactly.
"""

from __future__ import annotations

import pytest

from byte_models import LLAMA, MINISTRAL, random_prompt, save_byte_model
from fixed_costs import fix_costs
from octavo import LLM, SamplingParams
from octavo.interfaces.executor import StepCosts
from octavo.interfaces.proposer import EngineProposer
from octavo_plugins.attention.torch_attention import TorchAttention

VARIANTS = {"llama": LLAMA, "window-and-full": MINISTRAL}


class DirectAttention(TorchAttention):
    """Says that it cannot be recorded."""

    name = "direct"
    is_recordable = False


class Hindsight(EngineProposer):
    """Proposes what an earlier run said, with every third token wrong."""

    name = "hindsight"
    max_drafts = 4
    texts: tuple[tuple[int, ...], ...] = ()

    def propose(self, request, max_tokens):
        ids = tuple(request.token_ids)
        for text in self.texts:
            if text[: len(ids)] == ids:
                coming = enumerate(text[len(ids) :], len(ids))
                return [token + (place % 3 == 0) for place, token in coming][:max_tokens]
        return ()


@pytest.fixture(autouse=True)
def _same_costs(monkeypatch):
    """Let both runs have one schedule: drafts and chunks are planned by the costs measured."""
    costs = StepCosts.linear(10.0, 0.01)
    fix_costs(monkeypatch, costs)


@pytest.fixture(scope="module", params=VARIANTS)
def folder(request, tmp_path_factory):
    return save_byte_model(VARIANTS[request.param], tmp_path_factory.mktemp(request.param))


def run(folder, attention, proposer="none"):
    settings = {
        "max_num_seqs": 6,
        "threads": 1,
        "block_size": 4,
        "num_gpu_blocks_override": 48,
        "max_num_batched_tokens": 24,
        "proposer": proposer,
    }
    prompts = [random_prompt(8) + random_prompt(2 + 4 * i, i) for i in range(7)]
    params = [
        SamplingParams(
            temperature=i % 2, seed=i, max_tokens=28, ignore_eos=True, logprobs=3,
            presence_penalty=0.5 * (i % 3),
        )
        for i in range(len(prompts))
    ]  # fmt: skip
    with LLM(folder, attention=attention, **settings) as llm:
        runner = llm._model.engine.executor._runner
        outputs = [llm.generate(prompts, params, use_tqdm=False) for _ in range(2)]
        stats = llm.get_metrics()
        return outputs, stats, runner._record is not None


def values(outputs):
    return [
        (one.token_ids, [{k: v.logprob for k, v in place.items()} for place in one.logprobs])
        for run_ in outputs
        for output in run_
        for one in output.outputs
    ]


def test_replayed_steps_have_the_bits_of_direct_ones(folder):
    plain, _, _ = run(folder, "torch")
    texts = [tuple(one.prompt_token_ids + one.outputs[0].token_ids) for one in plain[0]]
    proposer = type("Hindsight", (Hindsight,), {"texts": texts})
    replayed, stats, is_recorded = run(folder, "torch", proposer)
    direct, _, was_recorded = run(folder, DirectAttention, proposer)
    assert is_recorded
    assert not was_recorded
    assert values(replayed) == values(direct)
    assert [ids for ids, _ in values(replayed)] == [ids for ids, _ in values(plain)]
    assert stats.accepted_tokens > 50
    assert stats.draft_tokens > stats.accepted_tokens + 20
    assert stats.prefix_hits_tokens > 0
    assert stats.preemptions > 0
