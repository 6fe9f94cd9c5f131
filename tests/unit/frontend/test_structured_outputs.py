"""`StructuredOutputsParams`: what may be asked for, and the grammar that is made of it."""

from __future__ import annotations

import json

import pytest

from octavo import SamplingParams, StructuredOutputsParams
from octavo.engine.messages import EngineInfo
from octavo.errors import RequestError
from octavo.frontend.preprocess import Call, Preprocessor
from octavo.interfaces.grammar import GrammarSpec
from scripted import EOS, VOCAB_SIZE, BytesTokenizer

SCHEMA = {"type": "object", "properties": {"b": {}, "a": {"type": "integer"}}}


def prepared(**params):
    info = EngineInfo(VOCAB_SIZE, max_model_len=100, capacity_tokens=100)
    preprocessor = Preprocessor(BytesTokenizer(), info)
    call = Call(request_id="r", prompt="a", params=SamplingParams(**params), arrival_s=0.0)
    return preprocessor.prepare(call).requests


@pytest.mark.parametrize(
    ("form", "spec"),
    [
        ({"json": SCHEMA}, ("json_schema", json.dumps(SCHEMA), None)),
        ({"json": json.dumps(SCHEMA, indent=3)}, ("json_schema", json.dumps(SCHEMA), None)),
        (
            {"json": SCHEMA, "whitespace_pattern": " ?"},
            ("json_schema", json.dumps(SCHEMA), " ?"),
        ),
        ({"json_object": True, "disable_any_whitespace": True}, ("json_object", "", "")),
        ({"regex": "é+"}, ("regex", "é+", None)),
        ({"choice": ["é", 'a"b']}, ("choice", '["é", "a\\"b"]', None)),
        ({"grammar": 'start: "a"'}, ("lark", 'start: "a"', None)),
        ({"grammar": 'root ::= "a"'}, ("gbnf", 'root ::= "a"', None)),
        ({"grammar": 'start: "a" // x ::= y'}, ("lark", 'start: "a" // x ::= y', None)),
    ],
)
def test_a_form_becomes_a_grammar_of_each_choice(form, spec):
    requests = prepared(n=2, structured_outputs=StructuredOutputsParams(**form))

    assert [request.grammar for request in requests] == [GrammarSpec(*spec)] * 2


def test_without_a_form_there_is_no_grammar():
    assert prepared()[0].grammar is None


def test_lone_surrogates_are_replaced_before_they_reach_the_engine():
    form = StructuredOutputsParams(choice=["a\ud83d"])

    assert prepared(structured_outputs=form)[0].grammar.text == '["a\ufffd"]'


def test_a_form_keeps_the_ends_of_texts_also_with_ignore_eos():
    form = StructuredOutputsParams(regex="a")

    assert prepared(ignore_eos=True)[0].eos_token_ids == ()
    assert prepared(ignore_eos=True, structured_outputs=form)[0].eos_token_ids == (EOS,)


def test_a_model_without_an_end_cannot_give_texts_a_form():
    class Endless(BytesTokenizer):
        @property
        def eos_token_ids(self):
            return frozenset()

    info = EngineInfo(VOCAB_SIZE, max_model_len=100, capacity_tokens=100)
    params = SamplingParams(structured_outputs=StructuredOutputsParams(regex="a"))
    call = Call(request_id="r", prompt="a", params=params, arrival_s=0.0)
    with pytest.raises(RequestError, match="no token that ends a text"):
        Preprocessor(Endless(), info).prepare(call)


def test_additional_properties_are_closed_where_a_schema_lists_its_own():
    schema = {
        "properties": {
            "properties": {"properties": {"x": True}},
            "open": {"properties": {}, "additionalProperties": True},
            "other": {"items": [{"properties": {}}], "enum": [{"properties": 1}]},
        },
        "$defs": {"properties": {"type": "string"}},
    }
    form = StructuredOutputsParams(json=schema, disable_additional_properties=True)
    closed = json.loads(form.to_grammar().text)

    assert closed == {
        "properties": {
            "properties": {"properties": {"x": True}, "additionalProperties": False},
            "open": {"properties": {}, "additionalProperties": True},
            "other": {
                "items": [{"properties": {}, "additionalProperties": False}],
                "enum": [{"properties": 1}],
            },
        },
        "$defs": {"properties": {"type": "string"}},
        "additionalProperties": False,
    }
    assert StructuredOutputsParams(json=schema).to_grammar().text == json.dumps(schema)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "grammar, json_object, structural_tag must be given"),
        ({"json": SCHEMA, "regex": "a"}, "not json and regex"),
        ({"json": [1]}, "json must be a JSON schema"),
        ({"json": "[1]"}, "must be an object, not [1]"),
        ({"json": "not json"}, "not valid JSON"),
        ({"json": {"const": float("nan")}}, "not valid JSON"),
        ({"json": {"const": object()}}, "not valid JSON"),
        ({"regex": ""}, "regex must be a text, and not empty"),
        ({"regex": 3}, "regex must be a text"),
        ({"choice": []}, "a list of texts, and not empty"),
        ({"choice": ["a", 1]}, "a list of texts"),
        ({"grammar": ["a"]}, "grammar must be a text"),
        ({"json_object": 1}, "json_object must be true or false"),
        ({"json_object": True, "disable_any_whitespace": 1}, "must be true or false"),
        ({"json_object": True, "whitespace_pattern": ""}, "not empty"),
        ({"regex": "a", "disable_any_whitespace": True}, "whitespace can be chosen for JSON"),
        ({"structural_tag": "{}"}, "structures must be a list"),
    ],
)
def test_what_can_be_no_form_is_refused(fields, message):
    with pytest.raises(RequestError) as caught:
        StructuredOutputsParams(**fields)

    assert caught.value.param == "structured_outputs"
    assert message in str(caught.value)


def test_a_schema_that_is_nested_beyond_all_bounds_is_refused():
    schema = {}
    for _ in range(100_000):
        schema = {"items": schema}

    with pytest.raises(RequestError, match="nested too deeply"):
        StructuredOutputsParams(json=schema)
    with pytest.raises(RequestError, match="nested too deeply"):
        StructuredOutputsParams(json='{"items":' * 100_000 + "{}" + "}" * 100_000)


def test_one_that_is_nested_too_deeply_to_be_closed_is_refused():
    schema = {}
    for _ in range(400):  # JSON counts two levels for each, closing takes three calls
        schema = {"anyOf": [schema]}
    params = StructuredOutputsParams(json=schema, disable_additional_properties=True)

    with pytest.raises(RequestError, match="nested too deeply"):
        params.to_grammar()


def test_a_dict_in_its_place_is_refused():
    with pytest.raises(RequestError, match="must be a StructuredOutputsParams"):
        SamplingParams(structured_outputs={"regex": "a"})
