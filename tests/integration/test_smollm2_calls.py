"""Calls of tools on a real model that was never taught any: a grammar holds it to their form."""

import json

import pytest

from server_process import OCTAVO, ServerProcess

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a city",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"$ref": "#/$defs/City"},
                    "unit": {"enum": ["celsius", "fahrenheit"]},
                },
                "required": ["city", "unit"],
                "additionalProperties": False,
                "$defs": {"City": {"type": "string", "maxLength": 20}},
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "get_time",
            "parameters": {
                "type": "object",
                "properties": {"zone": {"type": "string", "maxLength": 10}},
                "required": ["zone"],
                "additionalProperties": False,
            },
        },
    },
]
MESSAGES = [{"role": "user", "content": "What is the weather in Paris, in celsius?"}]
NAMED = {"type": "function", "function": {"name": "get_weather"}}


@pytest.fixture(scope="module")
def server():
    command = (*OCTAVO, "smollm2", "--port", "0", "--max-model-len", "1024", "--tool-parser")
    with ServerProcess(*command, "hermes") as process:
        yield process


def calls_of(server, choice, **fields):
    """Return the calls of a whole answer; checks that the streamed one has the same."""
    body = {"messages": MESSAGES, "tools": TOOLS, "tool_choice": choice, "temperature": 0}
    body |= {"max_tokens": 120, **fields}
    (whole,) = server.post("/v1/chat/completions", body).json()["choices"]
    streamed = {}
    for event in server.events("/v1/chat/completions", **body):
        for call in event["choices"][0]["delta"].get("tool_calls", []):
            name, arguments = streamed.get(call["index"], ("", ""))
            function = call["function"]
            name += function.get("name", "")
            streamed[call["index"]] = name, arguments + function["arguments"]
    calls = [
        (one["function"]["name"], one["function"]["arguments"])
        for one in whole["message"]["tool_calls"]
    ]
    assert calls == list(streamed.values())
    return calls, whole["finish_reason"]


def test_a_required_call_has_the_form_of_its_tool(server):
    calls, reason = calls_of(server, "required", parallel_tool_calls=False)

    ((name, arguments),) = calls
    assert reason == "tool_calls"
    wanted = {"get_weather": {"city", "unit"}, "get_time": {"zone"}}
    assert json.loads(arguments).keys() == wanted[name]


def test_a_named_tool_gets_arguments_of_its_schema(server):
    calls, reason = calls_of(server, NAMED)

    ((name, arguments),) = calls
    assert (name, reason) == ("get_weather", "stop")
    assert json.loads(arguments)["unit"] in {"celsius", "fahrenheit"}


def test_a_schema_that_cannot_be_held_to_is_refused(server):
    bad = {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": bad}}]
    body = {"messages": MESSAGES, "tools": tools, "tool_choice": "required"}

    response = server.post("/v1/chat/completions", body)

    assert response.status_code == 400
    assert response.json()["error"]["param"] == "tools"


def test_strict_tools_are_held_to_their_schema_and_text_stays_free(server):
    tools = [TOOLS[0] | {"function": TOOLS[0]["function"] | {"strict": True}}]
    body = {"messages": MESSAGES, "tools": tools, "temperature": 0, "max_tokens": 40}

    answer = server.post("/v1/chat/completions", body)

    assert answer.status_code == 200
    assert "X-Octavo-Ignored-Fields" not in answer.headers
    (choice,) = answer.json()["choices"]
    assert choice["message"]["content"] or choice["message"]["tool_calls"]
