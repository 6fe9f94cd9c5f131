"""Beam search over invented models: against vLLM's own way of it, and where it may go wrong."""

from __future__ import annotations

import random

import pytest

from beam_reference import reference_search
from octavo.engine.messages import EngineInfo, EngineOutput, TokenLogprobs
from octavo.errors import RequestError
from octavo.frontend.beam_search import BeamSearch
from octavo.frontend.output_processor import OutputProcessor
from octavo.frontend.preprocess import Call, Preprocessor
from octavo.sampling_params import BeamSearchParams
from octavo.structured_outputs import StructuredOutputsParams
from scripted import EOS, VOCAB_SIZE, BytesTokenizer

TOKENIZER = BytesTokenizer()
INFO = EngineInfo(VOCAB_SIZE, max_model_len=4096, capacity_tokens=4096)
LETTERS = [ord(letter) for letter in "abcdefgh"]
PROMPT = TOKENIZER.encode("xyz")


def row_of(token_ids, seed, end_bias=0.0):
    """Return logprobs [VOCAB_SIZE] that depend on all ids; only letters and the end are likely."""
    draw = random.Random(f"{seed} {token_ids}")  # noqa: S311
    row = [-50.0 - i / 8 for i in range(VOCAB_SIZE)]
    for token_id in LETTERS:
        row[token_id] = -draw.uniform(0.5, 4)
    row[EOS] = -draw.uniform(0.5, 4) + end_bias
    return row


def search_of(params, *, prompt=PROMPT, **sampling):
    call = Call(
        request_id="r",
        prompt=prompt,
        params=params.sampling(**sampling),
        arrival_s=0.0,
        length_penalty=params.length_penalty,
    )
    return BeamSearch(Preprocessor(TOKENIZER, INFO).prepare(call), TOKENIZER)


def answer(request, row):
    num = request.params.logprobs
    best = sorted(range(len(row)), key=lambda i: -row[i])[:num]
    entry = TokenLogprobs(best[0], row[best[0]], 1, best, [row[i] for i in best])
    return EngineOutput(request.request_id, best[:1], logprobs=[entry], finish_reason="length")


def run(search, row_of_ids, order=1):
    """Run a search to its end. Returns how many steps it took."""
    num_steps = 0
    while requests := search.next_requests():
        assert not search.next_requests()  # each once
        num_steps += 1
        for request in requests[::order]:
            assert (request.max_tokens, request.eos_token_ids) == (1, ())
            search.absorb(answer(request, row_of_ids(request.prompt_token_ids)))
    assert search.is_finished
    return num_steps


@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.5, -1.0])
@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("ignore_eos", [False, True])
def test_texts_and_order_are_those_of_vllm(width, length_penalty, ignore_eos):
    num_ended = 0
    for seed in range(6):
        params = BeamSearchParams(width, 7, ignore_eos=ignore_eos, length_penalty=length_penalty)
        search = search_of(params)
        run(search, lambda ids, seed=seed: row_of(ids, seed), order=(-1) ** seed)
        expected = reference_search(
            lambda ids, seed=seed: row_of(ids, seed), PROMPT, width=width, max_tokens=7,
            length_penalty=length_penalty, ends=() if ignore_eos else {EOS}, eos={EOS},
        )  # fmt: skip
        found = [(beam.token_ids, beam.cum_logprob) for beam in search.best]
        assert found == [(one.token_ids, one.cum_logprob) for one in expected]
        reasons = [beam.finish_reason == "stop" for beam in search.best]
        assert reasons == [one.is_ended for one in expected]
        num_ended += sum(reasons)
    assert (num_ended > 0) is (not ignore_eos and length_penalty < 2)


def test_it_ends_when_nothing_better_can_come():
    params = BeamSearchParams(2, 500, length_penalty=0.0)
    search = search_of(params)
    num_steps = run(search, lambda ids: row_of(ids, 1, end_bias=0.4))

    assert num_steps < 20
    expected = reference_search(
        lambda ids: row_of(ids, 1, end_bias=0.4), PROMPT, width=2, max_tokens=40,
        length_penalty=0.0, ends={EOS}, eos={EOS},
    )  # fmt: skip
    assert [one.token_ids for one in search.best] == [one.token_ids for one in expected]


def test_stop_tokens_end_texts_as_the_end_of_sequence_does():
    params = BeamSearchParams(
        3, 6, stop_token_ids=[LETTERS[0]], ignore_eos=True, length_penalty=0.0
    )
    search = search_of(params)
    run(search, lambda ids: row_of(ids, 3))

    ends = {LETTERS[0]}
    expected = reference_search(
        lambda ids: row_of(ids, 3), PROMPT, width=3, max_tokens=6, length_penalty=0.0, ends=ends,
        eos={*ends, EOS},
    )  # fmt: skip
    assert [beam.token_ids for beam in search.best] == [one.token_ids for one in expected]
    stopped = [beam for beam in search.best if beam.finish_reason == "stop"]
    assert stopped
    assert {beam.stop_reason for beam in stopped} == ends
    assert all(ends.isdisjoint(beam.token_ids[:-1]) for beam in search.best)


@pytest.mark.parametrize("is_shown", [False, True])
def test_stop_strings_end_texts_and_are_cut(is_shown):
    params = BeamSearchParams(
        4, 6, stop=["ab", "ba"], ignore_eos=True, include_stop_str_in_output=is_shown,
        length_penalty=0.0,
    )  # fmt: skip
    search = search_of(params)
    run(search, lambda ids: row_of(ids, 5))
    output = output_of(search)

    stopped = [one for one in output.outputs if one.finish_reason == "stop"]
    assert stopped
    for one in output.outputs:
        whole = TOKENIZER.decode(one.token_ids)
        if one in stopped:
            assert whole.endswith(one.stop_reason)
            assert one.text == (whole if is_shown else whole[:-2])
            whole = whole[:-1]
        assert "ab" not in whole
        assert "ba" not in whole


def output_of(search):
    processor = OutputProcessor(search.call, TOKENIZER)
    for result in search.results():
        processor.absorb(result, 0.0)
    return processor.take()


def test_outputs_hold_as_many_logprobs_as_were_asked_for():
    search = search_of(BeamSearchParams(3, 5), logprobs=2, prompt_logprobs=1)
    first, *_ = requests = search.next_requests()
    assert len(requests) == 1
    assert (first.params.logprobs, first.params.prompt_logprobs) == (6, 1)
    output = answer(first, row_of(first.prompt_token_ids, 2))
    output.prompt_logprobs, output.num_cached_tokens = [None, output.logprobs[0]], 2
    search.absorb(output)
    run(search, lambda ids: row_of(ids, 2))
    found = output_of(search)

    assert found.num_cached_tokens == 2
    assert len(found.prompt_logprobs) == 2
    for one, beam in zip(found.outputs, search.best, strict=True):
        assert one.cumulative_logprob == beam.cum_logprob
        assert [next(iter(entry)) for entry in one.logprobs] == one.token_ids
        assert {len(entry) for entry in one.logprobs} <= {2, 3}
        for i, entry in zip(one.token_ids, one.logprobs, strict=True):
            is_among_best = len(entry) == 2
            assert (entry[i].rank <= 2) is is_among_best
    assert any(len(entry) == 3 for one in found.outputs for entry in one.logprobs)


def test_a_beam_that_fails_ends_the_search_and_the_others_are_aborted():
    search = search_of(BeamSearchParams(3, 5))
    (first,) = search.next_requests()
    search.absorb(answer(first, row_of(first.prompt_token_ids, 2)))
    requests = search.next_requests()
    failure = EngineOutput(requests[1].request_id, [], finish_reason="error", error="it was NaN")

    others = {requests[0].request_id, requests[2].request_id}
    assert set(search.absorb(failure)) == others
    assert search.is_finished
    assert not search.next_requests()
    assert search.unfinished_ids() == []
    assert search.absorb(answer(requests[0], row_of([], 1))) == []  # it comes too late
    found = [(one.finish_reason, one.error) for one in output_of(search).outputs]
    assert found == [("error", "it was NaN")] * 3


def test_a_refused_step_is_asked_for_again_under_other_ids():
    search = search_of(BeamSearchParams(2, 3))
    (first,) = search.next_requests()
    search.absorb(answer(first, row_of(first.prompt_token_ids, 2)))
    before = search.next_requests()
    search.refused()
    again = search.next_requests()

    assert [one.prompt_token_ids for one in again] == [one.prompt_token_ids for one in before]
    assert not {one.request_id for one in again} & {one.request_id for one in before}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"beam_width": 0}, "beam_width"),
        ({"beam_width": 129}, "beam_width"),
        ({"beam_width": True}, "beam_width"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"length_penalty": float("nan")}, "length_penalty"),
        ({"length_penalty": 11}, "length_penalty"),
        ({"temperature": -1}, "temperature"),
        ({"stop": [""]}, "stop"),
    ],
)
def test_bad_parameters_are_named(fields, param):
    with pytest.raises(RequestError) as caught:
        BeamSearchParams(**{"beam_width": 2, "max_tokens": 4} | fields)
    assert caught.value.param == param


def test_what_a_search_cannot_do_is_refused():
    form = StructuredOutputsParams(choice=["a"])
    with pytest.raises(RequestError, match="cannot hold its texts to a form"):
        search_of(BeamSearchParams(2, 4), structured_outputs=form)
    small = EngineInfo(100, max_model_len=4096, capacity_tokens=4096)
    params = BeamSearchParams(51, 4)
    call = Call(
        request_id="r", prompt=[1], params=params.sampling(), arrival_s=0.0, length_penalty=1.0
    )
    with pytest.raises(RequestError, match="needs 102 different tokens"):
        Preprocessor(TOKENIZER, small).prepare(call)
