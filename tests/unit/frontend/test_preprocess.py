from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from octavo.engine.messages import EngineInfo
from octavo.errors import RequestError
from octavo.frontend.defaults import GenerationDefaults
from octavo.frontend.preprocess import Call, Preprocessor
from octavo.interfaces.adapter import AdapterSpec, AdapterUse
from octavo.lora import LoRARequest
from octavo.sampling_params import SamplingParams
from scripted import BOS, END_OF_TURN, EOS, VOCAB_SIZE, BytesTokenizer

INFO = EngineInfo(VOCAB_SIZE, max_model_len=64, capacity_tokens=4096)


def _prepare(prompt="hi", params=None, *, info=INFO, defaults=None, seed=7, **call):
    preprocessor = Preprocessor(BytesTokenizer(), info, defaults, seed=seed)
    params = params or SamplingParams(max_tokens=8)
    return preprocessor.prepare(
        Call(request_id="r", prompt=prompt, params=params, arrival_s=1.5, **call)
    )


def _refusal(*args, **kwargs):
    with pytest.raises(RequestError) as caught:
        _prepare(*args, **kwargs)
    assert isinstance(caught.value, ValueError)
    return caught.value


def test_forms_of_a_prompt():
    assert _prepare("hi").prompt_token_ids == [104, 105]
    assert _prepare("hi").prompt == "hi"
    assert _prepare([104, 105]).prompt_token_ids == [104, 105]
    assert _prepare([104, 105]).prompt is None
    assert _prepare(np.array([104, 105])).prompt_token_ids == [104, 105]
    assert _prepare({"prompt": "hi"}).prompt_token_ids == [104, 105]
    both = _prepare({"prompt": "hi", "prompt_token_ids": [1]})
    assert (both.prompt, both.prompt_token_ids) == ("hi", [1])


@pytest.mark.parametrize(
    "prompt",
    [
        3, None, ["a", "b"], [1.5], [True], b"hi", np.int64(3), np.array([[1, 2]]), {},
        {"prompt": 3}, {"text": "hi"}, {"prompt": "hi", "cache_salt": ""},
        {"prompt": "hi", "multi_modal_data": {}},
    ],
)  # fmt: skip
def test_other_forms_are_refused(prompt):
    assert _refusal(prompt).param in ("prompt", "cache_salt")


def test_one_engine_request_a_choice_with_all_that_the_engine_needs():
    params = SamplingParams(n=3, max_tokens=8, seed=-5, prompt_logprobs=1, logprobs=0)
    prompt = {"prompt": "hi", "cache_salt": "pepper"}
    call = _prepare(prompt, params, priority=4, metadata={"tenant": "a"})
    assert [r.request_id for r in call.requests] == ["r-0", "r-1", "r-2"]
    assert [r.choice for r in call.requests] == [0, 1, 2]
    first = call.requests[0]
    assert (first.max_tokens, first.priority, first.cache_salt) == (8, 4, "pepper")
    assert (first.arrival_s, first.eos_token_ids) == (1.5, (EOS,))
    assert {r.seed for r in call.requests} == {2**64 - 5}
    assert first.metadata == {"tenant": "a"}
    assert first.metadata is not call.requests[1].metadata
    # the same for all choices, so only one computes them
    assert [r.params.prompt_logprobs for r in call.requests] == [1, None, None]
    assert [r.params.logprobs for r in call.requests] == [0, 0, 0]


def test_special_tokens_are_added_unless_told_not_to():
    preprocessor = Preprocessor(BytesTokenizer(adds_bos=True), INFO)
    call = Call(request_id="r", prompt="", params=SamplingParams(), arrival_s=0)
    assert preprocessor.prepare(call).prompt_token_ids == [BOS]
    with pytest.raises(RequestError, match="the prompt is empty"):
        preprocessor.prepare(replace(call, add_special_tokens=False))


@pytest.mark.parametrize("prompt", ["", [], {"prompt": ""}, {"prompt_token_ids": []}])
def test_B80_prompt_without_tokens_is_refused(prompt):
    error = _refusal(prompt)
    assert error.param == "prompt"
    assert "the prompt is empty" in str(error)


def test_B01_prompt_longer_than_the_context():
    error = _refusal([1] * 100, SamplingParams(max_tokens=None))
    assert str(error) == (
        "This model's maximum context length is 64 tokens. However, you requested at least 101 "
        "tokens (100 in the prompt, at least 1 for the completion).\n"
        "  shorten the prompt"
    )
    assert error.param == "prompt"


def test_B01_prompt_and_max_tokens_longer_than_the_context():
    error = _refusal([1] * 10, SamplingParams(max_tokens=60))
    assert str(error) == (
        "This model's maximum context length is 64 tokens. However, you requested 70 tokens "
        "(10 in the prompt, 60 for the completion).\n"
        "  shorten the prompt, or ask for max_tokens of at most 54"
    )
    assert error.param == "max_tokens"


def test_B01_prompt_exactly_at_the_limit_is_refused_and_one_below_gives_one_token():
    error = _refusal([1] * 64, SamplingParams(max_tokens=None))
    assert "maximum context length is 64 tokens" in str(error)
    assert "64 in the prompt" in str(error)
    call = _prepare([1] * 63, SamplingParams(max_tokens=None))
    assert call.requests[0].max_tokens == 1
    scored = SamplingParams(max_tokens=0, prompt_logprobs=1)
    assert _prepare([1] * 64, scored).requests[0].max_tokens == 0  # nothing is generated


def test_B103_request_that_the_cache_can_never_hold_names_both_numbers():
    info = replace(INFO, max_model_len=2048, capacity_tokens=624)
    error = _refusal([1] * 900, SamplingParams(max_tokens=16), info=info)
    assert error.headline == (
        "this request needs KV cache for 916 tokens, but only 624 tokens are available"
    )
    assert _refusal([1] * 620, SamplingParams(max_tokens=16), info=info).param == "max_tokens"
    # without a wish of its own a request gets what fits
    call = _prepare([1] * 600, SamplingParams(max_tokens=None), info=info)
    assert call.requests[0].max_tokens == 24


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stop_token_ids", [VOCAB_SIZE]), ("stop_token_ids", [VOCAB_SIZE + 22]),
        ("stop_token_ids", [3, -5]), ("allowed_token_ids", [-1]),
        ("allowed_token_ids", [VOCAB_SIZE]), ("logit_bias", {VOCAB_SIZE: 1.0}),
        ("logit_bias", {-1: 1.0}),
    ],
)  # fmt: skip
def test_B75_ids_outside_the_vocabulary_are_refused_by_name(field, value):
    error = _refusal("hi", SamplingParams(max_tokens=8, min_tokens=1, **{field: value}))
    assert error.param == field
    assert f"outside the vocabulary (0 to {VOCAB_SIZE - 1})" in str(error)


def test_B75_last_id_of_the_vocabulary_is_good_and_the_prompt_is_checked_too():
    _prepare("hi", SamplingParams(max_tokens=8, stop_token_ids=[0, VOCAB_SIZE - 1]))
    assert _refusal([1, VOCAB_SIZE]).param == "prompt"
    assert _refusal([1, -1]).param == "prompt"


@pytest.mark.parametrize("field", ["logprobs", "prompt_logprobs"])
def test_B154_more_logprobs_than_allowed_are_refused(field):
    for value in (21, 1_000_000, -1):
        error = _refusal("hi", SamplingParams(max_tokens=8, **{field: value}))
        assert error.param == field
        assert "at most 20 are allowed" in str(error)
    _prepare("hi", SamplingParams(max_tokens=8, **{field: 20}))
    unlimited = replace(INFO, max_logprobs=VOCAB_SIZE)
    for value in (-1, VOCAB_SIZE):
        _prepare("hi", SamplingParams(max_tokens=8, **{field: value}), info=unlimited)
    error = _refusal("hi", SamplingParams(**{field: VOCAB_SIZE + 1}), info=unlimited)
    assert error.param == field


def test_B154_more_choices_than_allowed_are_refused():
    with pytest.raises(ValueError, match="n must be between 1 and 128"):
        SamplingParams(n=100_000)


def test_prompts_of_a_call_share_their_parameters_which_are_checked_once(monkeypatch):
    preprocessor = Preprocessor(BytesTokenizer(), INFO)
    params = SamplingParams(n=2, max_tokens=4, stop=["x"], bad_words=["no"], prompt_logprobs=1)
    calls = [Call(request_id=r, prompt="hi", params=params, arrival_s=0.0) for r in "abc"]
    calls.append(replace(calls[0], request_id="d", params=replace(params, stop=["y"])))

    num_checks = []
    check = "octavo.frontend.preprocess.check_params"
    monkeypatch.setattr(check, lambda *_: num_checks.append(1))
    prepared = []
    for call in calls:
        checked = prepared[-1].checked if prepared else None
        prepared.append(preprocessor.prepare(call, checked))

    requests = [one for call in prepared[:3] for one in call.requests]
    assert len(num_checks) == 2
    assert len({id(one.bad_words_ids) for one in requests}) == 1
    assert len({id(one.params) for one in requests}) == 2
    assert [one.params.prompt_logprobs for one in requests] == [1, None] * 3
    assert prepared[3].params.stop == ["y"]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("stop_token_ids", [1, True], "stop_token_ids must be an integer, not True"),
        ("allowed_token_ids", [1, "2"], "allowed_token_ids must be an integer, not '2'"),
        ("logit_bias", {1: 0.5, 2.0: 1}, "logit_bias must be an integer, not 2.0"),
        ("logit_bias", {1: 0.5, 2: "1"}, "logit_bias must be a finite number, not '1'"),
        ("logit_bias", {1: 0.5, 2: False}, "logit_bias must be a finite number, not False"),
        ("logit_bias", {1: 0.5, 2: float("nan")}, "logit_bias must be a finite number, not nan"),
        ("logit_bias", {1: 0.5, 2: 100.5}, "logit_bias must be between -100 and 100, not 100.5"),
        ("logit_bias", {1: -101, 2: 0}, "logit_bias must be between -100 and 100, not -101"),
        ("temperature", 10**400, "temperature must be between 0 and 2, not 1" + 79 * "0"),
        ("top_k", 2**63, f"top_k must be a 64-bit integer, not {2**63}"),
        ("min_tokens", -(2**63) - 1, f"min_tokens must be a 64-bit integer, not -{2**63 + 1}"),
    ],
)
def test_one_bad_entry_of_a_list_is_found_and_named(field, value, message):
    with pytest.raises(RequestError) as caught:
        SamplingParams(**{field: value})
    assert (caught.value.headline, caught.value.param) == (message, field)


def test_a_number_that_python_does_not_write_out_is_refused():
    with pytest.raises(RequestError, match="max_tokens must be a 64-bit integer, not a number of"):
        SamplingParams(max_tokens=10**5000)


@pytest.mark.parametrize("priority", [2**63, -(2**63) - 1, "1", 1.5, True])
def test_priorities_that_no_message_could_hold_are_refused(priority):
    assert _refusal(priority=priority).param == "priority"


def test_B23_lone_surrogates_become_replacement_characters():
    params = SamplingParams(max_tokens=8, stop=["x\ud83d", "ok"], bad_words=["\udc00"])
    call = _prepare("abc \ud83d def", params)
    assert call.prompt == "abc \ufffd def"
    assert bytes(call.prompt_token_ids).decode() == "abc \ufffd def"
    assert call.params.stop == ["x\ufffd", "ok"]
    assert call.params.bad_words == ["\ufffd"]
    assert params.stop == ["x\ud83d", "ok"]  # the caller's object is his
    assert _prepare({"prompt": "\ud83d\ude00"}).prompt == "😀"  # a pair is a character


def test_B81_all_ends_of_tokenizer_and_generation_config_reach_the_engine():
    defaults = GenerationDefaults(eos_token_ids=(2, END_OF_TURN, VOCAB_SIZE + 5))
    assert _prepare(defaults=defaults).requests[0].eos_token_ids == (2, EOS, END_OF_TURN)
    ignoring = SamplingParams(max_tokens=8, ignore_eos=True)
    assert _prepare("hi", ignoring, defaults=defaults).requests[0].eos_token_ids == ()


def test_B144_max_new_tokens_of_the_model_is_a_default_and_no_ceiling():
    defaults = GenerationDefaults(max_new_tokens=8)

    def granted(max_tokens, prompt="hi", defaults=defaults):
        params = SamplingParams(max_tokens=max_tokens)
        return _prepare(prompt, params, defaults=defaults).requests[0].max_tokens

    assert (granted(20), granted(None), granted(4)) == (20, 8, 4)
    assert granted(None, defaults=GenerationDefaults()) == 62
    assert granted(None, prompt=[1] * 60) == 4  # the context is a ceiling


def test_B90_unseeded_requests_differ_and_leave_the_global_generators_alone():
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002 - the global generator is what this test is about
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    # two of them are a server before and after a restart
    preprocessors = [Preprocessor(BytesTokenizer(), INFO) for _ in range(2)]
    call = Call(request_id="r", prompt="hi", params=SamplingParams(), arrival_s=0)
    seeds = {one.prepare(call).requests[0].seed for one in preprocessors for _ in range(20)}
    assert len(seeds) == 40
    after = random.getstate(), np.random.get_state()  # noqa: NPY002
    assert before[0] == after[0]
    assert all(np.array_equal(a, b) for a, b in zip(before[1], after[1], strict=True))


def test_engine_seed_repeats_the_seeds_of_unseeded_requests():
    call = Call(request_id="r", prompt="hi", params=SamplingParams(), arrival_s=0)
    runs = []
    for _ in range(2):
        preprocessor = Preprocessor(BytesTokenizer(), INFO, seed=11)
        runs.append([preprocessor.prepare(call).requests[0].seed for _ in range(3)])
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 3


def test_truncation_keeps_the_end_of_the_prompt():
    params = SamplingParams(max_tokens=8, truncate_prompt_tokens=3)
    assert _prepare([1] * 97 + [2, 3, 4], params).prompt_token_ids == [2, 3, 4]
    params = SamplingParams(max_tokens=8, truncate_prompt_tokens=3, truncation_side="right")
    assert _prepare([2, 3, 4] + [1] * 97, params).prompt_token_ids == [2, 3, 4]


def test_bad_words_become_ids_with_and_without_a_space_before():
    params = SamplingParams(max_tokens=8, bad_words=["hello", " x"])
    tokenizer = BytesTokenizer()
    expected = [tokenizer.encode(text) for text in ("hello", " hello", "x", " x")]
    assert list(map(list, _prepare("hi", params).requests[0].bad_words_ids)) == expected


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"allowed_token_ids": [EOS], "min_tokens": 1}, "min_tokens"),
        ({"allowed_token_ids": [5, EOS], "stop_token_ids": [5], "min_tokens": 1}, "min_tokens"),
        ({"stop_token_ids": list(range(VOCAB_SIZE)), "min_tokens": 1}, "min_tokens"),
        ({"allowed_token_ids": [ord("a")], "bad_words": ["a"]}, "bad_words"),
    ],
)
def test_parameters_that_leave_no_token_are_refused(params, param):
    assert _refusal("hi", SamplingParams(max_tokens=8, **params)).param == param


@pytest.mark.parametrize(
    "params",
    [
        {"allowed_token_ids": [EOS]},
        {"allowed_token_ids": [EOS], "min_tokens": 1, "ignore_eos": True},
        {"allowed_token_ids": [5, EOS], "min_tokens": 1},
        {"allowed_token_ids": [ord("a")], "bad_words": ["aa"]},
    ],
)
def test_parameters_that_leave_one_token_are_taken(params):
    assert _prepare("hi", SamplingParams(max_tokens=8, **params)).requests


@pytest.mark.parametrize("params", ["greedy", {"temperature": 0}, 3])
def test_parameters_of_another_type_are_refused(params):
    refusal = _refusal("hi", params)
    assert refusal.param == "sampling_params"
    assert type(params).__name__ in str(refusal)


def test_an_adapter_goes_to_the_engine_with_its_absolute_path_and_scale(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (request,) = _prepare(lora_request=LoRARequest("sql", 1, "adapters/sql", 0.5)).requests
    spec = AdapterSpec("sql", str(tmp_path / "adapters/sql"))
    assert request.adapters == (AdapterUse(spec, 0.5),)
    assert _prepare(lora_request=None).requests[0].adapters == ()
    assert _prepare(lora_request=[]).requests[0].adapters == ()


def test_several_adapters_are_a_blend_of_each_choice():
    blend = [LoRARequest("a", 1, "/a", 2), LoRARequest("b", 2, "/b", -1)]
    prepared = _prepare("hi", SamplingParams(n=2), lora_request=blend)
    uses = (AdapterUse(AdapterSpec("a", "/a"), 2.0), AdapterUse(AdapterSpec("b", "/b"), -1.0))
    assert [request.adapters for request in prepared.requests] == [uses, uses]


@pytest.mark.parametrize(
    "lora_request",
    [
        "sql",
        3,
        ["sql"],
        [LoRARequest("a", 1, "/a"), None],
        [LoRARequest("a", 1, "/a"), LoRARequest("a", 2, "/b")],
    ],
)
def test_what_is_no_adapter_is_refused(lora_request):
    with pytest.raises(RequestError) as caught:
        _prepare(lora_request=lora_request)
    assert caught.value.param == "lora_request"


@pytest.mark.parametrize(
    "fields",
    [
        {"lora_name": ""},
        {"lora_name": 3},
        {"lora_path": ""},
        {"lora_path": None},
        {"lora_int_id": 0},
        {"lora_int_id": "1"},
        {"scale": math.nan},
        {"scale": math.inf},
        {"scale": "1"},
        {"scale": True},
    ],
)
def test_an_adapter_is_checked_when_it_is_named(fields):
    good = {"lora_name": "sql", "lora_int_id": 1, "lora_path": "/sql"}
    with pytest.raises(ValueError, match=next(iter(fields))):
        LoRARequest(**(good | fields))
