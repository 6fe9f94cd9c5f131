"""Beam search on a tiny model: as over transformers' own logits, and as transformers does it."""

from __future__ import annotations

import functools

import pytest
import torch

import tiny_models
from beam_reference import reference_search
from byte_models import EOS, LLAMA, random_prompt, save_byte_model
from octavo import LLM, BeamSearchParams, SamplingParams
from octavo.errors import RequestError

PROMPTS = [random_prompt(21, 1), random_prompt(5, 2), random_prompt(33, 3)]
#: so that texts end now and then, with a model that knows nothing
LIKELY_END = 40


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    path = save_byte_model(LLAMA, tmp_path_factory.mktemp("llama"), eos_token_id=[EOS, LIKELY_END])
    with LLM(path, max_num_seqs=8, block_size=8, threads=1, max_num_queued_reqs=6) as model:
        yield model


@functools.cache
def logprobs_of(token_ids):
    return (
        tiny_models.reference_logits(LLAMA, list(token_ids))[-1].double().log_softmax(-1).tolist()
    )


def by_reference(prompt, **options):
    return reference_search(lambda ids: logprobs_of(tuple(ids)), prompt, **options)


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_texts_are_those_over_the_logits_of_transformers(llm, length_penalty):
    ends = most_common_ends(llm)
    params = BeamSearchParams(3, 6, length_penalty=length_penalty, stop_token_ids=ends)
    outputs = llm.beam_search(PROMPTS, params)

    num_ended = 0
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        expected = by_reference(
            prompt, width=3, max_tokens=6, length_penalty=length_penalty,
            ends={EOS, LIKELY_END, *ends}, eos={EOS, LIKELY_END, *ends},
        )  # fmt: skip
        assert [one.tokens for one in output.sequences] == [
            [*prompt, *one.token_ids] for one in expected
        ]
        for one, other in zip(output.sequences, expected, strict=True):
            assert one.cum_logprob == pytest.approx(other.cum_logprob, abs=1e-3)
            assert (one.finish_reason == "stop") is other.is_ended
            assert len(one.logprobs) == len(other.token_ids)
            num_ended += other.is_ended
    assert num_ended > 0
    counts = llm._model.engine.core.allocator.counts()
    assert counts.used == 0


@functools.cache
def most_common_ends(llm):
    """Return tokens that the model likes as second ones, to be taken as ends."""
    params = BeamSearchParams(2, 2, ignore_eos=True)
    return sorted({out.sequences[1].tokens[-1] for out in llm.beam_search(PROMPTS, params)})


@pytest.mark.parametrize("width", [1, 4])
def test_texts_are_those_of_transformers_own_beam_search(llm, width):
    params = BeamSearchParams(width, 8, ignore_eos=True)
    model = tiny_models.reference_model(LLAMA)
    for prompt, output in zip(PROMPTS, llm.beam_search(PROMPTS, params), strict=True):
        ids = torch.tensor([prompt])
        found = model.generate(
            ids, attention_mask=torch.ones_like(ids), num_beams=width, num_return_sequences=width,
            max_new_tokens=8, do_sample=False, eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
        assert [one.tokens for one in output.sequences] == found.tolist()


def test_one_beam_is_the_greedy_text_and_a_beam_finds_no_worse_ones(llm):
    greedy = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=0)
    one, two = (
        llm.beam_search(PROMPTS, BeamSearchParams(width, 12, ignore_eos=True)) for width in (1, 2)
    )
    for i, output in enumerate(llm.generate(PROMPTS, greedy, use_tqdm=False)):
        text = output.outputs[0]
        assert one[i].sequences[0].tokens == [*PROMPTS[i], *text.token_ids]
        assert one[i].sequences[0].cum_logprob == pytest.approx(text.cumulative_logprob, abs=1e-4)
        assert len({tuple(beam.tokens) for beam in two[i].sequences}) == 2


def test_the_same_texts_whatever_runs_at_once(llm):
    params = BeamSearchParams(3, 6, ignore_eos=True)
    together = llm.beam_search(PROMPTS, params)  # 9 beams, and no more than 6 may wait
    llm.reset_prefix_cache()
    assert llm.beam_search(PROMPTS, params, concurrency_limit=1) == together
    assert llm.beam_search({"prompt_token_ids": PROMPTS[0]}, params)[:1] == together[:1]


def test_bad_searches_are_refused(llm):
    with pytest.raises(RequestError, match="params must be a BeamSearchParams, not SamplingParams"):
        llm.beam_search("x", SamplingParams())
    with pytest.raises(RequestError, match="prompt 1: the prompt is empty"):
        llm.beam_search(["x", ""], BeamSearchParams(2, 4))
    with pytest.raises(RequestError, match="maximum context length is 1024 tokens"):
        llm.beam_search("x", BeamSearchParams(2, 1024))
    with pytest.raises(RequestError, match="concurrency_limit must be at least 1"):
        llm.beam_search("x", BeamSearchParams(2, 4), concurrency_limit=0)
