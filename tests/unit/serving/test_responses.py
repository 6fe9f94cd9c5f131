"""Items of OpenAI's responses: as input, as they grow, and kept."""

import pytest

from octavo.errors import RequestError, RequestNotFoundError
from octavo.frontend.turns import ToolChoice
from octavo.interfaces.parser import CallArguments, CallBegin, CallEnd, Content, Reasoning
from octavo.sampling_params import SamplingParams
from octavo_plugins.dialects.openai.responses.bodies import ResponsesBody
from octavo_plugins.dialects.openai.responses.history import items_of, messages_of
from octavo_plugins.dialects.openai.responses.items import ItemWriter
from octavo_plugins.dialects.openai.responses.params import asked_of, unheeded
from octavo_plugins.dialects.openai.responses.store import Record, ResponseStore

CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "ok"}
TOOL = {"type": "function", "name": "f", "description": "F", "parameters": {"type": "object"}}


OBJECT = {"format": {"type": "json_object"}}


def said(role, content):
    return {"role": role, "content": content}


def asked(**fields):
    body = ResponsesBody(**({"input": "hi"} | fields))
    return asked_of(body, items_of(body.input), SamplingParams())


def test_items_of_the_model_in_a_row_are_one_message():
    thought = {"type": "reasoning", "summary": [], "content": [{"text": "hm"}]}
    items = [said("user", "go"), thought, said("assistant", "ok"), CALL, RESULT, said("user", "on")]
    function = {"name": "f", "arguments": '{"a": 1}'}

    assert messages_of(None, items) == [
        said("user", "go"),
        {
            "role": "assistant",
            "reasoning": "hm",
            "reasoning_content": "hm",
            "content": "ok",
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "ok"},
        said("user", "on"),
    ]


def test_a_call_alone_has_no_text_and_two_answers_are_two_messages():
    call, *texts = messages_of(None, [CALL, said("assistant", "a"), said("assistant", "b")])

    assert call["content"] is None
    assert len(call["tool_calls"]) == 1
    assert texts == [said("assistant", "a"), said("assistant", "b")]


def test_instructions_and_system_texts_go_to_the_front():
    parts = [{"type": "input_text", "text": "P"}]
    items = [said("user", "u"), said("developer", "D"), said("system", parts)]

    assert messages_of("I", items) == [
        said("system", [{"type": "text", "text": "I"}, {"type": "text", "text": "D"}, *parts]),
        said("user", "u"),
    ]
    assert messages_of("I", [said("user", "u")])[0] == said("system", "I")


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("text", "input[0]: it must be an object"),
        ({"type": "computer_call"}, "input[0]: items of type 'computer_call' are not read here"),
        (said("tool", "a"), "input[0]: its role must be one of"),
        (said("user", None), "input[0]: its content must be"),
        (CALL | {"arguments": {}}, "input[0]: its call_id, name and arguments must be strings"),
        (RESULT | {"output": 3}, "input[0]: its call_id must be a string"),
        ({"type": "reasoning", "content": "x"}, "input[0]: its content and its summary"),
    ],
)
def test_items_that_cannot_be_read_are_refused_by_their_place(item, words):
    with pytest.raises(RequestError) as caught:
        messages_of(None, [item])
    assert words in str(caught.value)
    assert caught.value.param == "input"


def test_tools_their_choice_and_the_form():
    named = asked(tools=[TOOL], tool_choice={"type": "function", "name": "f"})
    assert named.choice == ToolChoice("named", "f")
    function = {name: TOOL[name] for name in ("name", "description", "parameters")}
    assert named.conversation.tools == [{"type": "function", "function": function}]
    schema = {"type": "object"}
    text = {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}
    assert asked(text=text).params.structured_outputs.json == schema
    assert asked(text={"format": {"type": "text"}}).params.structured_outputs is None
    assert asked(max_output_tokens=7, top_k=3).params.max_tokens == 7
    assert asked(reasoning={"effort": "low"}).conversation.template_kwargs == {
        "reasoning_effort": "low"
    }


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text"),
        ({"text": {"format": "json"}}, "text"),
        ({"tools": [TOOL], "tool_choice": "required", "text": OBJECT}, "text"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_refused_by_its_field(fields, param):
    with pytest.raises(RequestError) as caught:
        asked(**fields)
    assert caught.value.param == param


def test_parts_of_fields_that_change_nothing_are_named():
    body = ResponsesBody(
        input="a", text={"verbosity": "low"}, reasoning={"effort": "low", "summary": "auto"}
    )

    assert unheeded(body) == ["text.verbosity", "reasoning.summary"]


EVENTS = [
    Reasoning("h"), Reasoning("m"), Content("o"), Content("k"),
    CallBegin(0, "f"), CallArguments(0, '{"a":'), CallArguments(0, " 1}"), CallEnd(0),
    CallBegin(1, "g"), CallArguments(1, "{}"), CallEnd(1),
]  # fmt: skip


@pytest.mark.parametrize("events", [EVENTS, EVENTS[2:4], EVENTS[4:8], []])
def test_events_build_the_items(events):
    writer = ItemWriter()
    told = [*(one for event in events for one in writer.write([event])), *writer.end()]

    items, texts = [], []
    for one in told:
        assert one["output_index"] == len(items) - (one["type"] != "response.output_item.added")
        match one["type"].removeprefix("response."):
            case "output_item.added":
                assert one["item"]["status"] == "in_progress"
                items.append(one["item"])
                texts = []
            case "output_text.delta" | "reasoning_text.delta" | "function_call_arguments.delta":
                assert one["item_id"] == items[-1]["id"]
                texts.append(one["delta"])
            case "output_text.done" | "reasoning_text.done":
                assert one["text"] == "".join(texts)
            case "function_call_arguments.done":
                assert one["arguments"] == "".join(texts)
            case "output_item.done":
                items[-1] = one["item"]
    assert items == writer.items
    assert all(item["status"] == "completed" for item in items)
    assert len(items) == len({item["id"] for item in items})


def test_B55_a_call_that_was_cut_stays_as_it_is():
    writer = ItemWriter()
    list(writer.write(EVENTS[4:6]))
    list(writer.end("incomplete"))

    (item,) = writer.items
    assert (item["arguments"], item["status"]) == ('{"a":', "incomplete")


def record(name, text="t"):
    message = {"type": "message", "role": "assistant", "content": text}
    return Record({"id": name, "output": [message]}, items_of("hi"))


def test_the_oldest_responses_go_first():
    store = ResponseStore(max_responses=2)
    for name in "abc":
        store.put(record(name))

    with pytest.raises(RequestNotFoundError) as caught:
        store.find("a", "previous_response_id")
    assert caught.value.param == "previous_response_id"
    assert [item["role"] for item in store.find("b").items] == ["user", "assistant"]


def test_responses_are_kept_within_so_many_bytes():
    store = ResponseStore(max_bytes=1000)
    store.put(record("a", "x" * 400))
    store.put(record("b", "x" * 400))
    assert (store.has("a"), store.has("b")) == (False, True)
    store.put(record("c", "x" * 2000))
    assert len(store) == 0
    store.put(record("d"))
    store.delete("d")
    assert not store.has("d")
