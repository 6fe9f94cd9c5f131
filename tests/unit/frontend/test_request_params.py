"""Parameters that components declare, as the front end checks them."""

from __future__ import annotations

import math

import pytest

from octavo.engine.messages import EngineInfo
from octavo.errors import RequestError
from octavo.frontend.preprocess import Call, Preprocessor
from octavo.frontend.request_params import DeclaredParams
from octavo.plugin.options import RequestParams
from octavo.sampling_params import SamplingParams
from octavo_plugins.samplers.parameters import (
    DryParams,
    DynamicTemperatureParams,
    MirostatParams,
    TypicalPParams,
    XtcParams,
)
from scripted import VOCAB_SIZE, BytesTokenizer

MODELS = (DryParams, DynamicTemperatureParams, MirostatParams, TypicalPParams, XtcParams)
DECLARED = DeclaredParams({name: model for model in MODELS for name in model.model_fields})
INFO = EngineInfo(VOCAB_SIZE, max_model_len=64, capacity_tokens=4096)


def prepare(extra_args, declared=DECLARED, **params):
    preprocessor = Preprocessor(BytesTokenizer(), INFO, declared=declared, seed=7)
    given = SamplingParams(extra_args=extra_args, max_tokens=4, **params)
    call = preprocessor.prepare(Call(request_id="r", prompt="hi", params=given, arrival_s=0.0))
    return [request.params.extra_args for request in call.requests]


def refusal(extra_args, **others):
    with pytest.raises(RequestError) as caught:
        prepare(extra_args, **others)
    return caught.value


@pytest.mark.parametrize("nothing", [None, {}])
def test_a_request_without_them_is_left_as_it_is(nothing):
    assert prepare(nothing) == [nothing]


def test_what_is_given_reaches_every_choice_and_nothing_else_does():
    given = {"typical_p": 0.5, "xtc_probability": 1}
    assert prepare(given, n=2) == [given, given]


def test_the_callers_own_parameters_are_not_changed():
    given = {"dry_multiplier": 0.8, "typical_p": None}
    prepare(given)
    assert given == {"dry_multiplier": 0.8, "typical_p": None}


def test_none_is_not_given():
    assert prepare({"typical_p": None, "xtc_threshold": 0.2}) == [{"xtc_threshold": 0.2}]


def test_an_unknown_name_is_refused_with_the_nearest():
    error = refusal({"typicalp": 0.5})

    assert error.param == "typicalp"
    assert str(error) == (
        "no component in use declares a parameter 'typicalp'\n"
        "  did you mean 'typical_p'?\n"
        "  declared: dry_allowed_length, dry_base, dry_multiplier, dry_penalty_last_n, "
        "dry_sequence_breakers, dynatemp_exponent, dynatemp_range, mirostat, mirostat_eta, "
        "mirostat_tau, typical_p, xtc_probability, xtc_threshold\n"
        "  a plugin declares those that its component reads: Component(params=...)"
    )


def test_where_nothing_is_declared_nothing_is_taken():
    error = refusal({"typical_p": 0.5}, declared=None)

    assert str(error) == (
        "no component in use declares a parameter 'typical_p'\n"
        "  declared: none\n"
        "  a plugin declares those that its component reads: Component(params=...)"
    )


def test_a_bad_value_is_refused_with_the_rule():
    error = refusal({"typical_p": 1.5})

    assert error.param == "typical_p"
    assert str(error) == "typical_p: input should be less than or equal to 1, got 1.5"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("typical_p", 0), ("typical_p", "0.5"), ("typical_p", True), ("typical_p", math.nan),
        ("typical_p", [0.5]), ("xtc_probability", -0.1), ("xtc_threshold", 1.1),
        ("mirostat", 3), ("mirostat", 1.0), ("mirostat", True), ("mirostat_tau", math.inf),
        ("mirostat_eta", -1), ("dynatemp_range", -0.5), ("dry_multiplier", -1),
        ("dry_base", 0.9), ("dry_allowed_length", 1.5), ("dry_allowed_length", 2**31),
        ("dry_penalty_last_n", -2), ("dry_sequence_breakers", [1]),
        ("dry_sequence_breakers", [""]), ("dry_sequence_breakers", ["x" * 41]),
        ("dry_sequence_breakers", ["x"] * 65), ("dry_sequence_breakers", "no JSON"),
        ("dry_sequence_breakers", {"a": 1}), ("dry_sequence_breakers", {}),
        ("dry_sequence_breakers", 0), ("dry_sequence_breakers", False),
    ],
)  # fmt: skip
def test_bad_values_name_their_field(name, value):
    error = refusal({name: value})

    assert error.param == name
    assert error.headline.startswith(name)


@pytest.mark.parametrize("given", [[("typical_p", 0.5)], "typical_p"])
def test_extra_args_are_a_dict(given):
    assert refusal(given).param == "extra_args"


def test_a_name_that_is_no_text_is_refused():
    assert refusal({3: 1}).param == "3"


def test_a_model_may_refuse_values_that_do_not_go_together():
    class Pair(RequestParams):
        low: int = 0
        high: int = 0

        def model_post_init(self, _context):
            if self.low > self.high:
                raise ValueError("low must not be above high")

    error = refusal({"low": 3}, declared=DeclaredParams({"low": Pair, "high": Pair}))

    assert error.param == "low"
    assert "low must not be above high" in str(error)


def test_a_model_reads_back_what_was_given_with_its_defaults():
    (extra_args,) = prepare({"dry_multiplier": 0.8, "dry_base": 2})
    read = DryParams.read(SamplingParams(extra_args=extra_args))

    assert (read.dry_multiplier, read.dry_base, read.dry_allowed_length) == (0.8, 2, 2)
    assert read.dry_sequence_breakers == ["\n", ":", '"', "*"]
    assert read.is_on
    assert not DryParams.read(SamplingParams()).is_on


@pytest.mark.parametrize(
    "text",
    ["\n", " ", "x", "no JSON", ":", '"', '["a"', '{"a": 1}', "1, 2", '["a", 1]', "null",
     "[" * 5000],
)  # fmt: skip
def test_a_text_that_lists_no_breakers_is_refused_and_not_read_as_none(text):
    error = refusal({"dry_multiplier": 1.0, "dry_sequence_breakers": text})

    assert error.param == "dry_sequence_breakers"
    assert error.headline.startswith("dry_sequence_breakers: must be a list of texts, or such a")


@pytest.mark.parametrize("nothing", ["", "[]", " [] ", []])
def test_no_breakers_may_be_asked_for(nothing):
    (args,) = prepare({"dry_multiplier": 1.0, "dry_sequence_breakers": nothing})
    assert args["dry_sequence_breakers"] == []


@pytest.mark.parametrize("breakers", ['"\\n", ":"', '["\\n", ":"]', ["\n", ":"]])
def test_breakers_come_as_a_list_or_as_the_text_that_other_programs_send(breakers):
    (args,) = prepare({"dry_multiplier": 1.0, "dry_sequence_breakers": breakers})

    assert args["dry_sequence_breakers"] == ["\n", ":"]
    assert args["dry_breakers"] == [[[ord("\n"), ord(":")], []]]


def test_breakers_are_looked_up_for_requests_with_dry_alone():
    assert "dry_breakers" in prepare({"dry_multiplier": 0.1})[0]
    assert "dry_breakers" not in prepare({"dry_base": 2.0})[0]
    assert "dry_breakers" not in prepare({"dry_multiplier": 1.0, "dry_penalty_last_n": 0})[0]


def test_a_client_cannot_send_what_is_looked_up():
    assert refusal({"dry_multiplier": 1.0, "dry_breakers": []}).param == "dry_breakers"
