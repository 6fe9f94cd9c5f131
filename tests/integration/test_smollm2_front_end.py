"""The offline API on the real model: stop strings, forced text, ends, seeds, chat, interrupts."""

from __future__ import annotations

import asyncio
import random
import signal
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from octavo import LLM, AsyncLLM, BeamSearchParams, SamplingParams
from octavo.frontend.offline import stream_call
from octavo.frontend.preprocess import Call
from octavo.sampling_params import RequestOutputKind

EOS = 2  # <|im_end|>
GREEDY = SamplingParams(temperature=0, max_tokens=24)
NUMBERS = "Numbers in order: one two"


@pytest.fixture(scope="module")
def llm():
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002 - the global generator is what B90 is about
    torch.manual_seed(3)
    with LLM(model="smollm2", num_gpu_blocks_override=40, max_model_len=2048, threads=1) as llm:
        yield llm


def _generate(llm, prompt, params):
    return llm.generate([prompt], params, use_tqdm=False)[0].outputs[0]


def _stream(llm, prompt, params):
    model = llm._model
    call = Call(request_id="stream", prompt=prompt, params=params, arrival_s=0)
    outputs = stream_call(model.engine, model.tokenizer, model.preprocessor.prepare(call))
    return [output.outputs[0] for output in outputs]


def _force(ids):
    """Return a logits processor that lets the model emit exactly these ids."""

    def processor(output_ids, logits):
        wanted = ids[min(len(output_ids), len(ids) - 1)]
        logits[:] = -float("inf")
        logits[wanted] = 0.0
        return logits

    return processor


def test_B90_building_and_using_leave_the_global_generators_alone(llm):
    _generate(llm, "x", SamplingParams(max_tokens=2))
    drawn = random.random(), np.random.random(), torch.rand(1).item()  # noqa: NPY002, S311
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    torch.manual_seed(3)
    assert drawn == (random.random(), np.random.random(), torch.rand(1).item())  # noqa: NPY002, S311


def test_B88_the_order_of_the_prompts_changes_no_text(llm):
    prompts = [NUMBERS, "Water boils at", "x", "A haiku about autumn:\n", "1, 1, 2, 3, 5, 8,"]
    prompts += [f"{prompt} Once upon a time, far away," for prompt in prompts]
    params = SamplingParams(temperature=0.7, seed=5, max_tokens=4, ignore_eos=True)
    texts = [
        [output.outputs[0].text for output in llm.generate(some, params, use_tqdm=False)]
        for some in (prompts, prompts[::-1])
    ]
    assert texts[0] == texts[1][::-1]


def test_B86_seeded_requests_repeat_beside_unseeded_ones_which_differ(llm):
    unseeded = SamplingParams(temperature=1, max_tokens=6, n=2, ignore_eos=True)
    seeded = replace(unseeded, seed=11)
    (alone,) = llm.generate(["x"], seeded, use_tqdm=False)
    expected = [choice.token_ids for choice in alone.outputs]
    others = set()
    for order in (1, -1):
        params = [seeded, unseeded][::order]
        one, other = llm.generate(["x"] * 2, params, use_tqdm=False)[::order]
        assert [choice.token_ids for choice in one.outputs] == expected
        others |= {choice.text for choice in other.outputs}
    assert len(others) == 4
    assert expected[0] != expected[1]


def test_B26_B30_stop_string_over_several_tokens(llm):
    text = _generate(llm, NUMBERS, GREEDY).text
    stop = text[5:15]
    params = replace(GREEDY, stop=[stop])
    deltas = _stream(llm, NUMBERS, params)
    final = _generate(llm, NUMBERS, params)
    assert "".join(d.text for d in deltas) == final.text == text[: text.index(stop)]
    assert (deltas[-1].finish_reason, final.stop_reason) == ("stop", stop)
    assert all(d.text or d.finish_reason for d in deltas)
    kept = _generate(llm, NUMBERS, replace(params, include_stop_str_in_output=True))
    assert kept.text == text[: text.index(stop) + len(stop)]


def test_B33_stop_string_before_min_tokens_is_ignored(llm):
    early = _generate(llm, NUMBERS, replace(GREEDY, max_tokens=2)).text
    params = replace(GREEDY, stop=[early[:2]], min_tokens=12)
    assert _generate(llm, NUMBERS, replace(params, min_tokens=0)).num_tokens <= 2
    assert _generate(llm, NUMBERS, params).num_tokens >= 12
    assert _stream(llm, NUMBERS, params)[-1].num_tokens >= 12


def test_B20_B28_forced_text_streams_exactly_and_ends_at_the_end_token(llm):
    text = "Zdravím ďábla 😀👨\u200d👩\u200d👧 漢字 ✓"
    ids = llm.get_tokenizer().encode(text, add_special_tokens=False)
    params = SamplingParams(max_tokens=60, logits_processors=[_force([*ids, EOS])])
    deltas = _stream(llm, "x", params)
    assert "".join(d.text for d in deltas) == text
    assert not any("\ufffd" in d.text for d in deltas)
    assert (deltas[-1].finish_reason, deltas[-1].stop_reason) == ("stop", None)
    params = replace(params, logits_processors=[_force([*ids[:5], EOS])])
    plain = _generate(llm, "x", params)
    named = _generate(llm, "x", replace(params, stop_token_ids=[EOS]))
    assert named.text == plain.text != ""
    assert (plain.stop_reason, named.stop_reason) == (None, EOS)


def test_B18_prompt_that_ends_inside_a_character(llm):
    tokenizer = llm.get_tokenizer()
    character = next(
        ids for c in "漢嗨𝔘𐍈" if len(ids := tokenizer.encode(c, add_special_tokens=False)) > 1
    )
    prompt = [*tokenizer.encode("Good day "), *character[:-1]]
    for ids in ([character[-1], 33], [33, 34]):
        params = SamplingParams(max_tokens=4, logits_processors=[_force([*ids, EOS])])
        streamed = "".join(d.text for d in _stream(llm, prompt, params))
        assert streamed == _generate(llm, prompt, params).text
        assert "Good day" not in streamed
        assert streamed.count("\ufffd") <= 1


def test_B81_min_tokens_bars_every_end(llm):
    bias = {EOS: 100.0, 0: 100.0}
    assert _generate(llm, "Hi", replace(GREEDY, logit_bias=bias)).num_tokens == 1
    late = _generate(llm, "Hi", replace(GREEDY, logit_bias=bias, min_tokens=10))
    assert (late.num_tokens, late.finish_reason) == (11, "stop")
    named = replace(GREEDY, logit_bias={33: 100.0}, stop_token_ids=[33], min_tokens=10)
    assert _generate(llm, "Hi", named).num_tokens == 11


def test_B75_id_outside_the_vocabulary_hurts_nobody(llm):
    short = replace(GREEDY, max_tokens=6)
    good = _generate(llm, NUMBERS, short).text
    size = llm.engine_info.vocab_size
    for bad in ([size + 22], [-5]):
        params = [short, replace(short, stop_token_ids=bad, min_tokens=1)]
        with pytest.raises(ValueError, match="prompt 1: stop_token_ids"):
            llm.generate([NUMBERS, "hi"], params, use_tqdm=False)
    assert _generate(llm, NUMBERS, short).text == good


def test_B103_prompts_that_never_fit_fail_at_once_and_short_ones_run(llm):
    long = [1] * 900
    with pytest.raises(ValueError, match=r"prompt 6: .* 924 tokens, but only 640 tokens are avail"):
        llm.generate(["hi"] * 6 + [long] * 3, GREEDY, use_tqdm=False)
    outputs = llm.generate(["hi"] * 6, replace(GREEDY, max_tokens=4), use_tqdm=False)
    assert len({o.outputs[0].text for o in outputs}) == 1


def test_prompt_that_leaves_room_for_one_token_gets_one(llm):
    output = _generate(llm, [1] * 639, SamplingParams(max_tokens=None))
    assert (output.num_tokens, output.finish_reason) == (1, "length")


def test_B114_order_is_that_of_the_prompts(llm):
    prompts = ["word " * (16 - 2 * i) for i in range(8)]
    params = [SamplingParams(temperature=0, max_tokens=8 - i, n=2) for i in range(8)]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [o.prompt for o in outputs] == prompts
    assert [[c.num_tokens for c in o.outputs] for o in outputs] == [[8 - i] * 2 for i in range(8)]


def test_logprobs_and_prompt_logprobs(llm):
    params = replace(GREEDY, max_tokens=3, logprobs=2, prompt_logprobs=1)
    output = llm.generate([NUMBERS], params, use_tqdm=False)[0]
    choice = output.outputs[0]
    for token_id, entry in zip(choice.token_ids, choice.logprobs, strict=True):
        assert entry[token_id].rank == 1
        assert entry[token_id].decoded_token == llm.get_tokenizer().token_text(token_id)
        assert len(entry) == 2
    assert choice.cumulative_logprob == pytest.approx(
        sum(e[t].logprob for t, e in zip(choice.token_ids, choice.logprobs, strict=True))
    )
    assert output.prompt_logprobs[0] is None
    assert len(output.prompt_logprobs) == len(output.prompt_token_ids)
    scored = SamplingParams(max_tokens=0, prompt_logprobs=1)
    only = llm.generate([NUMBERS], scored, use_tqdm=False)[0]
    assert only.outputs[0].token_ids == []
    assert only.prompt_logprobs == output.prompt_logprobs


def _values(entries, ids):
    pairs = zip(entries, ids, strict=True)
    return [entry[token_id].logprob for entry, token_id in pairs if entry is not None]


def _scores(llm, prompts):
    """Return the values of each prompt's tokens and of the token after it."""
    params = SamplingParams(temperature=0, max_tokens=1, logprobs=0, prompt_logprobs=1)
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return [
        pytest.approx(
            _values(o.prompt_logprobs, o.prompt_token_ids)
            + _values(o.outputs[0].logprobs, o.outputs[0].token_ids),
            abs=1e-3,
        )
        for o in outputs
    ]


def test_B43_B91_scores_with_prefix_hits_in_any_order(llm):
    """A salt of its own keeps a prompt from all hits: that is caching turned off."""
    shared = llm.get_tokenizer().encode("The sea is deep and the sky is high. " * 8)[:48]
    tail = llm.get_tokenizer().encode("Ships of all nations pass here.")
    prompts = [shared + tail, shared + tail[::-1]]
    prompts += [prompts[0][:num] for num in (15, 16, 33)]
    salted = [{"prompt_token_ids": ids, "cache_salt": str(i)} for i, ids in enumerate(prompts)]
    expected = [one.expected for one in _scores(llm, salted)]
    for some in (prompts, prompts[::-1]):
        order = expected if some is prompts else expected[::-1]
        assert llm.reset_prefix_cache()
        assert order == [*_scores(llm, some[:1]), *_scores(llm, some[1:])]
    llm.reset_prefix_cache()
    llm.generate(prompts[:1], replace(GREEDY, max_tokens=1), use_tqdm=False)
    assert expected[:2] == _scores(llm, prompts[:2])


def test_B93_prompts_that_are_all_in_the_cache(llm):
    ids = llm.get_tokenizer().encode("Rain falls on the plain and on the hills. " * 8)
    params = replace(GREEDY, max_tokens=2, logprobs=1)
    for num in (16, 32, 31):
        llm.reset_prefix_cache()
        outputs = [llm.generate([ids[:num]], params, use_tqdm=False)[0] for _ in range(2)]
        outputs += llm.generate([ids[:num]] * 3, params, use_tqdm=False)
        assert [o.num_cached_tokens for o in outputs] == [0] + [(num - 1) // 16 * 16] * 4
        first = outputs[0].outputs[0]
        values = pytest.approx(_values(first.logprobs, first.token_ids), abs=1e-3)
        for output in outputs[1:]:
            choice = output.outputs[0]
            assert choice.token_ids == first.token_ids
            assert _values(choice.logprobs, choice.token_ids) == values


def test_chat_answers(llm):
    question = [{"role": "user", "content": "Name the capital of France."}]
    output = llm.chat(question, replace(GREEDY, max_tokens=12), use_tqdm=False)[0]
    assert "Paris" in output.outputs[0].text
    tokenizer = llm.get_tokenizer()
    assert output.prompt.count("<|im_start|>") == 3  # system, user, and the answer to come
    assert output.prompt_token_ids == tokenizer.encode(output.prompt, add_special_tokens=False)


def test_repeated_prompt_is_found_in_the_cache_until_it_is_reset(llm):
    prompt = "The sea is deep and the sky is high. " * 8
    llm.generate([prompt], replace(GREEDY, max_tokens=1), use_tqdm=False)
    output = llm.generate([prompt], replace(GREEDY, max_tokens=1), use_tqdm=False)[0]
    assert output.num_cached_tokens >= 48
    assert llm.reset_prefix_cache()
    output = llm.generate([prompt], replace(GREEDY, max_tokens=1), use_tqdm=False)[0]
    assert output.num_cached_tokens == 0


def test_ctrl_c_leaves_the_llm_usable(llm):
    expected = _generate(llm, NUMBERS, GREEDY).text
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        llm.generate(
            [NUMBERS] * 4, SamplingParams(max_tokens=400, ignore_eos=True, n=4), use_tqdm=False
        )
    timer.join()
    assert llm.get_metrics().num_running == 0
    assert _generate(llm, NUMBERS, GREEDY).text == expected


def test_async_streams_are_the_offline_text(llm):
    prompts = [NUMBERS, "Water boils at", "The opposite of hot is"]
    expected = [o.outputs[0].text for o in llm.generate(prompts, GREEDY, use_tqdm=False)]
    delta = replace(GREEDY, output_kind=RequestOutputKind.DELTA)

    async def collect(async_llm, prompt):
        return "".join([o.outputs[0].text async for o in async_llm.generate(prompt, delta)])

    async def main():
        async with AsyncLLM("smollm2", num_gpu_blocks_override=40, threads=1) as async_llm:
            return await asyncio.gather(*(collect(async_llm, p) for p in prompts))

    assert asyncio.run(main()) == expected


def test_beam_search_finds_likelier_texts_than_greedy_decoding_does(llm):
    prompt = "The capital of France is"
    greedy = _generate(llm, prompt, replace(GREEDY, max_tokens=12, logprobs=0))
    params = BeamSearchParams(beam_width=4, max_tokens=12, length_penalty=0.0)
    ((best, *others),) = (one.sequences for one in llm.beam_search([prompt], params))

    assert best.text.startswith(f"{prompt} Paris")
    assert best.cum_logprob > greedy.cumulative_logprob
    assert len({tuple(one.tokens) for one in (best, *others)}) == 4
    values = [one.cum_logprob for one in (best, *others)]
    assert values == sorted(values, reverse=True)
    scoring = SamplingParams(max_tokens=1, prompt_logprobs=0)
    (scored,) = llm.generate([best.tokens], scoring, use_tqdm=False)
    entries = scored.prompt_logprobs[-len(best.logprobs) :]
    tokens = best.tokens[-len(best.logprobs) :]
    value = sum(entry[i].logprob for i, entry in zip(tokens, entries, strict=True))
    assert value == pytest.approx(best.cum_logprob, abs=1e-3)
