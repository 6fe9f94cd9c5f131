"""Chunks, blocks, prefix hits and preemption on a tiny model: no value and no token changes.

Values are compared with transformers' or with a run in which nothing is cut, cached or preempted.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest

from byte_models import (
    LLAMA,
    MINISTRAL,
    MISTRAL,
    expected_logprobs,
    random_prompt,
    save_byte_model,
    values_of,
)
from octavo import LLM, AsyncLLM, SamplingParams
from octavo.sampling_params import RequestOutputKind

GREEDY = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
SCORED = replace(GREEDY, max_tokens=1, prompt_logprobs=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_byte_model(LLAMA, tmp_path_factory.mktemp("llama"))


def open_llm(folder, **settings):
    return LLM(folder, **{"max_num_seqs": 8, "threads": 1, **settings})


def run(llm, prompts, params):
    return llm.generate(prompts, params, use_tqdm=False)


def assert_scored(output, variant=LLAMA):
    ids = output.prompt_token_ids
    assert len(output.prompt_logprobs) == len(ids)
    assert output.prompt_logprobs[0] is None
    values = values_of(output.prompt_logprobs, ids)
    assert values == pytest.approx(expected_logprobs(variant, ids), abs=1e-3)


# ---------------------------------------------------------------------- prefix hits


def test_B43_scores_do_not_depend_on_what_ran_before(folder):
    a, b = (random_prompt(48) + random_prompt(20, seed) for seed in (1, 2))
    for is_cached in (True, False):
        for order in ([a, b], [b, a]):
            with open_llm(folder, enable_prefix_caching=is_cached) as llm:
                for output in run(llm, order, SCORED):
                    assert_scored(output)
                for output in run(llm, order[::-1], SCORED):
                    assert_scored(output)
        with open_llm(folder, enable_prefix_caching=is_cached) as llm:
            run(llm, [a], GREEDY)
            assert_scored(run(llm, [a], SCORED)[0])
            assert (run(llm, [a], GREEDY)[0].num_cached_tokens > 0) == is_cached


@pytest.mark.parametrize("num_tokens", [33, 15, 16, 17, 32, 1])
def test_B91_a_prompt_is_scored_twice_alike(folder, num_tokens):
    prompt = random_prompt(num_tokens)
    with open_llm(folder, block_size=16) as llm:
        first, second = (run(llm, [prompt], SCORED)[0] for _ in range(2))
    assert_scored(first)
    assert_scored(second)
    assert first.outputs[0].token_ids == second.outputs[0].token_ids


@pytest.mark.parametrize("num_tokens", [16, 32, 48, 33, 31])
def test_B93_a_prompt_that_is_all_in_the_cache(folder, num_tokens):
    prompt = random_prompt(num_tokens)
    params = replace(GREEDY, logprobs=1)
    with open_llm(folder, enable_prefix_caching=False) as llm:
        (expected,) = run(llm, [prompt], params)
    with open_llm(folder, block_size=16) as llm:
        outputs = [run(llm, [prompt], params)[0] for _ in range(3)]
        outputs += run(llm, [prompt] * 3, params)
    hits = [output.num_cached_tokens for output in outputs]
    assert hits == [0] + [(num_tokens - 1) // 16 * 16] * 5
    wanted = expected.outputs[0]
    for output in outputs:
        choice = output.outputs[0]
        assert choice.token_ids == wanted.token_ids
        values = values_of(choice.logprobs, choice.token_ids)
        assert values == pytest.approx(values_of(wanted.logprobs, wanted.token_ids), abs=1e-3)


# ---------------------------------------------------------------------- chunks and windows


@pytest.mark.parametrize("num_decoding", [0, 3])
def test_B96_scores_of_a_prompt_in_chunks_are_one_list(folder, num_decoding):
    prompt = random_prompt(100)
    others = [random_prompt(3, seed) for seed in range(num_decoding)]
    params = [replace(GREEDY, max_tokens=12)] * num_decoding + [replace(SCORED, max_tokens=4)]
    with open_llm(folder, max_num_batched_tokens=32) as llm:
        *decoded, output = run(llm, [*others, prompt], params)
        alone = [run(llm, [other], params[0])[0] for other in others]
    assert_scored(output)
    assert [o.outputs[0].token_ids for o in decoded] == [o.outputs[0].token_ids for o in alone]


def test_B96_nothing_comes_before_the_first_token(folder):
    params = replace(SCORED, max_tokens=4, output_kind=RequestOutputKind.DELTA)

    async def pieces():
        async with AsyncLLM(folder, max_num_batched_tokens=32, max_num_seqs=8, threads=1) as llm:
            return [piece async for piece in llm.generate(random_prompt(100), params)]

    first, *rest = asyncio.run(pieces())
    assert first.outputs[0].token_ids
    assert_scored(first)
    assert sum(len(piece.outputs[0].token_ids) for piece in [first, *rest]) == 4


@pytest.mark.parametrize(
    ("num_batched", "block_size"),
    list(itertools.product([16, 17, 33, 64, 512], [1, 16, 32])),
)
def test_B98_500_tokens_in_any_chunks_and_blocks(folder, whole_run, num_batched, block_size):
    settings = {"max_num_batched_tokens": num_batched, "block_size": block_size}
    prompts, params, expected = whole_run
    with open_llm(folder, max_num_seqs=4, **settings) as llm:
        together = [output.outputs[0].token_ids for output in run(llm, prompts, params)]
        assert llm.reset_prefix_cache()
        alone = [output.outputs[0].token_ids for output in run(llm, prompts[-1:], params[-1:])]
    assert together == expected
    assert alone == expected[-1:]


@pytest.fixture(scope="module")
def whole_run(folder):
    """Prompts, what is asked of them, and their tokens when each is alone and in one piece."""
    prompts = [*(random_prompt(5, seed) for seed in range(3)), random_prompt(500)]
    params = [replace(GREEDY, max_tokens=num) for num in (50, 40, 30, 8)]
    with open_llm(folder, max_num_batched_tokens=1024, enable_prefix_caching=False) as llm:
        outputs = [run(llm, [prompt], p)[0] for prompt, p in zip(prompts, params, strict=True)]
    return prompts, params, [output.outputs[0].token_ids for output in outputs]


@pytest.mark.parametrize("variant", [MISTRAL, MINISTRAL], ids=str)
@pytest.mark.parametrize("num_batched", [512, 20])
def test_B100_a_prompt_longer_than_the_window(variant, num_batched, tmp_path):
    folder = save_byte_model(variant, tmp_path)
    with open_llm(folder, max_num_batched_tokens=num_batched) as llm:
        (output,) = run(llm, [random_prompt(50)], SCORED)
    assert_scored(output, variant)


# ---------------------------------------------------------------------- preemption

CROWD = [random_prompt(20, seed) for seed in range(8)]
TIGHT = {"num_gpu_blocks_override": 60, "block_size": 4, "max_model_len": 128}
ASKED = [
    replace(GREEDY, max_tokens=60, logprobs=1, temperature=seed % 2, seed=seed) for seed in range(8)
]


@pytest.fixture(scope="module")
def ample(folder):
    """The outputs where all fit: half of them greedy, half seeded."""
    with open_llm(folder) as llm:
        outputs = run(llm, CROWD, ASKED)
        assert llm.get_metrics().preemptions == 0
    return outputs


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"enable_prefix_caching": False},
        {"max_num_batched_tokens": 32},
        {"max_num_batched_tokens": 32, "enable_prefix_caching": False, "depth": 1},
    ],
    ids=str,
)
def test_B101_preempted_requests_lose_and_double_nothing(folder, ample, settings):
    with open_llm(folder, **TIGHT, **settings) as llm:
        outputs = run(llm, CROWD, ASKED)
        assert llm.get_metrics().preemptions > 0
    for output, wanted in zip(outputs, ample, strict=True):
        one, other = output.outputs[0], wanted.outputs[0]
        assert (one.token_ids, one.text) == (other.token_ids, other.text)
        assert one.num_tokens == len(one.logprobs) == 60
        values = values_of(one.logprobs, one.token_ids)
        assert values == pytest.approx(values_of(other.logprobs, other.token_ids), abs=1e-3)


def test_B101_streams_of_preempted_requests_repeat_no_delta(folder, ample):
    async def collect(llm, prompt, params):
        params = replace(params, output_kind=RequestOutputKind.DELTA)
        pieces = [piece.outputs[0] async for piece in llm.generate(prompt, params)]
        ids = [token_id for piece in pieces for token_id in piece.token_ids]
        return ids, "".join(piece.text for piece in pieces)

    async def main():
        async with AsyncLLM(folder, max_num_seqs=8, threads=1, **TIGHT) as llm:
            calls = zip(CROWD, ASKED, strict=True)
            streams = await asyncio.gather(*(collect(llm, *call) for call in calls))
            return streams, (await llm.get_metrics()).preemptions

    streams, num_preemptions = asyncio.run(main())
    assert num_preemptions > 0
    wanted = [output.outputs[0] for output in ample]
    assert streams == [(list(one.token_ids), one.text) for one in wanted]
