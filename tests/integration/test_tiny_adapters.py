"""Adapters in `LLM` and `AsyncLLM` on a tiny model: as transformers with merged weights.

The stock adapters are written by the tests; what the merged model says comes from transformers.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import threading
from contextlib import aclosing
from dataclasses import replace

import pytest
import torch

import tiny_models
from byte_models import LLAMA, random_prompt, save_byte_model, values_of
from octavo import LLM, AsyncLLM, BeamSearchParams, LoRARequest, SamplingParams
from octavo.errors import RequestError
from octavo_plugins.adapters.lora import LoraFormat
from peft_folders import Lora, merged, write_adapter

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
SCORED = replace(GREEDY, prompt_logprobs=0, logprobs=0)
PROMPT = random_prompt(40)
LORAS = {
    "all": Lora(seed=1),
    "few": Lora(seed=2, modules=("q_proj", "v_proj"), rank=3, alpha=12),
    "mlp": Lora(seed=3, modules=("up_proj", "down_proj"), rank=9, is_rank_stabilised=True),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_byte_model(LLAMA, tmp_path_factory.mktemp("llama"))


@functools.cache
def base_weights():
    state = tiny_models.reference_model(LLAMA).state_dict()
    return {name: weight.detach() for name, weight in state.items()}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("adapters")
    return {name: write_adapter(root / name, base_weights(), lora) for name, lora in LORAS.items()}


@pytest.fixture
def llm(model):
    with open_llm(model) as llm:
        yield llm


def open_llm(model, **settings):
    return LLM(model, **{"max_num_seqs": 8, "threads": 1, "block_size": 8, **settings})


def run(llm, prompts, adapters, params=SCORED):
    return llm.generate(prompts, params, use_tqdm=False, lora_request=adapters)


def request(folders, name, scale=1.0):
    return LoRARequest(name, 1, str(folders[name]), scale)


def expected_logprobs(token_ids, *blend):
    """Return transformers' log-probabilities of ids 1.., with (folder, lora, scale) merged."""
    twin = copy.deepcopy(tiny_models.reference_model(LLAMA))
    twin.load_state_dict(merged(base_weights(), *blend))
    with torch.no_grad():
        logprobs = twin(torch.tensor([token_ids])).logits[0].log_softmax(-1)
    best = logprobs.argmax(-1)
    values = logprobs[:-1].gather(1, torch.tensor(token_ids[1:])[:, None])[:, 0]
    return values.tolist(), best.tolist()


def assert_as_merged(output, *blend):
    """Compare every value of a scored, greedy output, and its tokens."""
    prompt, choice = output.prompt_token_ids, output.outputs[0]
    values, best = expected_logprobs(prompt + choice.token_ids, *blend)
    ours = values_of(output.prompt_logprobs, prompt) + values_of(choice.logprobs, choice.token_ids)
    assert ours == pytest.approx(values, abs=1e-3)
    assert choice.token_ids == best[len(prompt) - 1 : -1]


def texts(outputs):
    return [output.outputs[0].token_ids for output in outputs]


def blend_of(folders, **scales):
    return [(folders[name], LORAS[name], scale) for name, scale in scales.items()]


@pytest.mark.parametrize("name", LORAS)
def test_an_adapter_is_the_merged_model(llm, folders, name):
    (output,) = run(llm, [PROMPT], request(folders, name))
    assert_as_merged(output, *blend_of(folders, **{name: 1.0}))
    (plain,) = run(llm, [PROMPT], None)
    assert_as_merged(plain)


def test_a_beam_search_with_adapters(llm, folders):
    adapters = [request(folders, "all"), None, request(folders, "few", 0.5)]
    greedy = run(llm, [PROMPT] * 3, adapters)
    params = BeamSearchParams(beam_width=1, max_tokens=6, ignore_eos=True)
    found = llm.beam_search([PROMPT] * 3, params, lora_request=adapters)
    assert [one.sequences[0].tokens for one in found] == [
        [*PROMPT, *one.outputs[0].token_ids] for one in greedy
    ]
    assert len({tuple(one.sequences[0].tokens) for one in found}) > 1


def test_different_adapters_scales_blends_and_none_in_one_batch(llm, folders):
    adapters = [
        None,
        request(folders, "all"),
        request(folders, "few", 0.5),
        (request(folders, "all", 0.75), request(folders, "mlp", -1)),
        request(folders, "all", -0.25),
        [request(folders, "mlp", 2)],
        [],
    ]
    blends = [
        {}, {"all": 1}, {"few": 0.5}, {"all": 0.75, "mlp": -1}, {"all": -0.25}, {"mlp": 2}, {},
    ]  # fmt: skip
    outputs = run(llm, [PROMPT] * len(adapters), adapters)
    for output, blend in zip(outputs, blends, strict=True):
        assert_as_merged(output, *blend_of(folders, **blend))


def test_a_tuple_is_a_blend_for_all_prompts(llm, folders):
    blend = (request(folders, "all", 0.5), request(folders, "few", 2))
    for output in run(llm, [PROMPT, PROMPT[:9]], blend):
        assert_as_merged(output, *blend_of(folders, all=0.5, few=2))
    with pytest.raises(RequestError, match="2 prompts, but 1 lora_request"):
        run(llm, [PROMPT, PROMPT], [blend])


def test_scale_0_is_the_model_alone(llm, folders):
    plain, off = run(llm, [PROMPT] * 2, [None, request(folders, "all", 0)])
    assert values_of(off.prompt_logprobs, PROMPT) == values_of(plain.prompt_logprobs, PROMPT)
    assert off.outputs[0].token_ids == plain.outputs[0].token_ids


def test_plain_requests_beside_adapters_have_the_same_text(model, folders):
    prompts = [random_prompt(5 + 7 * i, i) for i in range(6)]
    params = replace(GREEDY, max_tokens=12)
    with open_llm(model) as llm:
        expected = texts(run(llm, prompts, None, params))
    with open_llm(model, max_num_batched_tokens=16) as llm:
        adapters = [request(folders, "all") if i % 2 else None for i in range(6)]
        got = texts(run(llm, prompts, adapters, params))
    assert got[::2] == expected[::2]
    assert got[1] != expected[1]


# ---------------------------------------------------------------------- cached prefixes


def test_prefixes_are_shared_by_equal_content_scale_and_blend_alone(llm, folders):
    one, half = request(folders, "all"), request(folders, "all", 0.5)
    kinds = [None, one, half, request(folders, "few"), (one, request(folders, "few"))]
    params = replace(GREEDY, max_tokens=1)
    for adapters in kinds:
        (output,) = run(llm, [PROMPT], adapters, params)
        assert output.num_cached_tokens == 0, adapters
    for adapters in kinds:
        (output,) = run(llm, [PROMPT], adapters, params)
        assert output.num_cached_tokens == 32, adapters
    # another name for the same content is the same
    (output,) = run(llm, [PROMPT], LoRARequest("alias", 7, str(folders["all"])), params)
    assert output.num_cached_tokens == 32


def test_cached_prefixes_give_the_same_values(llm, folders):
    for _ in range(2):
        for name in ("all", "few"):
            (output,) = run(llm, [PROMPT], request(folders, name))
            assert_as_merged(output, *blend_of(folders, **{name: 1}))


def test_B122_the_same_name_with_other_weights(model, folders, tmp_path):
    params = replace(GREEDY, max_tokens=8)
    with open_llm(model) as llm:
        expected = texts(run(llm, [PROMPT], request(folders, "few"), params))
    with open_llm(model) as llm:
        run(llm, [PROMPT], LoRARequest("ad", 1, str(folders["all"])), params)
        (output,) = run(llm, [PROMPT], LoRARequest("ad", 2, str(folders["few"])), params)
        assert output.num_cached_tokens == 0
        assert texts([output]) == expected
    folder = write_adapter(tmp_path / "ad", base_weights(), LORAS["all"])
    with open_llm(model) as llm:
        run(llm, [PROMPT], LoRARequest("ad", 1, str(folder)), params)
        write_adapter(folder, base_weights(), LORAS["few"])
        (output,) = run(llm, [PROMPT], LoRARequest("ad", 1, str(folder)), params)
        assert output.num_cached_tokens == 0
        assert texts([output]) == expected


# ---------------------------------------------------------------------- beside everything else


@pytest.mark.parametrize(
    "settings",
    [
        {"max_num_batched_tokens": 8},
        {"num_gpu_blocks_override": 14},
        {"depth": 1},
        {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}},
        {"max_loras": 1},
        {"enable_prefix_caching": False, "max_num_seqs": 2},
    ],
    ids=["chunks", "preemption", "depth", "drafts", "one at a time", "few rows"],
)
def test_text_does_not_depend_on(model, folders, settings):
    prompts = [random_prompt(3 + 5 * i, i) * 2 for i in range(6)]
    adapters = [
        None, request(folders, "all"), request(folders, "few", 0.5), request(folders, "mlp"),
        (request(folders, "few"), request(folders, "mlp", 0.5)), request(folders, "all"),
    ]  # fmt: skip
    params = [
        replace(GREEDY, max_tokens=24) if i % 2 else SamplingParams(seed=i, max_tokens=24)
        for i in range(6)
    ]
    with open_llm(model) as llm:
        expected = [texts(run(llm, [prompts[i]], adapters[i], params[i]))[0] for i in range(6)]
    with open_llm(model, **settings) as llm:
        assert texts(run(llm, prompts, adapters, params)) == expected
        if "num_gpu_blocks_override" in settings:
            assert llm.get_metrics().preemptions > 0


def test_choices_of_one_request_share_its_adapter(llm, folders):
    params = SamplingParams(n=3, seed=5, max_tokens=6)
    (output,) = run(llm, [PROMPT], request(folders, "all"), params)
    for choice in output.outputs:
        values, _ = expected_logprobs(PROMPT + choice.token_ids, *blend_of(folders, all=1))
        assert len(choice.token_ids) == 6 or choice.finish_reason == "stop"
        assert len(values) == len(PROMPT) + len(choice.token_ids) - 1
    single = run(llm, [PROMPT], request(folders, "all"), replace(params, n=1))
    assert single[0].outputs[0].token_ids == output.outputs[0].token_ids


# ---------------------------------------------------------------------- what is wrong


def test_B127_a_bad_adapter_costs_the_others_nothing(model, folders, tmp_path):
    bad = write_adapter(tmp_path / "bad", base_weights(), Lora(rank=64))
    prompts = [random_prompt(6 + i, i) for i in range(5)]
    with open_llm(model) as llm:
        expected = texts(run(llm, prompts[:4], None, GREEDY))
    with open_llm(model, max_lora_rank=16) as llm:
        adapters = [None] * 4 + [LoRARequest("bad", 1, str(bad))]
        outputs = run(llm, prompts, adapters, GREEDY)
        assert texts(outputs[:4]) == expected
        assert outputs[4].outputs[0].finish_reason == "error"
        assert "rank 64 is more than max-lora-rank, 16" in outputs[4].outputs[0].error
        assert texts(run(llm, prompts[:4], None, GREEDY)) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"modules_to_save": ["lm_head", "embed_tokens"]}, "it brings whole modules of its own"),
        ({"use_dora": True}, "DoRA"),
    ],
)
def test_B126_what_is_not_supported_is_refused(llm, tmp_path, change, message):
    folder = write_adapter(tmp_path / "bad", base_weights(), Lora(config=change))
    outputs = run(llm, [PROMPT] * 2, [None, LoRARequest("bad", 1, str(folder))], GREEDY)
    assert outputs[0].outputs[0].error is None
    assert message in outputs[1].outputs[0].error


def test_an_adapter_that_is_not_there(llm, tmp_path):
    (output,) = run(llm, [PROMPT], LoRARequest("no", 1, str(tmp_path / "no")), GREEDY)
    assert f"'{tmp_path / 'no'}' is no folder" in output.outputs[0].error


def test_logits_that_an_adapter_makes_no_numbers_are_the_requests_fault(llm, folders, tmp_path):
    huge = write_adapter(tmp_path / "huge", base_weights(), Lora(seed=5, size=1e38))
    adapters = [
        (request(folders, "few", -0.5), LoRARequest("huge", 1, str(huge), 1000)),
        request(folders, "few"),
        None,
    ]
    bad, *good = run(llm, [PROMPT] * 3, adapters, GREEDY)
    assert bad.outputs[0].error == (
        "the logits hold NaN or infinity\n"
        "  the request is run with adapters: 'few' (scale -0.5), 'huge' (scale 1000)\n"
        "  try smaller scales"
    )
    assert [output.outputs[0].error for output in good] == [None, None]
    params = BeamSearchParams(beam_width=2, max_tokens=3)
    bad, *good = llm.beam_search([PROMPT] * 3, params, lora_request=adapters)
    assert [(one.finish_reason, one.tokens) for one in bad.sequences] == [("error", PROMPT)] * 2
    assert bad.sequences[0].error.startswith("the logits hold NaN or infinity")
    assert {one.error for output in good for one in output.sequences} == {None}


def test_adapters_may_be_switched_off(model, folders):
    with open_llm(model, enable_lora=False) as llm:
        refused, plain = run(llm, [PROMPT] * 2, [request(folders, "all"), None], GREEDY)
        assert "started without adapters" in refused.outputs[0].error
        assert plain.outputs[0].error is None


# ---------------------------------------------------------------------- AsyncLLM


class SlowLora(LoraFormat):
    """Reads no adapter before it may."""

    may_read = threading.Event()

    def read(self, path):
        assert self.may_read.wait(60)
        return super().read(path)


def test_a_request_whose_adapter_is_being_read_holds_up_nobody(model, folders):
    SlowLora.may_read.clear()

    async def tokens(llm, adapters, request_id=None):
        last = None
        async for output in llm.generate(PROMPT, SCORED, request_id, lora_request=adapters):
            last = output
        return last

    async def main():
        async with AsyncLLM(
            model, max_num_seqs=2, max_num_batched_tokens=48, threads=1, adapter=[SlowLora]
        ) as llm:
            adapters = request(folders, "all")
            held = [asyncio.create_task(tokens(llm, adapters)) for _ in range(4)]
            gone = asyncio.create_task(tokens(llm, request(folders, "few"), "gone"))
            for _ in range(3):
                assert_as_merged(await tokens(llm, None))
            await llm.abort("gone")
            assert (await gone).outputs[0].finish_reason == "abort"
            assert not any(task.done() for task in held)
            SlowLora.may_read.set()
            for output in await asyncio.gather(*held):
                assert_as_merged(output, *blend_of(folders, all=1))

    asyncio.run(main())


def test_adapters_in_an_event_loop(model, folders, tmp_path):
    async def collect(llm, adapters):
        last = None
        async for output in llm.generate(PROMPT, SCORED, lora_request=adapters):
            last = output
        return last

    async def main():
        async with AsyncLLM(model, max_num_seqs=8, threads=1) as llm:
            blend = [request(folders, "all", 0.5), request(folders, "few")]
            bad = LoRARequest("no", 1, str(tmp_path / "no"))
            outputs = await asyncio.gather(
                collect(llm, None), collect(llm, blend), collect(llm, bad), return_exceptions=True
            )
            assert_as_merged(outputs[0])
            assert_as_merged(outputs[1], *blend_of(folders, all=0.5, few=1))
            assert isinstance(outputs[2], RequestError)
            stream = llm.generate(PROMPT, GREEDY, "gone", lora_request=blend)
            async with aclosing(stream):
                await anext(stream)
            assert_as_merged(await collect(llm, None))

    asyncio.run(main())
