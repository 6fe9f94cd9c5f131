from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.engine.messages import EngineInfo, EngineOutput
from octavo.frontend.output_processor import OutputProcessor
from octavo.frontend.outputs import Logprob
from octavo.frontend.preprocess import Call, Preprocessor
from octavo.repetition import RepetitionDetectionParams
from octavo.sampling_params import RequestOutputKind, SamplingParams
from scripted import (
    EOS,
    THINK,
    VOCAB_SIZE,
    BytesTokenizer,
    ScriptedEngine,
)

TOKENIZER = BytesTokenizer()
INFO = EngineInfo(VOCAB_SIZE, max_model_len=4096, capacity_tokens=4096)


def _force(ids, *, per_step=1, prompt="p", late_step=False, **params):
    """Make the engine emit `ids`; returns all outputs, and the engine."""
    params.setdefault("max_tokens", 100)
    engine = ScriptedEngine(
        (lambda r: ids[r.choice]) if isinstance(ids[0], list) else (lambda _: ids),
        INFO,
        tokens_per_step=per_step,
    )
    sampling = SamplingParams(**params)
    call = Preprocessor(TOKENIZER, INFO).prepare(
        Call(request_id="r", prompt=prompt, params=sampling, arrival_s=0.5)
    )
    processor = OutputProcessor(call, TOKENIZER)
    for request in call.requests:
        engine.add(request)
    outputs, now_s = [], 1.0
    while engine.has_work:
        aborts = [i for o in engine.step() for i in processor.absorb(o, now_s)]
        if late_step and aborts:  # a step that was in flight when the stop string was found
            for output in engine.step():
                assert processor.absorb(output, now_s) == []
        for output in engine.abort(aborts):
            processor.absorb(output, now_s)
        outputs.append(processor.take())
        now_s += 1.0
    assert processor.is_finished
    assert processor.unfinished_ids() == []
    return [o for o in outputs if o is not None], engine


def _stream(ids, **options):
    outputs, engine = _force(ids, output_kind=RequestOutputKind.DELTA, **options)
    return [o.outputs[0] for o in outputs], engine


def _final(ids, **options):
    outputs, _ = _force(ids, output_kind=RequestOutputKind.FINAL_ONLY, **options)
    assert len(outputs) == 1
    return outputs[0]


def test_final_output_has_all_that_vllms_has():
    output = _final([*b"hey", EOS], logprobs=2, prompt="ab", prompt_logprobs=0)
    assert (output.request_id, output.prompt, output.finished) == ("r", "ab", True)
    assert output.prompt_token_ids == [97, 98]
    assert output.prompt_logprobs == [None, {98: Logprob(-9.9, 98, "b")}]
    assert output.metrics is not None
    assert (output.metrics.arrival_time, output.metrics.first_token_time) == (0.5, 1.0)
    assert output.metrics.finished_time == 4.0
    choice = output.outputs[0]
    assert (choice.index, choice.text, choice.token_ids) == (0, "hey", [*b"hey", EOS])
    assert (choice.finish_reason, choice.stop_reason, choice.num_tokens) == ("stop", None, 4)
    assert choice.finished()
    assert choice.cumulative_logprob == pytest.approx(-(105 + 102 + 122 + 257) / 10)
    assert choice.logprobs is not None
    assert choice.logprobs[0] == {
        104: Logprob(-10.5, 104, "h"), 1: Logprob(-0.2, 1, "\x01"), 2: Logprob(-0.3, 2, "\x02"),
    }  # fmt: skip
    assert next(iter(choice.logprobs[0])) == 104  # the sampled token first


def test_sampled_token_among_the_top_is_listed_once():
    choice = _final([2], logprobs=2, max_tokens=1).outputs[0]
    assert choice.logprobs == [{2: Logprob(-0.3, 2, "\x02"), 1: Logprob(-0.2, 1, "\x01")}]
    assert choice.finish_reason == "length"


def test_no_logprobs_and_no_text_unless_asked_for():
    choice = _final([1, 2], detokenize=False).outputs[0]
    assert (choice.text, choice.token_ids) == ("", [1, 2])
    assert choice.logprobs is None
    assert choice.cumulative_logprob is None


def test_deltas_joined_are_the_final_output():
    ids = [*"añ😀b".encode(), EOS]
    deltas, _ = _stream(ids, logprobs=0)
    assert [d.text for d in deltas] == ["a", "ñ", "😀", "b", ""]
    assert [d.token_ids for d in deltas] == [[97], ids[1:3], ids[3:7], [98], [EOS]]
    assert [len(d.logprobs) for d in deltas] == [1, 2, 4, 1, 1]
    assert [d.num_tokens for d in deltas] == [1, 3, 7, 8, 9]
    assert [d.finish_reason for d in deltas] == [None] * 4 + ["stop"]


def test_cumulative_outputs_grow():
    outputs, _ = _force([*b"abc"], max_tokens=3)
    assert [o.outputs[0].text for o in outputs] == ["a", "ab", "abc"]
    assert [o.outputs[0].token_ids for o in outputs] == [[97], [97, 98], [97, 98, 99]]
    assert [o.finished for o in outputs] == [False, False, True]


def test_slow_listener_finds_everything_in_one_delta():
    call = Preprocessor(TOKENIZER, INFO).prepare(
        Call(
            request_id="r",
            prompt="p",
            params=SamplingParams(output_kind=RequestOutputKind.DELTA),
            arrival_s=0,
        )
    )
    processor = OutputProcessor(call, TOKENIZER)
    assert processor.take() is None
    for token_id in b"abc":
        processor.absorb(EngineOutput("r-0", [token_id]), 1.0)
    output = processor.take()
    assert output is not None
    assert output.outputs[0].text == "abc"
    assert processor.take() is None
    processor.absorb(EngineOutput("r-0", [], finish_reason="error", error="NaN logits"), 2.0)
    output = processor.take()
    assert output is not None
    assert (output.outputs[0].finish_reason, output.outputs[0].error) == ("error", "NaN logits")
    assert (output.finished, processor.take()) == (True, None)


def test_choices_are_in_order_and_end_on_their_own():
    output = _final([[*b"abcdef"], [*b"x", EOS]], n=2)
    assert [(c.index, c.text) for c in output.outputs] == [(0, "abcdef"), (1, "x")]
    outputs, _ = _force(
        [[*b"ab"], [*b"x", EOS]], n=2, max_tokens=2, output_kind=RequestOutputKind.DELTA
    )
    assert [[(c.index, c.text) for c in o.outputs] for o in outputs] == [
        [(0, "a"), (1, "x")], [(0, "b"), (1, "")],
    ]  # fmt: skip


@pytest.mark.parametrize("per_step", [1, 3, 50])
def test_B26_stop_string_over_several_tokens_never_shows_in_any_delta(per_step):
    ids = [*b"one two three four five"]
    stop = "o three fo"
    deltas, engine = _stream(ids, stop=[stop], per_step=per_step)
    final = _final(ids, stop=[stop], per_step=per_step).outputs[0]
    assert "".join(d.text for d in deltas) == final.text == "one tw"
    assert (deltas[-1].finish_reason, deltas[-1].stop_reason) == ("stop", stop)
    # the token that completed the match is the last that counts, however many came with it
    joined = [i for d in deltas for i in d.token_ids]
    assert joined == final.token_ids == ids[: ids.index(ord("f")) + 2]
    assert final.num_tokens == len(final.token_ids)
    assert engine.aborted == ([] if per_step == 50 else ["r-0"])


def test_tokens_of_a_step_in_flight_at_the_match_leave_no_trace():
    choice = _final([*b"abXcd"], stop=["X"], late_step=True, logprobs=0).outputs[0]
    assert (choice.text, choice.token_ids, choice.num_tokens) == ("ab", [*b"abX"], 3)
    assert choice.logprobs is not None
    assert len(choice.logprobs) == 3


def test_B28_end_of_sequence_as_stop_token_changes_no_text():
    ids = [*b"Paris.", EOS]
    plain = _final(ids).outputs[0]
    named = _final(ids, stop_token_ids=[EOS]).outputs[0]
    assert plain.text == named.text == "Paris."
    assert (plain.stop_reason, named.stop_reason) == (None, EOS)
    shown = _final(ids, stop_token_ids=[EOS], skip_special_tokens=False).outputs[0]
    assert shown.text == "Paris."
    kept = _final(ids, skip_special_tokens=False, include_stop_str_in_output=True).outputs[0]
    assert kept.text == "Paris.<|end|>"


def test_stop_token_that_is_plain_text_is_no_part_of_the_text():
    choice = _final([*b"ab.c"], stop_token_ids=[ord(".")]).outputs[0]
    assert (choice.text, choice.token_ids, choice.stop_reason) == ("ab", [*b"ab."], ord("."))
    kept = _final([*b"ab."], stop_token_ids=[ord(".")], include_stop_str_in_output=True)
    assert kept.outputs[0].text == "ab."


def test_B30_stop_strings_that_do_not_occur_delay_nothing_and_give_no_empty_deltas():
    ids = [*b"The answer is 4", EOS]
    plain, _ = _stream(ids)
    held, _ = _stream(ids, stop=["\x01\x02\x03\x04\x05\x06\x07\x08"])
    assert [d.text for d in held] == [d.text for d in plain]
    assert all(d.text or d.finish_reason for d in held)


def test_B33_stop_match_before_min_tokens_is_ignored():
    ids = [*b"ab" * 30]
    for kind in (RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY):
        outputs, _ = _force(ids, stop=["ab"], min_tokens=20, max_tokens=40, output_kind=kind)
        choices = [c for o in outputs for c in o.outputs]
        assert choices[-1].num_tokens == 20
        assert "".join(c.text for c in choices) == "ab" * 9
        assert choices[-1].stop_reason == "ab"


def test_stop_string_of_an_incomplete_ending_text_is_found_too():
    choice = _final([*b"ab", 0xE6], stop=["\ufffd"], max_tokens=3).outputs[0]
    assert (choice.text, choice.finish_reason, choice.stop_reason) == ("ab", "stop", "\ufffd")


def test_B18_streamed_text_is_the_final_text_after_a_cut_character():
    prompt = [*TOKENIZER.encode("Good day "), 0xE6, 0xBC]
    for ids in ([0xA2, 0x41, 0x42, 0x43], [0x41, 0x42, 0x43, 0x44]):
        deltas, _ = _stream(ids, prompt=prompt, max_tokens=4)
        final = _final(ids, prompt=prompt, max_tokens=4).outputs[0].text
        assert "".join(d.text for d in deltas) == final
        assert final in ("漢ABC", "\ufffdABCD")


def test_B24_added_tokens_in_the_output_have_no_spaces_around():
    ids = TOKENIZER.encode("<think>hm</think>7")
    assert ids[0] == THINK
    for skip in (True, False):
        deltas, _ = _stream([*ids, EOS], skip_special_tokens=skip)
        assert "".join(d.text for d in deltas) == "<think>hm</think>7"


@given(
    text=st.text("abc", min_size=1, max_size=20),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
    per_step=st.integers(1, 4),
    include=st.booleans(),
    min_tokens=st.integers(0, 5),
)
def test_stream_equals_final_whatever_the_steps(text, stops, per_step, include, min_tokens):
    options = {
        "stop": stops, "per_step": per_step, "include_stop_str_in_output": include,
        "min_tokens": min_tokens, "logprobs": 0,
    }  # fmt: skip
    deltas, _ = _stream([*text.encode()], **options)
    final = _final([*text.encode()], **options).outputs[0]
    slow = _final([*text.encode()], **(options | {"per_step": 1})).outputs[0]
    assert final == slow
    assert "".join(d.text for d in deltas) == final.text
    assert [i for d in deltas for i in d.token_ids] == final.token_ids
    assert [p for d in deltas for p in d.logprobs or ()] == final.logprobs


@pytest.mark.parametrize("per_step", [1, 3, 20])
@pytest.mark.parametrize(
    ("params", "text", "reason"),
    [
        ({}, "xabab", "repetition"),
        ({"min_tokens": 7}, "xababab", "repetition"),
        ({"max_tokens": 5}, "xabab", "length"),
        ({"stop": ["bab"]}, "xa", "stop"),
        ({"logprobs": 0}, "xabab", "repetition"),
    ],
)
def test_a_circle_ends_a_choice_at_once(per_step, params, text, reason):
    circles = RepetitionDetectionParams(max_pattern_size=3, min_pattern_size=2, min_count=2)
    outputs, engine = _force(
        [*b"xabababababab"], per_step=per_step, repetition_detection=circles, **params
    )
    choice = outputs[-1].outputs[0]

    assert (choice.text, choice.finish_reason) == (text, reason)
    assert len(choice.token_ids) == choice.num_tokens == (5 if reason == "stop" else len(text))
    assert choice.stop_reason == {"repetition": "repetition_detected", "stop": "bab"}.get(reason)
    assert choice.logprobs is None or len(choice.logprobs) == choice.num_tokens
    assert not engine.has_work


def test_an_end_of_the_engines_own_wins_over_a_circle():
    circles = RepetitionDetectionParams(max_pattern_size=1, min_count=2)
    output = _final([*b"hi", EOS, EOS], repetition_detection=circles)

    assert (output.outputs[0].text, output.outputs[0].finish_reason) == ("hi", "stop")


@pytest.mark.parametrize("interval", [1, 2, 4, 50])
def test_chunks_have_as_many_tokens_as_were_asked_for(interval):
    ids = [*"a漢bcdefghij".encode(), EOS]
    chunks, _ = _stream(ids, stream_interval=interval)

    sizes = [len(chunk.token_ids) for chunk in chunks]
    assert sizes[0] == 1
    assert all(interval <= size <= interval + 2 for size in sizes[1:-1])  # a character has three
    assert sum(sizes) == len(ids)
    assert "".join(chunk.text for chunk in chunks) == "a漢bcdefghij"


def test_an_interval_holds_for_texts_so_far_too():
    outputs, _ = _force([*b"abcdefgh", EOS], stream_interval=3)

    texts = [output.outputs[0].text for output in outputs]
    assert texts == ["a", "abcd", "abcdefg", "abcdefgh"]
