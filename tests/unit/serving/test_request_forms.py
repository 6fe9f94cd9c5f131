"""What a body of OpenAI's API asks of its answer's form, and how it is refused."""

from __future__ import annotations

import json

import pytest

from octavo.errors import RequestError
from octavo.sampling_params import SamplingParams
from octavo.structured_outputs import StructuredOutputsParams
from octavo_plugins.dialects.openai.bodies import ChatBody, CompletionBody
from octavo_plugins.dialects.openai.params import chat_params, completion_params
from octavo_plugins.dialects.shared.bodies import decode_body

SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}


def chat_form(**fields):
    raw = json.dumps({"messages": [], **fields}).encode()
    return chat_params(decode_body(raw, ChatBody, is_strict=True).body, SamplingParams())


def completion_form(**fields):
    raw = json.dumps({"prompt": "a", **fields}).encode()
    body = decode_body(raw, CompletionBody, is_strict=True).body
    return completion_params(body, SamplingParams())


TAGS = {
    "type": "structural_tag",
    "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}],
    "triggers": ["<f"],
}


def named(schema, **fields):
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, **fields}}


@pytest.mark.parametrize("params_of", [chat_form, completion_form])
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"response_format": None}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, {"json_object": True}),
        ({"response_format": named(SCHEMA)}, {"json": SCHEMA}),
        ({"response_format": named(SCHEMA, strict=True, description="d")}, {"json": SCHEMA}),
        ({"response_format": named(SCHEMA, strict=None)}, {"json": SCHEMA}),
        ({"response_format": TAGS}, {"structural_tag": TAGS}),
        ({"response_format": {"type": "regex", "regex": "a+"}}, {"regex": "a+"}),
        (
            {"response_format": {"type": "grammar", "grammar": "root ::= [a]"}},
            {"grammar": "root ::= [a]"},
        ),
        ({"structured_outputs": {"structural_tag": TAGS}}, {"structural_tag": TAGS}),
        ({"structured_outputs": {"choice": ["a", "b"]}}, {"choice": ["a", "b"]}),
        ({"structured_outputs": {"regex": "a+", "json": None}}, {"regex": "a+"}),
        (
            {"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}},
            {"json": SCHEMA, "disable_any_whitespace": True},
        ),
        ({"guided_json": SCHEMA}, {"json": SCHEMA}),
        ({"guided_json": json.dumps(SCHEMA)}, {"json": json.dumps(SCHEMA)}),
        ({"guided_regex": "a+", "guided_decoding_backend": "auto"}, {"regex": "a+"}),
        ({"guided_choice": ["up", "down"]}, {"choice": ["up", "down"]}),
        ({"guided_grammar": 'start: "a"'}, {"grammar": 'start: "a"'}),
        ({"guided_json_object": True}, {"json_object": True}),
        (
            {"guided_json": SCHEMA, "guided_whitespace_pattern": " ?"},
            {"json": SCHEMA, "whitespace_pattern": " ?"},
        ),
    ],
)
def test_B03_a_form_is_asked_for_by_any_of_its_names(params_of, fields, expected):
    form = params_of(**fields).structured_outputs

    assert form == (None if expected is None else StructuredOutputsParams(**expected))


def test_the_order_of_properties_is_the_callers():
    form = chat_form(response_format=named(SCHEMA)).structured_outputs

    assert list(json.loads(form.to_grammar().text)["properties"]) == ["b", "a"]


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"response_format": {}}, "response_format", "type must be one of text, json_object"),
        ({"response_format": {"type": "json_shema"}}, "response_format", "did you mean 'json_s"),
        ({"response_format": {"type": "structural_tag"}}, "response_format", "structures must be"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "must be an object"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format",
            "json_schema.schema is missing",
        ),
        (
            {"response_format": {"type": "json_object", "schema": SCHEMA}},
            "response_format",
            "unknown field 'schema'",
        ),
        ({"response_format": named(SCHEMA, strikt=True)}, "response_format", "'strict'"),
        ({"response_format": named(SCHEMA, strict="yes")}, "response_format", "true or false"),
        ({"response_format": named("text")}, "response_format", "schema must be an object"),
        ({"response_format": named([1])}, "response_format", "schema must be an object"),
        ({"response_format": "json"}, "response_format", "Expected `object"),
        ({"structured_outputs": {}}, "structured_outputs", "exactly one of"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs",
         "not regex and choice"),
        ({"structured_outputs": {"regexp": "a"}}, "structured_outputs", "did you mean 'regex'"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs", "not empty"),
        ({"structured_outputs": {"choice": "ab"}}, "structured_outputs", "a list of texts"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs", "not valid JSON"),
        ({"structured_outputs": {"json": 3}}, "structured_outputs", "a JSON schema"),
        ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs", "structures must"),
        ({"response_format": {"type": "regex"}}, "response_format", "regex is missing"),
        ({"response_format": {"type": "grammar", "grammar": ""}}, "response_format", "not empty"),
        ({"response_format": {"type": "regex", "grammar": "a"}}, "response_format", "'grammar'"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs", "exactly one of"),
        ({"structured_outputs": {"regex": "a", "whitespace_pattern": " "}}, "structured_outputs",
         "whitespace can be chosen for JSON"),
        ({"guided_choice": "up"}, "guided_choice", "Expected `array"),
        ({"guided_choice": []}, "guided_choice", "not empty"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_regex", "exactly one of"),
        ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern", "exactly one of"),
        ({"guided_decoding_backend": "outlines"}, "guided_decoding_backend", "not supported"),
        ({"structural_tag": "{}"}, "structural_tag", "not supported"),
        (
            {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
            "structured_outputs",
            "response_format and structured_outputs cannot be given together",
        ),
        (
            {"structured_outputs": {"regex": "a"}, "guided_regex": "b"},
            "guided_regex",
            "structured_outputs and guided_regex cannot be given together",
        ),
    ],
)  # fmt: skip
def test_a_wrong_form_is_refused_under_the_name_it_was_given(fields, param, message):
    with pytest.raises(RequestError) as caught:
        chat_form(**fields)

    assert caught.value.param == param
    assert message in str(caught.value)
    assert str(caught.value).startswith(param) or "together" in message
