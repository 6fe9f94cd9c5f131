"""What asks for a form in another API is refused, never ignored: no route answers without it."""

import json

import pytest

from octavo.errors import RequestError
from octavo_plugins.dialects.anthropic.bodies import CountBody, MessagesBody
from octavo_plugins.dialects.openai.bodies import ChatBody, CompletionBody
from octavo_plugins.dialects.openai.responses.bodies import ResponsesBody
from octavo_plugins.dialects.shared.bodies import decode_body

LEAST = {
    ChatBody: {"messages": []},
    CompletionBody: {"prompt": "a"},
    ResponsesBody: {"input": "a"},
    MessagesBody: {"messages": [], "max_tokens": 5},
    CountBody: {"messages": []},
}
SCHEMA = {"type": "object"}
FORMS = {
    "response_format": {"type": "json_object"},
    "structured_outputs": {"choice": ["a", "b"]},
    "guided_json": SCHEMA,
    "guided_regex": "a+",
    "guided_choice": ["a", "b"],
    "guided_grammar": "root ::= 'a'",
    "guided_json_object": True,
    "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}},
    "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    "output_format": {"type": "json_schema", "schema": SCHEMA},
}
INSTEAD = {
    ChatBody: "response_format",
    CompletionBody: "response_format",
    ResponsesBody: "text.format",
    MessagesBody: "output_config.format",
    CountBody: "output_config.format",
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("shape", LEAST)
def test_a_form_is_obeyed_or_refused_with_what_to_use_instead(shape, name):
    raw = json.dumps(LEAST[shape] | {name: FORMS[name]}).encode()
    if name in shape.__struct_fields__:
        assert decode_body(raw, shape, is_strict=True).ignored == []
        return
    with pytest.raises(RequestError) as caught:
        decode_body(raw, shape, is_strict=False)

    assert caught.value.param == name
    assert caught.value.facts == (f"{INSTEAD[shape]} says what form the text is to have",)


@pytest.mark.parametrize("shape", [ResponsesBody, MessagesBody])
def test_a_form_that_asks_for_nothing_is_taken(shape):
    given = {"response_format": {"type": "text"}, "guided_json": None, "guided_json_object": False}
    raw = json.dumps(LEAST[shape] | given).encode()

    assert decode_body(raw, shape, is_strict=True).ignored == []
