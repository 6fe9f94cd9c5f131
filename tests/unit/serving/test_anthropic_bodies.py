"""Anthropic's bodies: what becomes of their messages, tools and wishes."""

import pytest

from octavo.errors import RequestError
from octavo.frontend.turns import ToolChoice
from octavo.interfaces.parser import CallArguments, CallBegin, CallEnd, Content, Reasoning
from octavo_plugins.dialects.anthropic.blocks import BlockWriter, whole_blocks
from octavo_plugins.dialects.anthropic.bodies import CountBody, MessagesBody
from octavo_plugins.dialects.anthropic.history import is_prefilled, openai_messages
from octavo_plugins.dialects.anthropic.params import choice_of, conversation_of, thinking_budget
from octavo_plugins.dialects.shared.bodies import decode_body

TEXT = {"type": "text", "text": "T"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1"}
TOOL = {"name": "f", "description": "F", "input_schema": {"type": "object"}}


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


def body(**fields):
    return CountBody(**({"messages": [user("hi")]} | fields))


def fault_of(system, *messages):
    with pytest.raises(RequestError) as caught:
        openai_messages(system, messages)
    return caught.value


def test_B05_system_texts_go_to_the_front_and_users_turns_in_a_row_are_one():
    cached = [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}]
    history = [user("hi"), {"role": "system", "content": "note"}, user([TEXT])]

    assert openai_messages(cached, history) == [
        {"role": "system", "content": [{"type": "text", "text": text} for text in ("S", "note")]},
        user([{"type": "text", "text": "hi"}, TEXT]),
    ]


def test_B10_calls_and_their_results_are_those_of_openai():
    result = RESULT | {"content": [{"type": "text", "text": "ok"}]}
    history = [user("go"), assistant([CALL]), user([result, {"type": "text", "text": "next"}])]
    function = {"name": "f", "arguments": {"a": 1}}

    assert openai_messages(None, history) == [
        user("go"),
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "toolu_1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "toolu_1", "content": "ok"},
        user("next"),
    ]


@pytest.mark.parametrize(
    ("content", "told"), [(None, ""), ("plain", "plain"), ([TEXT, TEXT], [TEXT, TEXT])]
)
def test_results_of_tools_may_be_text_or_blocks_or_nothing(content, told):
    (message,) = openai_messages(None, [user([RESULT | {"content": content}])])

    assert message == {"role": "tool", "tool_call_id": "toolu_1", "content": told}


def test_thinking_in_history_stays_beside_the_text():
    thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
    hidden = {"type": "redacted_thinking", "data": "..."}

    (message,) = openai_messages(None, [assistant([thought, hidden, TEXT])])

    assert message["reasoning_content"] == message["reasoning"] == "hm"
    assert message["content"] == "T"


def test_a_document_that_is_text_is_text():
    source = {"type": "text", "media_type": "text/plain", "data": "D"}

    assert openai_messages(None, [user([{"type": "document", "source": source}])]) == [user("D")]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([{"type": "image", "source": {}}], "messages[0].content[0]: it is of type 'image'"),
        ([TEXT, {"text": "T"}], "messages[0].content[1]: it must be an object with a type"),
        (3, "messages[0].content: it must be a string or a list of blocks"),
        ([{"type": "text", "text": 3}], "messages[0].content[0]: its text must be a string"),
        ([{"type": "tool_result"}], "messages[0].content[0]: its tool_use_id must be a string"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_place(content, words):
    error = fault_of(None, user(content))

    assert words in str(error)
    assert error.param == "messages"


def test_a_wrong_role_and_a_wrong_system_are_refused():
    assert "messages[0]: its role must be one of" in str(fault_of(None, {"role": "tool"}))
    assert fault_of([{"type": "image"}], user("a")).param == "system"
    wrong_call = assistant([CALL | {"input": [1]}])
    assert "its input must be an object" in str(fault_of(None, wrong_call))


def test_a_last_text_of_the_model_is_continued_and_a_call_is_not():
    assert is_prefilled(openai_messages(None, [user("a"), assistant("b")]))
    assert not is_prefilled(openai_messages(None, [user("a"), assistant([CALL])]))
    assert not is_prefilled(openai_messages(None, [user("a")]))


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        (None, ToolChoice("auto")),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice("auto", "", False)),
        ({"type": "any"}, ToolChoice("required")),
        ({"type": "none"}, ToolChoice("none")),
        ({"type": "tool", "name": "f"}, ToolChoice("named", "f")),
    ],
)
def test_the_choice_of_tools(given, choice):
    assert choice_of(body(tools=[TOOL], tool_choice=given)) == choice


@pytest.mark.parametrize("given", [{}, {"type": "tool"}, {"type": "atuo"}])
def test_a_choice_that_is_none_is_refused(given):
    with pytest.raises(RequestError) as caught:
        choice_of(body(tools=[TOOL], tool_choice=given))
    assert caught.value.param == "tool_choice"


@pytest.mark.parametrize("tool", [{"type": "bash_20250124", "name": "bash"}, {"name": "f"}])
def test_tools_without_a_schema_of_their_own_are_refused(tool):
    with pytest.raises(RequestError) as caught:
        conversation_of(body(tools=[tool]))
    assert caught.value.param == "tools"


def test_thinking_is_told_to_the_template_and_has_a_budget():
    asked = body(thinking={"type": "enabled", "budget_tokens": 1024})

    assert thinking_budget(asked) == 1024
    assert conversation_of(asked).template_kwargs["enable_thinking"] is True
    off = conversation_of(body(thinking={"type": "disabled"})).template_kwargs
    assert off["enable_thinking"] is False
    assert conversation_of(body(thinking={"type": "adaptive"})).template_kwargs == {}


@pytest.mark.parametrize(
    "thinking", [{}, {"type": "on"}, {"type": "enabled"}, {"type": "enabled", "budget_tokens": 0}]
)
def test_a_wrong_thinking_is_refused(thinking):
    with pytest.raises(RequestError) as caught:
        thinking_budget(body(thinking=thinking))
    assert caught.value.param == "thinking"


def test_max_tokens_is_needed_and_named():
    with pytest.raises(RequestError) as caught:
        decode_body(b'{"messages":[]}', MessagesBody, is_strict=False)
    assert caught.value.param == "max_tokens"


# ---------------------------------------------------------------------- blocks

EVENTS = [
    Reasoning("h"), Reasoning("m"), Content("o"), Content("k"),
    CallBegin(0, "f"), CallArguments(0, '{"a":'), CallArguments(0, " 1}"), CallEnd(0),
    CallBegin(1, "g"), CallArguments(1, "{}"), CallEnd(1),
]  # fmt: skip


def streamed(events):
    """Return the blocks that a client builds of the events, checking their order."""
    writer = BlockWriter()
    written = [*(one for event in events for one in writer.write([event])), *writer.end()]
    blocks, is_open = [], False
    for one in written:
        match one["type"]:
            case "content_block_start":
                assert not is_open
                assert one["index"] == len(blocks)
                blocks.append(dict(one["content_block"]) | {"json": ""})
                is_open = True
            case "content_block_stop":
                assert is_open
                is_open = False
            case "content_block_delta":
                assert is_open
                assert one["index"] == len(blocks) - 1
                delta = dict(one["delta"])
                names = {"text_delta": "text", "thinking_delta": "thinking"}
                names |= {"signature_delta": "signature", "input_json_delta": "json"}
                name = names[delta.pop("type")]
                blocks[-1][name] += next(iter(delta.values()))
    assert not is_open
    return blocks


@pytest.mark.parametrize("events", [EVENTS, EVENTS[2:4], EVENTS[4:8], EVENTS[4:], []])
def test_B07_streamed_blocks_are_the_whole_ones(events):
    whole = whole_blocks(events)
    blocks = streamed(events)

    assert [one["type"] for one in blocks] == [one["type"] for one in whole]
    for mine, one in zip(blocks, whole, strict=True):
        json_text = mine.pop("json")
        if one["type"] == "tool_use":
            assert json_text in ('{"a": 1}', "{}")
            assert one["id"].startswith("toolu_")
            assert (mine["name"], mine["input"]) == (one["name"], {})
        else:
            assert mine == one


def test_B55_a_call_that_was_cut_is_no_call_of_the_whole_answer():
    cut = EVENTS[2:6]

    assert whole_blocks(cut) == [{"type": "text", "text": "ok"}]
    assert streamed(cut)[-1]["json"] == '{"a":'
