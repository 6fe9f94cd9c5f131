"""Every dialect in front of a real model: `octavo serve smollm2`."""

import json

import pytest

from server_process import octavo_serve

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
QUESTION = [{"role": "user", "content": "Name the capital of France."}]
TOOL = {"name": "get_time", "input_schema": {"type": "object", "properties": {}}}


@pytest.fixture(scope="module")
def server():
    with octavo_serve("smollm2", "--max-model-len", "1024") as process:
        yield process
        assert process.stop() == 0


def good(response):
    assert response.status_code == 200, response.text
    return response.json()


def named_events(server, path, **fields):
    with server.http.stream("POST", path, json={"stream": True, **fields}) as response:
        text = "".join(response.iter_text())
    assert response.status_code == 200, text
    blocks = [block.split("\ndata: ") for block in text.split("\n\n") if block]
    return [(name.removeprefix("event: "), json.loads(data)) for name, data in blocks]


def test_all_dialects_give_the_same_answer(server):
    chat = good(server.post(CHAT, messages=QUESTION, max_tokens=24, temperature=0))
    text = chat["choices"][0]["message"]["content"]
    asked = {"messages": QUESTION, "max_tokens": 24, "temperature": 0}
    message = good(server.post(MESSAGES, asked))
    response = good(
        server.post(RESPONSES, input=QUESTION[0]["content"], max_output_tokens=24, temperature=0)
    )

    assert "Paris" in text
    assert message["content"] == [{"type": "text", "text": text}]
    assert message["stop_reason"] == "end_turn"
    assert response["output"][0]["content"][0]["text"] == text
    used = message["usage"]
    num_prompt_tokens = used["input_tokens"] + used["cache_read_input_tokens"]
    assert num_prompt_tokens == chat["usage"]["prompt_tokens"]
    assert response["usage"]["input_tokens"] == num_prompt_tokens


def test_streams_say_what_whole_answers_say(server):
    asked = {"messages": QUESTION, "max_tokens": 24, "temperature": 0}
    whole = good(server.post(MESSAGES, asked))["content"][0]["text"]
    message = named_events(server, MESSAGES, **asked)
    fields = {"input": QUESTION[0]["content"], "max_output_tokens": 24, "temperature": 0}
    response = named_events(server, RESPONSES, **fields)

    deltas = [data["delta"]["text"] for name, data in message if name == "content_block_delta"]
    assert "".join(deltas) == whole
    deltas = [data["delta"] for name, data in response if name == "response.output_text.delta"]
    assert "".join(deltas) == whole


def test_B09_tokens_are_counted_as_they_are_used(server):
    body = {"system": "Be brief.", "messages": QUESTION}
    counted = good(server.post(f"{MESSAGES}/count_tokens", body))
    usage = good(server.post(MESSAGES, body | {"max_tokens": 1}))["usage"]

    assert counted["input_tokens"] == usage["input_tokens"] + usage["cache_read_input_tokens"]


def test_tokens_from_the_cache_are_told(server):
    body = {"messages": [{"role": "user", "content": "word " * 200}], "max_tokens": 1}
    first = good(server.post(MESSAGES, body))["usage"]
    second = good(server.post(MESSAGES, body))["usage"]

    assert first["cache_read_input_tokens"] < second["cache_read_input_tokens"]
    assert sum(list(first.values())[:3]) == sum(list(second.values())[:3])
    assert good(server.http.post("/reset_prefix_cache")) == {"success": True}
    assert good(server.post(MESSAGES, body))["usage"]["cache_read_input_tokens"] == 0


def test_a_required_call_is_made(server):
    fields = {"max_tokens": 40, "tools": [TOOL], "tool_choice": {"type": "any"}, "temperature": 0}
    message = good(server.post(MESSAGES, {"messages": QUESTION} | fields))

    (block,) = message["content"]
    assert (block["type"], block["name"], block["input"]) == ("tool_use", "get_time", {})
    assert message["stop_reason"] == "tool_use"


def test_the_beginning_of_an_answer_is_gone_on_from(server):
    history = [*QUESTION, {"role": "assistant", "content": "The capital of France is"}]
    message = good(server.post(MESSAGES, messages=history, max_tokens=3, temperature=0))

    assert message["content"][0]["text"].lstrip().startswith("Paris")


def test_a_schema_is_held_to(server):
    """Whatever is drawn: with the most blanks that may stand, the JSON has 216 characters."""
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "schema": schema}
    message = good(
        server.post(MESSAGES, messages=QUESTION, max_tokens=220, output_config={"format": form})
    )
    response = good(
        server.post(
            RESPONSES,
            input="Is water wet?",
            max_output_tokens=220,
            text={"format": form | {"name": "answer"}},
        )
    )

    assert isinstance(json.loads(message["content"][0]["text"])["ok"], bool)
    assert isinstance(json.loads(response["output"][0]["content"][0]["text"])["ok"], bool)


@pytest.mark.parametrize(("num_tokens", "status"), [(1023, 200), (1024, 400), (1100, 400)])
def test_B01_the_context_is_told_with_its_numbers(server, num_tokens, status):
    ids = good(server.post("/tokenize", prompt="a " * 2000))["tokens"][:num_tokens]
    answer = server.post(COMPLETIONS, prompt=ids, max_tokens=1)
    told = answer.json()

    assert answer.status_code == status
    if status == 200:
        assert told["usage"]["completion_tokens"] == 1
        assert told["choices"][0]["finish_reason"] == "length"
    else:
        assert "maximum context length is 1024 tokens" in told["error"]["message"]
        assert str(num_tokens) in told["error"]["message"]


def test_tokens_are_those_of_the_model(server):
    text = "Good day \u6f22\u5b57 \U0001f600!"
    found = good(server.post("/tokenize", prompt=text))
    asked = good(server.post(COMPLETIONS, prompt=text, max_tokens=1))

    assert found["count"] == asked["usage"]["prompt_tokens"]
    assert good(server.post("/detokenize", tokens=found["tokens"])) == {"prompt": text}


def test_it_sleeps_and_wakes_with_the_same_mind(server):
    asked = {"messages": QUESTION, "max_tokens": 8, "temperature": 0}
    before = good(server.post(MESSAGES, asked))["content"]
    used_bytes = server.engine.memory_info().rss

    assert good(server.http.post("/sleep"))["status"] == "sleeping"
    assert used_bytes > 100_000_000
    assert not server._children()
    assert server.post(MESSAGES, asked).status_code == 503
    good(server.http.post("/wake_up"))

    assert good(server.post(MESSAGES, asked))["content"] == before
