"""Bodies of OpenAI's API: types, unknown names, and escapes that are no characters."""

import logging

import pytest

from octavo.errors import RequestError
from octavo.sampling_params import SamplingParams
from octavo_plugins.dialects.openai.bodies import (
    UNSUPPORTED,
    WITHOUT_EFFECT,
    ChatBody,
    CompletionBody,
)
from octavo_plugins.dialects.openai.completions import MAX_PROMPTS
from octavo_plugins.dialects.openai.params import chat_params, completion_params
from octavo_plugins.dialects.shared.bodies import decode_body
from octavo_plugins.dialects.shared.json_escapes import without_lone_surrogates
from octavo_plugins.dialects.shared.prompts import split_prompts


def completion(raw, *, is_strict=False):
    return decode_body(raw, CompletionBody, is_strict=is_strict)


def refusal(raw, shape=CompletionBody, *, is_strict=False):
    with pytest.raises(RequestError) as caught:
        decode_body(raw, shape, is_strict=is_strict)
    return caught.value


def test_null_means_not_given():
    body = completion(b'{"prompt":"a","temperature":null,"tools":null,"foo":null}').body

    assert body.temperature is None


def test_B03_unknown_fields_are_named_in_header_and_log(caplog):
    with caplog.at_level(logging.WARNING):
        decoded = completion(b'{"prompt":"a","max_token":5,"response_fromat":{}}')

    assert decoded.headers == {"X-Octavo-Ignored-Fields": "max_token, response_fromat"}
    assert "did you mean 'max_tokens' for 'max_token'?" in caplog.text


def test_B03_strict_servers_refuse_unknown_fields():
    error = refusal(b'{"prompt":"a","max_token":5}', is_strict=True)

    assert error.param == "max_token"
    assert "did you mean 'max_tokens'" in str(error)


def test_strict_servers_take_fields_that_clients_send_by_habit():
    decoded = completion(b'{"prompt":"a","store":false}', is_strict=True)

    assert decoded.headers == {"X-Octavo-Ignored-Fields": "store"}


@pytest.mark.parametrize("name", ["structural_tag", "tools", "suffix", "chat_template"])
def test_B03_known_fields_that_are_not_supported_are_refused(name):
    error = refusal(b'{"prompt":"a","%s":["up","down"]}' % name.encode())

    assert (error.param, error.headline) == (name, f"{name} is not supported by this server")


def test_values_that_ask_for_nothing_are_taken():
    raw = b'{"messages":[],"response_format":{"type":"text"},"tool_choice":"none"}'

    assert decode_body(raw, ChatBody, is_strict=True).headers == {}


def test_no_field_is_in_two_tables():
    known = {*ChatBody.__struct_fields__, *CompletionBody.__struct_fields__}

    assert not known & set(UNSUPPORTED)
    assert not known & WITHOUT_EFFECT
    assert not set(UNSUPPORTED) & WITHOUT_EFFECT


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400", '"0.5"', "[]"])
@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "presence_penalty"])
def test_B77_numbers_that_are_none_are_refused(name, value):
    error = refusal(b'{"prompt":"a","%s":%s}' % (name.encode(), value.encode()))

    assert error.param in {name, None}
    assert error.param == name or "not valid JSON" in error.headline


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (b'{"prompt":"a","typical_p":1e400}', "typical_p"),
        (b'{"prompt":"a","typical_p":[{"x":-1e400}]}', "typical_p"),
        (b'{"prompt":"a","vllm_xargs":{"typical_p":1e400}}', "vllm_xargs"),
        (b'{"prompt":"a","suffix":1e400}', "suffix"),
        (b'{"prompt":"a","priority":1e400}', "priority"),
    ],
)
def test_B77_numbers_out_of_range_name_their_field_whoever_declares_it(raw, param):
    with pytest.raises(RequestError) as caught:
        decode_body(
            raw,
            CompletionBody,
            is_strict=False,
            declared=frozenset({"typical_p"}),
            unread={"priority": "nobody does"},
        )

    assert caught.value.param == param
    assert caught.value.headline.startswith(f"{param}: Number out of range")


UNREAD = {"priority": "the scheduler 'fcfs' does not read it (--scheduler priority does)"}


def test_what_nobody_reads_is_named_in_header_and_log_with_the_reason(caplog):
    raw = b'{"prompt":"a","priority":-3}'
    with caplog.at_level(logging.WARNING):
        decoded = decode_body(raw, CompletionBody, is_strict=False, unread=UNREAD)

    assert decoded.headers == {"X-Octavo-Ignored-Fields": "priority"}
    assert f"'priority'; priority: {UNREAD['priority']}" in caplog.text
    assert decoded.body.priority == -3
    assert decode_body(raw, CompletionBody, is_strict=True).headers == {}, "somebody reads it"


def test_strict_servers_refuse_what_nobody_reads():
    with pytest.raises(RequestError) as caught:
        decode_body(b'{"prompt":"a","priority":1}', CompletionBody, is_strict=True, unread=UNREAD)

    assert caught.value.param == "priority"
    assert str(caught.value) == (
        "priority changes nothing here: the scheduler 'fcfs' does not read it "
        "(--scheduler priority does)\n"
        "  this server refuses fields without effect (strict-fields)"
    )


@pytest.mark.parametrize("value", [b"0", b"null"])
def test_a_value_that_asks_for_nothing_may_be_unread(value):
    raw = b'{"prompt":"a","priority":%s}' % value

    assert decode_body(raw, CompletionBody, is_strict=True, unread=UNREAD).headers == {}


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (b'{"prompt":"a","n":"2"}', "n"),
        (b'{"prompt":"a","n":true}', "n"),
        (b'{"prompt":"a","stop":[1]}', "stop"),
        (b'{"prompt":"a","logit_bias":{"x":1}}', "logit_bias"),
        (b'{"prompt":5}', "prompt"),
        (b"{}", "prompt"),
    ],
)
def test_wrong_types_name_the_field(raw, param):
    assert refusal(raw).param == param


@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b'"text"', b'{"prompt":"\xff"}', b"null"])
def test_what_is_no_json_object_is_refused(raw):
    assert refusal(raw).param is None


@pytest.mark.parametrize("raw", [b'{"prompt":%s}', b'{"prompt":"a","vllm_xargs":{"a":%s}}'])
def test_bodies_nested_too_deeply_are_refused(raw):
    nested = b"[" * 50_000 + b"]" * 50_000

    assert "nested too deeply" in refusal(raw % nested).headline


def test_B23_half_a_surrogate_pair_becomes_a_replacement_character():
    decoded = completion(b'{"prompt":"abc \\ud83d def","stop":["\\udc00x"],"user":"\\ud83d"}')

    assert decoded.body.prompt == "abc \ufffd def"
    assert decoded.body.stop == ["\ufffdx"]
    assert decoded.body.user == "\ufffd"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (rb'"\ud83d\ude00"', rb'"\ud83d\ude00"'),
        (rb'"\ud83d\ud83d\ude00"', rb'"\ufffd\ud83d\ude00"'),
        (rb'"\\ud83d"', rb'"\\ud83d"'),
        (rb'"\\\ud83d"', rb'"\\\ufffd"'),
        (rb'"\ude00\ud83d"', rb'"\ufffd\ufffd"'),
        (rb'"\u0041\n"', rb'"\u0041\n"'),
    ],
)
def test_B23_only_halves_are_replaced(raw, expected):
    assert without_lone_surrogates(raw) == expected


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
def test_prompts_come_in_four_forms(prompt, expected):
    assert split_prompts(prompt, "prompt", MAX_PROMPTS) == expected


@pytest.mark.parametrize("prompt", [[], ["a", 1], [1, [2]], [True], [1.5], [{}], ["a"] * 1025])
def test_other_prompts_are_refused(prompt):
    with pytest.raises(RequestError) as caught:
        split_prompts(prompt, "prompt", MAX_PROMPTS)

    assert caught.value.param == "prompt"


def test_B83_explicit_values_win_over_defaults_also_zero():
    defaults = SamplingParams(temperature=0.7, top_k=40, top_p=0.5)
    body = completion(b'{"prompt":"a","temperature":0,"top_k":0}').body

    params = completion_params(body, defaults)

    assert (params.temperature, params.top_k, params.top_p) == (0, 0, 0.5)
    assert params.max_tokens == 16


def test_B83_every_sampling_field_is_handed_on():
    given = {
        "n": 2, "min_tokens": 1, "temperature": 0.5, "top_p": 0.5, "top_k": 3, "min_p": 0.5,
        "presence_penalty": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.5,
        "logit_bias": {4: 1.0}, "seed": 7, "stop": ["x"], "stop_token_ids": [5],
        "ignore_eos": True, "include_stop_str_in_output": True, "skip_special_tokens": False,
        "spaces_between_special_tokens": False, "allowed_token_ids": [1], "bad_words": ["y"],
        "truncate_prompt_tokens": 9, "max_tokens": 8, "logprobs": 1, "prompt_logprobs": 2,
    }  # fmt: skip
    params = completion_params(CompletionBody(prompt="a", **given), SamplingParams())

    assert {name: getattr(params, name) for name in given} == given


def test_a_chat_without_limit_may_fill_the_context():
    body = ChatBody(messages=[])

    assert chat_params(body, SamplingParams()).max_tokens is None


def test_the_newer_name_of_the_limit_wins_and_is_named_in_errors():
    body = ChatBody(messages=[], max_tokens=5, max_completion_tokens=-1)
    with pytest.raises(RequestError) as caught:
        chat_params(body, SamplingParams())

    assert caught.value.param == "max_completion_tokens"


def test_B36_chat_logprobs_without_a_number_are_of_the_tokens_alone():
    assert chat_params(ChatBody(messages=[], logprobs=True), SamplingParams()).logprobs == 0
    assert chat_params(ChatBody(messages=[]), SamplingParams()).logprobs is None


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"best_of": 3}, "best_of"),
        ({"n": 2, "best_of": 1}, "best_of"),
        ({"stream_options": {}}, "stream_options"),
        ({"stream": True, "prompt_logprobs": 1}, "prompt_logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 0, "n": 2}, "max_tokens"),
    ],
)
def test_fields_that_do_not_fit_together_are_refused(given, param):
    with pytest.raises(RequestError) as caught:
        completion_params(CompletionBody(prompt="a", **given), SamplingParams())

    assert caught.value.param == param


DECLARED = frozenset({"typical_p", "store", "user"})


def declared_args(raw, **settings):
    settings = {"is_strict": True, "declared": DECLARED} | settings
    decoded = decode_body(raw, CompletionBody, **settings)
    assert decoded.ignored == []
    return completion_params(decoded.body, SamplingParams()).extra_args


def test_parameters_of_components_join_those_in_xargs():
    assert declared_args(b'{"prompt":"a","typical_p":0.5}') == {"typical_p": 0.5}
    raw = b'{"prompt":"a","typical_p":"x","vllm_xargs":{"b":1}}'
    assert declared_args(raw) == {"b": 1, "typical_p": "x"}
    assert declared_args(b'{"prompt":"a","typical_p":null}') is None
    assert declared_args(b'{"prompt":"a","store":true}') == {"store": True}


def test_a_field_of_the_body_itself_is_nobody_elses():
    assert declared_args(b'{"prompt":"a","user":"me"}') is None


def test_a_parameter_in_both_places_is_refused():
    with pytest.raises(RequestError, match="given twice") as caught:
        declared_args(b'{"prompt":"a","typical_p":1,"vllm_xargs":{"typical_p":1}}')
    assert caught.value.param == "typical_p"


def test_declared_names_are_suggested():
    with pytest.raises(RequestError, match="did you mean 'typical_p'") as caught:
        declared_args(b'{"prompt":"a","typicalp":0.5}')
    assert caught.value.param == "typicalp"


def test_B23_texts_of_declared_parameters_are_repaired_too():
    assert declared_args(b'{"prompt":"a","typical_p":"\\ud83d"}') == {"typical_p": "\ufffd"}
