"""Reasoning, a form and a budget on a real model, whose template opens it or closes it at once."""

import json

import pytest

from server_process import octavo_serve

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n<think>\n{% if not enable_thinking %}\n</think>\n\n{% endif %}"
)
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "big": {"type": "boolean"}},
    "required": ["city", "big"],
    "additionalProperties": False,
}
BUDGET = 12


@pytest.fixture(scope="module")
def server():
    with octavo_serve("smollm2", "--max-model-len", "1024", "--chat-template", TEMPLATE) as process:
        yield process


def both(server, **fields):
    """Return content, reasoning and the usage of a whole answer, and the same of a stream."""
    path = "/v1/chat/completions"
    body = {
        "messages": [{"role": "user", "content": "Name a city."}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "c", "schema": SCHEMA}},
        "temperature": 0,
        "max_tokens": 100,
        **fields,
    }
    whole = server.post(path, body).json()
    message = whole["choices"][0]["message"]
    events = server.events(path, **body, stream_options={"include_usage": True})
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    told = ["".join(one.get(name) or "" for one in deltas) for name in ("content", "reasoning")]
    assert message["content"] == told[0]
    assert (message.get("reasoning") or "") == told[1]
    assert message.get("reasoning") == message.get("reasoning_content")
    usage = whole["usage"] | {"prompt_tokens_details": events[-1]["usage"]["prompt_tokens_details"]}
    assert usage == events[-1]["usage"]  # all but what was found in the prefix cache
    return message["content"], message.get("reasoning"), usage


def test_B66_a_form_begins_behind_the_reasoning(server):
    thinking = {"chat_template_kwargs": {"enable_thinking": True}}

    content, reasoning, usage = both(server, **thinking, thinking_token_budget=BUDGET)

    assert reasoning
    assert not reasoning.startswith("{")
    assert json.loads(content).keys() == {"city", "big"}
    assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] <= BUDGET


def test_B66_a_form_begins_at_once_where_the_template_closed_the_reasoning(server):
    for off in ({"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"}):
        content, reasoning, usage = both(server, **off)

        assert reasoning is None
        assert json.loads(content).keys() == {"city", "big"}
        assert usage["completion_tokens_details"]["reasoning_tokens"] == 0
