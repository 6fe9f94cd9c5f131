"""Fields within fields that nobody reads: each is told by its path, and refused where strict."""

from types import SimpleNamespace

import msgspec
import pytest

from octavo.errors import RequestError
from octavo_plugins.dialects.anthropic.bodies import MessagesBody
from octavo_plugins.dialects.anthropic.history import openai_messages
from octavo_plugins.dialects.anthropic.parts import PARTS as ANTHROPIC
from octavo_plugins.dialects.openai.bodies import ChatBody, CompletionBody
from octavo_plugins.dialects.openai.responses.bodies import ResponsesBody
from octavo_plugins.dialects.openai.responses.parts import PARTS as RESPONSES
from octavo_plugins.dialects.shared.bodies import decode_body
from octavo_plugins.dialects.shared.chat_parts import CHOICE, MESSAGES, TOOLS
from octavo_plugins.dialects.shared.exchange import report_unknown
from octavo_plugins.dialects.shared.parts import unread_parts

CHAT = {**MESSAGES, **TOOLS, **CHOICE}
FUNCTION = {"name": "f", "parameters": {"type": "object", "foo": 1}}


def chat(**fields):
    return ChatBody(**{"messages": [], **fields})


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"messages": [{"role": "user", "content": "a", "foo": 1}]}, "messages[].foo"),
        (
            {"messages": [{"content": [{"type": "text", "text": "a", "foo": 1}]}]},
            "messages[].content[].foo",
        ),
        (
            {"messages": [{"tool_calls": [{"function": {"name": "f", "foo": 1}}]}]},
            "messages[].tool_calls[].function.foo",
        ),
        ({"tools": [{"function": FUNCTION, "foo": 1}]}, "tools[].foo"),
        ({"tools": [{"function": FUNCTION | {"strictt": True}}]}, "tools[].function.strictt"),
        ({"tool_choice": {"type": "function", "foo": 1}}, "tool_choice.foo"),
        ({"tool_choice": {"function": {"name": "f", "foo": 1}}}, "tool_choice.function.foo"),
    ],
)
def test_what_nobody_reads_in_a_chat_has_a_path(fields, path):
    assert unread_parts(chat(**fields), CHAT) == [path]


def test_what_is_known_null_or_nobodys_business_is_not_told():
    call = {"id": "c", "type": "function", "index": 0}
    call["function"] = {"name": "f", "arguments": '{"foo": 1}'}
    body = chat(
        messages=[
            {"role": "user", "name": "me", "content": "a", "foo": None},
            {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "t"}]},
        ],
        tools=[{"type": "function", "function": FUNCTION}],
        tool_choice="auto",
    )

    assert unread_parts(body, CHAT) == []


def test_each_name_is_told_once_however_many_messages_have_it():
    body = chat(messages=[{"content": "a", "foo": 1}, {"content": "b", "foo": 2, "bar": 1}])

    assert unread_parts(body, CHAT) == ["messages[].foo", "messages[].bar"]


def test_what_the_template_names_reaches_it_but_for_the_parts_of_contents():
    part = {"type": "text", "text": "a", "mood": 1}
    body = chat(messages=[{"content": [part], "mood": "sad", "moo": 1}])

    found = unread_parts(body, CHAT, "{{ messages[0].mood }}")

    assert found == ["messages[].content[].mood", "messages[].moo"]


def anthropic(content, **fields):
    messages = [{"role": "user", "content": content}]
    return MessagesBody(max_tokens=1, messages=messages, **fields)


RESULT = {"type": "tool_result", "tool_use_id": "t", "cache_control": {"type": "ephemeral"}}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (anthropic([RESULT | {"foo": 1}]), "messages[].content[].foo"),
        (
            anthropic([RESULT | {"content": [{"type": "text", "text": "a", "foo": 1}]}]),
            "messages[].content[].content[].foo",
        ),
        (anthropic([{"type": "text", "text": "a", "foo": 1}]), "messages[].content[].foo"),
        (anthropic("a", system=[{"type": "text", "text": "a", "foo": 1}]), "system[].foo"),
        (anthropic("a", tools=[{"name": "f", "strictt": True}]), "tools[].strictt"),
        (anthropic("a", tool_choice={"type": "any", "foo": 1}), "tool_choice.foo"),
        (anthropic("a", metadata={"user_id": "u", "foo": 1}), "metadata.foo"),
    ],
)
def test_what_nobody_reads_in_a_message_of_anthropics_has_a_path(body, path):
    assert unread_parts(body, ANTHROPIC) == [path]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"input": [{"role": "user", "content": "a", "foo": 1}]}, "input[].foo"),
        (
            {"input": [{"type": "message", "content": [{"type": "input_text", "foo": 1}]}]},
            "input[].content[].foo",
        ),
        ({"input": [{"type": "function_call", "id": "i", "role": "user"}]}, "input[].role"),
        ({"input": "a", "tools": [{"name": "f", "strictt": True}]}, "tools[].strictt"),
        ({"input": "a", "tool_choice": {"type": "function", "foo": 1}}, "tool_choice.foo"),
    ],
)
def test_what_nobody_reads_in_a_responses_body_has_a_path(fields, path):
    assert unread_parts(ResponsesBody(**fields), RESPONSES) == [path]


@pytest.mark.parametrize(("shape", "least"), [(ChatBody, "messages"), (CompletionBody, "prompt")])
def test_what_nobody_reads_in_stream_options_is_reported_and_refused(shape, least):
    given = {least: [], "stream": True, "stream_options": {"include_usage": True, "foo": 1}}
    raw = msgspec.json.encode(given)

    assert decode_body(raw, shape, is_strict=False).ignored == ["stream_options.foo"]
    with pytest.raises(RequestError, match=r"stream_options\.foo") as caught:
        decode_body(raw, shape, is_strict=True)
    assert caught.value.param == "stream_options"


def context(*, is_strict):
    return SimpleNamespace(settings=SimpleNamespace(strict_fields=is_strict))


def test_paths_are_reported_in_the_header_and_refused_by_strict_servers():
    decoded = decode_body(b'{"messages":[]}', ChatBody, is_strict=False)
    report_unknown(decoded, ["messages[].foo", "tools[].foo"], context(is_strict=False))

    assert decoded.headers == {"X-Octavo-Ignored-Fields": "messages[].foo, tools[].foo"}
    report_unknown(decoded, [], context(is_strict=True))
    with pytest.raises(RequestError, match=r"messages\[\]\.foo") as caught:
        report_unknown(decoded, ["messages[].foo"], context(is_strict=True))
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ({"content": "no file", "is_error": True}, "Error: no file"),
        ({"is_error": True}, "Error: the call failed"),
        ({"content": "ok", "is_error": False}, "ok"),
        (
            {"content": [{"type": "text", "text": one} for one in "ab"], "is_error": True},
            [{"type": "text", "text": "Error: a"}, {"type": "text", "text": "b"}],
        ),
    ],
)
def test_a_model_is_told_that_a_tool_failed(result, content):
    (message,) = openai_messages(None, [{"role": "user", "content": [RESULT | result]}])

    assert message == {"role": "tool", "tool_call_id": "t", "content": content}


def test_a_result_is_an_error_or_none():
    with pytest.raises(RequestError, match="is_error must be true or false"):
        openai_messages(None, [{"role": "user", "content": [RESULT | {"is_error": "yes"}]}])
