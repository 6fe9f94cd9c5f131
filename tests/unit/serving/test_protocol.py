"""Messages between the processes come out as they went in, however the bytes are cut."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo import errors
from octavo.engine.messages import EngineInfo, EngineOutput, EngineRequest, TokenLogprobs
from octavo.interfaces.adapter import AdapterSpec, AdapterUse
from octavo.interfaces.grammar import GrammarSpec, ReasoningSpec
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.serving import protocol
from octavo.serving.framing import FrameBuffer


def everything_set():
    params = SamplingParams(
        n=2, presence_penalty=0.5, frequency_penalty=-0.5, repetition_penalty=1.25,
        temperature=0.0, top_p=0.5, top_k=7, min_p=0.25, seed=2**63, stop=["a", "\u6f22"],
        stop_token_ids=[3], ignore_eos=True, max_tokens=9, min_tokens=1, logprobs=0,
        prompt_logprobs=1, skip_special_tokens=False, include_stop_str_in_output=True,
        logit_bias={5: -1.5}, allowed_token_ids=[1, 2], bad_words=["no"],
        truncate_prompt_tokens=8, thinking_token_budget=5, extra_args={"x": [1, "two"]},
        logprob_token_ids=[7, 5],
    )  # fmt: skip
    return EngineRequest(
        request_id="r", prompt_token_ids=[1, 2], params=params, max_tokens=9, seed=2**64 - 1,
        arrival_s=1.5, choice=1, priority=-3, eos_token_ids=(4,), bad_words_ids=((1,), (2, 3)),
        stop_token_ids=frozenset({3}),
        cache_salt="salt", grammar=GrammarSpec("regex", "a+"),
        reasoning=ReasoningSpec((260,), is_open=False, budget=5, start_ids=(259, 3)),
        adapters=(AdapterUse(AdapterSpec("lora", "/a"), 0.5),), metadata={"user": "u"},
    )  # fmt: skip


def through_the_wire(message, decode):
    (body,) = FrameBuffer().feed(protocol.encode_frame(message))
    return decode(body)


def sent(requests):
    message = through_the_wire(protocol.add_of(requests), protocol.decode_to_engine)
    return protocol.requests_of(message)


def test_a_request_arrives_with_every_field():
    request = everything_set()
    (arrived,) = sent([request])

    expected = dataclasses.replace(request.params, output_kind=RequestOutputKind.DELTA)
    assert arrived == dataclasses.replace(request, params=expected)


def test_defaults_are_not_sent():
    request = dataclasses.replace(everything_set(), params=SamplingParams())

    assert protocol.add_of([request]).params[0].changed == {}


def test_what_choices_share_is_sent_once_and_shared_again():
    params = SamplingParams(n=64, logit_bias=dict.fromkeys(range(40000), 1.0))
    words = tuple((i, i + 1) for i in range(5_000))
    first = dataclasses.replace(
        everything_set(),
        prompt_token_ids=list(range(8_000)),
        params=params,
        bad_words_ids=words,
        stop_token_ids=frozenset(range(40_000)),
    )
    requests = [dataclasses.replace(first, request_id=f"r{i}", choice=i) for i in range(64)]

    arrived = sent(requests)

    alone = len(protocol.encode_frame(protocol.add_of([first])))
    assert len(protocol.encode_frame(protocol.add_of(requests))) < alone + 64 * 200
    assert [one.request_id for one in arrived] == [one.request_id for one in requests]
    for name in ("params", "prompt_token_ids", "bad_words_ids", "stop_token_ids"):
        assert len({id(getattr(one, name)) for one in arrived}) == 1
    assert arrived[5].params.logit_bias == params.logit_bias


def test_requests_of_one_message_may_differ_in_prompt_and_parameters():
    base = everything_set()
    other = SamplingParams(temperature=0.25, output_kind=RequestOutputKind.DELTA)
    requests = [
        dataclasses.replace(base, request_id="a", prompt_token_ids=[1]),
        dataclasses.replace(base, request_id="b", params=other, bad_words_ids=()),
        dataclasses.replace(base, request_id="c", prompt_token_ids=[1], grammar=None),
        dataclasses.replace(base, request_id="d", params=other, bad_words_ids=((7,),)),
    ]

    arrived = sent(requests)

    assert [one.prompt_token_ids for one in arrived] == [[1], [1, 2], [1], [1, 2]]
    assert [one.params.temperature for one in arrived] == [0.0, 0.25, 0.0, 0.25]
    assert [one.bad_words_ids for one in arrived] == [((1,), (2, 3)), (), ((1,), (2, 3)), ((7,),)]
    assert [one.grammar is None for one in arrived] == [False, False, True, False]


def test_explicit_zeros_are_sent():
    params = SamplingParams(temperature=0, max_tokens=None)

    assert protocol.changed_params(params) == {"temperature": 0, "max_tokens": None}


def test_outputs_arrive_as_they_were():
    entry = TokenLogprobs(7, -0.5, 1, [7, 8], [-0.5, -1.0])
    batch = protocol.Batch(
        outputs=[
            EngineOutput("a", [7], [entry], [None, entry], 3, "stop", 7),
            EngineOutput("b", [], finish_reason="error", error="NaN"),
        ],
        accepted=["c"],
        rejected=[("d", protocol.WireError("QueueFullError", "full", ["later"]))],
    )

    assert through_the_wire(batch, protocol.decode_from_engine) == batch


def test_info_arrives_as_it_was():
    ready = protocol.Ready(EngineInfo(vocab_size=10, max_model_len=20, capacity_tokens=30))

    assert through_the_wire(ready, protocol.decode_from_engine) == ready


@given(st.lists(st.binary(max_size=40), max_size=5), st.integers(1, 17))
def test_frames_come_out_whole_however_the_bytes_are_cut(texts, size):
    messages = [protocol.Abort([text.hex()]) for text in texts]
    data = b"".join(protocol.encode_frame(message) for message in messages)
    frames = FrameBuffer()

    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    found = [protocol.decode_to_engine(body) for piece in pieces for body in frames.feed(piece)]

    assert found == messages


@pytest.mark.parametrize("name", errors.__all__)
def test_every_typed_error_survives(name):
    kind = getattr(errors, name)
    if not isinstance(kind, type):
        return
    is_of_request = issubclass(kind, errors.RequestError)
    error = kind("headline", "a fact", **({"param": "seed"} if is_of_request else {}))
    arrived = protocol.error_from_wire(protocol.error_to_wire(error))

    assert type(arrived) is kind
    assert str(arrived) == str(error)
    assert getattr(arrived, "param", None) == getattr(error, "param", None)


def test_an_error_of_a_plugin_becomes_its_nearest_typed_base():
    class Mine(errors.QueueFullError):
        pass

    arrived = protocol.error_from_wire(protocol.error_to_wire(Mine("full")))
    other = protocol.error_from_wire(protocol.error_to_wire(ValueError("odd")))

    assert type(arrived) is errors.QueueFullError
    assert (type(other), str(other)) == (errors.EngineError, "ValueError: odd")
