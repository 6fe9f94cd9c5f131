"""Calls of tools and reasoning over HTTP: whole and streamed, they are the same.

The engine is scripted and repeats the prompt, which is the last message: FORCE of the bug cases is
to say the text. Every token is one byte, so that a stream is cut between all characters.
"""

import json

import openai
import pytest

from server_process import scripted_server_process

CHAT = "/v1/chat/completions"
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("get_weather", "get_time")
]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
ARGUMENTS = json.dumps(
    {
        "nested": {"a": [1, -2.5e3, {"b": None}], "empty": {}},
        "braces": '}{ ]] " <tool_call> \\\\ / ',
        "unicode": "\u00e9 \u2713 \ud83d\ude00",
        "none": "",
        "long": "lorem ipsum " * 60,
    }
)


@pytest.fixture(scope="module")
def server():
    with scripted_server_process(
        script={"max_model_len": 9000}, parsers=["hermes", "think"]
    ) as one:
        yield one
        assert one.stop() == 0


def asked(text, tools=TOOLS, **fields):
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 4000, **fields}
    return body if tools is None else {"tools": tools, **body}


def whole(server, text, **fields):
    """Return the message, the finish reason and the usage of a whole answer."""
    answer = server.post(CHAT, asked(text, **fields)).json()
    (choice,) = answer["choices"]
    return choice["message"], choice["finish_reason"], answer["usage"]


def streamed(server, text, **fields):
    """Return what `whole` does, put together as clients do: calls by their index."""
    options = {"stream_options": {"include_usage": True}}
    events = server.events(CHAT, **asked(text, **fields), **options)
    message, calls, reasons = {"role": "assistant"}, {}, []
    for choice in (choice for event in events for choice in event["choices"]):
        for name in ("content", "reasoning", "reasoning_content"):
            if choice["delta"].get(name):
                message[name] = message.get(name, "") + choice["delta"][name]
        for one in choice["delta"].get("tool_calls", []):
            known = calls.setdefault(one["index"], {"function": {"arguments": ""}})
            is_first = "type" not in known
            assert is_first == ("id" in one) == ("type" in one) == ("name" in one["function"])
            known |= {key: one[key] for key in ("id", "type") if key in one}
            known["function"]["arguments"] += one["function"]["arguments"]
            known["function"] |= {k: v for k, v in one["function"].items() if k == "name"}
        reasons += [choice["finish_reason"]] if choice["finish_reason"] else []
    assert sorted(calls) == list(range(len(calls)))
    (reason,) = reasons
    return message | {"calls": list(calls.values())}, reason, events[-1]["usage"]


def both(server, text, **fields):
    """Return content, reasoning, calls (name, arguments), reason; checks that modes agree."""
    message, reason, usage = whole(server, text, **fields)
    got, streamed_reason, streamed_usage = streamed(server, text, **fields)
    calls = message.get("tool_calls", [])
    for some in (calls, got["calls"]):
        assert all(one["type"] == "function" and one["id"].startswith("call_") for one in some)
        assert len({one["id"] for one in some}) == len(some)
    assert [one["function"] for one in calls] == [one["function"] for one in got["calls"]]
    for name in ("content", "reasoning", "reasoning_content"):
        assert (message.get(name) or "") == got.get(name, "")
    assert (reason, usage) == (streamed_reason, streamed_usage)
    named = [(one["function"]["name"], one["function"]["arguments"]) for one in calls]
    return message["content"], message.get("reasoning"), named, reason


def test_B53_arguments_come_as_they_were_written(server):
    text = '<tool_call>{"name": "get_weather", "arguments": ' + ARGUMENTS + "}</tool_call>"

    assert both(server, text) == (None, None, [("get_weather", ARGUMENTS)], "tool_calls")


def test_B56_an_id_and_a_name_come_once_and_clients_find_two_calls(server):
    text = f'Both.\n{CALL}\n<tool_call>\n{{"name": "get_time", "arguments": {{}}}}\n</tool_call>'
    calls = [("get_weather", '{"city": "Oslo"}'), ("get_time", "{}")]

    assert both(server, text) == ("Both.\n", None, calls, "tool_calls")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
    with client.chat.completions.stream(model="scripted", **asked(text)) as stream:
        (choice,) = stream.get_final_completion().choices
    found = [(one.function.name, one.function.arguments) for one in choice.message.tool_calls]
    assert (found, choice.finish_reason) == (calls, "tool_calls")


@pytest.mark.parametrize("choice", ["auto", "required", "named"])
def test_B55_a_call_that_is_cut_is_not_reported_as_complete(server, choice):
    text = {
        "auto": CALL,
        "required": '[{"name": "get_weather", "parameters": {"city": "Oslo"}}]',
        "named": '{"city": "Oslo"}',
    }[choice]
    fields = {"tool_choice": NAMED if choice == "named" else choice}
    cut = text.index("Os") + 1

    _, _, [(name, arguments)], reason = both(server, text, max_tokens=cut, **fields)

    assert (name, arguments, reason) == ("get_weather", '{"city": "O', "length")


NAMED = {"type": "function", "function": {"name": "get_weather"}}


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_stop_strings_do_not_cut_a_required_call(server, choice):
    call = '{"city": "Oslo", "days": 2}'
    text = call if choice is NAMED else f'[{{"name": "get_weather", "parameters": {call}}}]'
    fields = {"tool_choice": choice, "stop": ["name", "city", '"O', "}"]}
    reason = "stop" if choice is NAMED else "tool_calls"

    assert both(server, text, **fields) == (None, None, [("get_weather", call)], reason)
    thought = both(server, f"<think>the city</think>{text}", **fields)
    assert thought == (None, "the city", [("get_weather", call)], reason)


@pytest.mark.parametrize(
    ("choice", "text", "call"),
    [("required", '[{"name": "get_wea', []), (NAMED, "{", [("get_weather", "{")])],
    ids=["required", "named"],
)
def test_the_beginning_of_a_form_is_no_content(server, choice, text, call):
    limited = both(server, text + "ther", tool_choice=choice, max_tokens=len(text))
    stopped = both(server, text, tool_choice=choice)

    assert limited[1:] == (None, call, "length")
    assert stopped[1:] == (None, call, "stop")
    assert not limited[0]
    assert not stopped[0]


@pytest.mark.parametrize("kept", ["Price is < 5 ", "abc <tool ", "abc <tool_call", "\n\n", "a <"])
def test_B31_what_a_parser_holds_comes_when_a_stop_string_ends_the_text(server, kept):
    assert both(server, f"{kept}END rest", stop=["END"]) == (kept, None, [], "stop")


def test_B31_a_stop_string_ends_a_thought_whose_closing_mark_had_begun(server):
    got = both(server, "<think>b </thiEND rest", stop=["END"])

    assert got == (None, "b </thi", [], "stop")


def test_B58_none_leaves_text_alone_and_wrong_choices_are_refused(server):
    text = 'see <tool_call>{"name":"get_time","arguments":{}}</tool_call> above'

    assert both(server, text, tool_choice="none") == (text, None, [], "stop")
    for tools in (None, []):
        assert both(server, "hi", tools=tools, tool_choice="none")[0] == "hi"
    named = {"type": "function", "function": {"name": "get_wether"}}
    told = {
        "get_weather": server.post(CHAT, asked("hi", tool_choice=named)),
        "needs tools": server.post(CHAT, asked("hi", tools=None, tool_choice="required")),
        "tools is empty": server.post(CHAT, asked("hi", tools=[])),
    }
    for words, response in told.items():
        assert response.status_code == 400
        assert words in response.json()["error"]["message"]


def test_a_required_call_is_read_from_its_own_form(server):
    text = (
        '[{"name": "get_time", "parameters": {}}, {"name": "get_weather", "parameters": {"a": 1}}]'
    )
    calls = [("get_time", "{}"), ("get_weather", '{"a": 1}')]

    assert both(server, text, tool_choice="required") == (None, None, calls, "tool_calls")
    assert both(server, text, tool_choice="required", parallel_tool_calls=False)[2] == calls[:1]


def test_a_named_tool_is_called_with_the_whole_answer_and_the_reason_stays_stop(server):
    named = {"type": "function", "function": {"name": "get_time"}}

    got = both(server, '{"zone": "CET"}', tool_choice=named)

    assert got == (None, None, [("get_time", '{"zone": "CET"}')], "stop")


def test_B59_no_marker_is_left_in_either_mode(server):
    got = both(server, f"<think>\nhm\n</think>\n\nSo:\n{CALL}")

    assert got == ("So:\n", "hm", [("get_weather", '{"city": "Oslo"}')], "tool_calls")


def test_white_space_between_a_call_and_text_is_content(server):
    call = ("get_weather", '{"city": "Oslo"}')

    got = both(server, f"One.\n\n{CALL}\n{CALL}\n\nTwo. \n")
    alone = both(server, f"\n{CALL}\n")

    assert got == ("One.\n\n\n\nTwo. \n", None, [call, call], "tool_calls")
    assert alone == (None, None, [call], "tool_calls")


def test_B61_text_without_a_mark_is_content(server):
    kwargs = {"enable_thinking": True}

    got = both(server, "Hello there", tools=None, chat_template_kwargs=kwargs)

    assert got == ("Hello there", None, [], "stop")


def test_B63_tags_in_pieces_are_no_content(server):
    assert both(server, "<think>abc</think>def", tools=None) == ("def", "abc", [], "stop")


@pytest.mark.parametrize(("max_tokens", "reason"), [(100, "stop"), (4, "length")])
def test_B64_thinking_that_never_ends_is_reasoning(server, max_tokens, reason):
    text = "<think>never closed"

    got = both(server, text, tools=None, max_tokens=max_tokens)

    # the mark is one token, as in models that have it
    assert got == (None, text[7:][: max_tokens - 1], [], reason)


def test_tokens_of_reasoning_are_counted(server):
    usage = whole(server, "<think>abc</think>def", tools=None)[2]

    assert usage["completion_tokens_details"] == {"reasoning_tokens": 3}
    assert usage["completion_tokens"] == 9  # two marks, the end


def test_reasoning_is_left_out_where_nobody_wants_it(server):
    message, _, usage = whole(server, "<think>abc</think>def", tools=None, include_reasoning=False)

    assert message == {"role": "assistant", "content": "def", "refusal": None}
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 3}


def test_logprobs_and_ids_of_what_is_held_back_come_with_what_follows(server):
    text = f"So: {CALL}"
    fields = {"logprobs": True, "return_token_ids": True}
    answer = server.post(CHAT, asked(text, **fields)).json()["choices"][0]
    events = server.events(CHAT, **asked(text, **fields))
    choices = [choice for event in events for choice in event["choices"]]

    assert answer["token_ids"] == [i for one in choices for i in one.get("token_ids", [])]
    entries = [e for one in choices if one["logprobs"] for e in one["logprobs"]["content"]]
    assert answer["logprobs"]["content"] == entries


REFUSED = [
    ({"tools": [*TOOLS, TOOLS[0]]}, "tools", "two tools are called 'get_weather'"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools", "cannot be the name"),
    ({"tools": [{"type": "web_search"}]}, "tools", "runs no tools of its own"),
    (
        {
            "tools": [
                {"type": "function", "function": {"name": "f", "parameters": {"type": "list"}}}
            ]
        },
        "tools",
        "its type is 'list'",
    ),
    (
        {
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "f", "parameters": {"properties": {"a": {"type": "str"}}}},
                }
            ]
        },
        "tools",
        "parameters.properties.a.type is 'str'",
    ),
    ({"tool_choice": "any"}, "tool_choice", "tool_choice cannot be 'any'"),
    ({"functions": [{"name": "f"}]}, "functions", "send tools"),
    (
        {"tool_choice": "required", "response_format": {"type": "json_object"}},
        "response_format",
        "cannot be given together",
    ),
    ({"reasoning_effort": "much"}, "reasoning_effort", "Invalid enum value"),
]


@pytest.mark.parametrize(("fields", "param", "words"), REFUSED)
def test_what_is_wrong_with_tools_is_told(server, fields, param, words):
    response = server.post(CHAT, asked("hi", **fields))

    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], words in error["message"]) == (param, True), error


def test_results_belong_to_calls_that_were_made(server):
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    made = {"role": "assistant", "content": None, "tool_calls": [call]}
    for messages, words in (
        ([{"role": "tool", "content": "1", "tool_call_id": "c1"}], "no message before it"),
        ([made, {"role": "tool", "content": "1"}], "messages[1].tool_call_id must be a string"),
        ([made, {"role": "tool", "content": "1", "tool_call_id": "c2"}], "of no call before it"),
    ):
        response = server.post(CHAT, {"messages": messages})
        assert response.status_code == 400
        assert words in response.json()["error"]["message"]
    good = [made, {"role": "tool", "content": "fine", "tool_call_id": "c1"}]
    assert server.post(CHAT, {"messages": good}).status_code == 200
