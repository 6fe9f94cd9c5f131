"""Anthropic's API as clients use it: the real server and engine process, a scripted engine.

The engine repeats the last message, so that FORCE(text) of a bug case is to send that text.
"""

import json

import pytest

from server_process import scripted_server_process

MESSAGES = "/v1/messages"
COUNT = f"{MESSAGES}/count_tokens"
TOOL = {"name": "f", "input_schema": {"type": "object"}}
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
KEY = {"Authorization": "Bearer K"}


@pytest.fixture(scope="module")
def server():
    script = {"max_model_len": 64 * 16, "step_ms": 1.0}
    with scripted_server_process(script=script, parsers=["hermes", "think"]) as process:
        yield process
        assert process.stop() == 0


@pytest.fixture(scope="module")
def guarded():
    options = {"api_key": ["K"], "max_body_bytes": 2000, "strict_fields": True}
    script = {"max_model_len": 64, "max_num_seqs": 1, "max_num_queued_reqs": 1}
    with scripted_server_process(script=script, **options) as process:
        yield process


def said(text, **fields):
    return {"max_tokens": 500, "messages": [{"role": "user", "content": text}], **fields}


def whole(server, text, **fields):
    response = server.post(MESSAGES, said(text, **fields))
    assert response.status_code == 200, response.text
    return response.json()


def error_of(response, status, kind):
    assert response.status_code == status, response.text
    told = response.json()
    assert set(told) == {"type", "error", "request_id"}
    assert told["type"] == "error"
    assert set(told["error"]) == {"type", "message"}
    assert told["error"]["type"] == kind
    assert response.headers["request-id"] == told["request_id"]
    return told["error"]["message"]


def events_of(server, body):
    """Return the events of a stream; each is called what its data says."""
    with server.http.stream("POST", MESSAGES, json={"stream": True, **body}) as response:
        text = "".join(response.iter_text())
    assert response.status_code == 200, text
    found = []
    for block in text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def built(events):
    """Return the message that a client builds of its events."""
    first, *middle, delta, stop = events
    assert (first["type"], stop) == ("message_start", {"type": "message_stop"})
    message, texts = first["message"], []
    assert message["content"] == []
    for one in middle:
        match one["type"]:
            case "content_block_start":
                message["content"].append(dict(one["content_block"]))
                texts = []
            case "content_block_delta":
                assert one["index"] == len(message["content"]) - 1
                kind, value = one["delta"].values()
                block = message["content"][-1]
                if kind == "input_json_delta":
                    texts.append(value)
                else:
                    block[kind.removesuffix("_delta")] += value
            case "content_block_stop" if message["content"][-1]["type"] == "tool_use":
                message["content"][-1]["input"] = json.loads("".join(texts))
    assert delta["type"] == "message_delta"
    return message | delta["delta"] | {"usage": delta["usage"]}


def without_ids(message):
    blocks = [{k: v for k, v in one.items() if k != "id"} for one in message["content"]]
    return {k: v for k, v in message.items() if k != "id"} | {"content": blocks}


@pytest.mark.parametrize(
    ("text", "kinds", "reason"),
    [
        ("Good day \u6f22\u5b57 \U0001f600!", ["text"], "end_turn"),
        (CALL, ["tool_use"], "tool_use"),
        (f"{CALL}\n{CALL}", ["tool_use", "tool_use"], "tool_use"),
        (f"<think>hm</think>ok {CALL}", ["thinking", "text", "tool_use"], "tool_use"),
    ],
)
def test_B07_a_stream_builds_the_whole_answer(server, text, kinds, reason):
    answer = whole(server, text, tools=[TOOL])
    stream = built(events_of(server, said(text, tools=[TOOL])))

    assert [block["type"] for block in answer["content"]] == kinds
    assert answer["stop_reason"] == reason
    assert without_ids(stream) == without_ids(answer)
    assert answer["usage"]["output_tokens"] > len(kinds)


def test_B07_an_empty_answer_has_no_block(server):
    fields = {"vllm_xargs": {"ids": []}}

    assert [one["type"] for one in events_of(server, said("a", **fields))] == [
        "message_start", "message_delta", "message_stop",
    ]  # fmt: skip
    answer = whole(server, "a", **fields)
    assert (answer["content"], answer["stop_reason"]) == ([], "end_turn")


def test_B05_what_claude_code_sends_is_answered(server):
    body = {
        "model": "scripted",
        "max_tokens": 16,
        "system": [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "system", "content": "note"},
            {"role": "user", "content": [{"type": "text", "text": "go"}]},
        ],
        "metadata": {"user_id": "u"},
        "context_management": {},
        "thinking": {"type": "disabled"},
    }
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "x-2030-01-01,y"}
    response = server.http.post(f"{MESSAGES}?beta=true", json=body, headers=headers)

    assert response.status_code == 200, response.text
    assert response.json()["content"] == [{"type": "text", "text": "hi\ngo"}]
    assert response.headers["X-Octavo-Ignored-Fields"] == "context_management"


def test_B09_counted_tokens_are_those_of_the_call(server):
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "a result"}
    history = [("user", "hi"), ("assistant", [call]), ("user", [result])]
    body = {
        "system": "Be short",
        "tools": [TOOL],
        "messages": [{"role": role, "content": content} for role, content in history],
    }
    counted = server.post(COUNT, body).json()
    usage = server.post(MESSAGES, body | {"max_tokens": 1}).json()["usage"]

    assert counted == {"input_tokens": usage["input_tokens"]}
    assert counted["input_tokens"] == len("a result")


def test_a_stop_sequence_is_told(server):
    answer = whole(server, "one STOP two", stop_sequences=["STOP"])

    assert answer["content"] == [{"type": "text", "text": "one "}]
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "STOP")
    assert built(events_of(server, said("one STOP two", stop_sequences=["STOP"])))[
        "stop_sequence"
    ] == "STOP"  # fmt: skip


@pytest.mark.parametrize("choice", [{"type": "auto"}, {"type": "any"}])
def test_B55_a_call_that_was_cut_ends_with_max_tokens(server, choice):
    text = CALL if choice["type"] == "auto" else '[{"name": "f", "parameters": {"a": 1}}]'
    fields = {"tools": [TOOL], "tool_choice": choice, "max_tokens": text.index("1")}
    answer = whole(server, text, **fields)
    *_, delta, _ = events = events_of(server, said(text, **fields))

    assert (answer["content"], answer["stop_reason"]) == ([], "max_tokens")
    assert delta["delta"]["stop_reason"] == "max_tokens"
    parts = [e["delta"]["partial_json"] for e in events if e["type"] == "content_block_delta"]
    with pytest.raises(json.JSONDecodeError):
        json.loads("".join(parts))


def test_a_failure_in_mid_stream_is_an_error_event_and_the_last(server):
    *before, last = events_of(server, said("abcdef", vllm_xargs={"fail_at": 3}))

    # where all came at once there is nothing before the error
    assert [one["type"] for one in before[:1]] in ([], ["message_start"])
    assert last["type"] == "error"
    assert last["error"] == {"type": "api_error", "message": "the logits of this request were NaN"}


def test_a_client_that_leaves_ends_its_request(server):
    long = said("a", max_tokens=1000, vllm_xargs={"ids": [97] * 1000}, stream=True)

    server.send_and_leave(MESSAGES, long, after_s=0.2)
    server.send_and_leave(MESSAGES, long | {"stream": False}, after_s=0.2)
    server.until(server.is_idle)


def test_bad_bodies_are_told_in_anthropics_shape(server):
    bad = "invalid_request_error"
    assert "max_tokens" in error_of(server.post(MESSAGES, {"messages": []}), 400, bad)
    assert "messages" in error_of(
        server.post(MESSAGES, {"max_tokens": 1, "messages": []}), 400, bad
    )
    assert "valid JSON" in error_of(server.post(MESSAGES, b"{"), 400, bad)
    message = error_of(server.post(MESSAGES, said("a", model="other")), 404, "not_found_error")
    assert "served here: scripted" in message
    error_of(server.http.get(MESSAGES), 405, bad)
    error_of(server.http.post(f"{MESSAGES}/none"), 404, "not_found_error")
    error_of(server.post(MESSAGES, said("a", container="c")), 400, bad)


def test_a_budget_of_thinking_that_nothing_reads_is_reported(guarded):
    fields = {"thinking": {"type": "enabled", "budget_tokens": 9}}
    refused = guarded.http.post(MESSAGES, json=said("a", max_tokens=2, **fields), headers=KEY)

    assert "thinking" in error_of(refused, 400, "invalid_request_error")


def test_parts_of_fields_that_change_nothing_are_named(server):
    thinking = {"type": "enabled", "budget_tokens": 1024, "display": "omitted"}
    response = server.post(MESSAGES, said("a", thinking=thinking))

    assert response.headers["X-Octavo-Ignored-Fields"] == "thinking.display"


def test_models_are_listed_as_this_api_has_them(server):
    listed = server.http.get("/v1/models").json()

    assert (listed["first_id"], listed["has_more"]) == ("scripted", False)
    assert listed["data"][0]["type"] == "model"
    assert listed["data"][0]["display_name"] == "scripted"


@pytest.mark.parametrize("num_tokens", [64, 100])
def test_B01_a_long_prompt_is_told_with_its_numbers(guarded, num_tokens):
    body = said("a" * num_tokens, max_tokens=1)
    message = error_of(
        guarded.http.post(MESSAGES, json=body, headers=KEY), 400, "invalid_request_error"
    )

    assert message.startswith("prompt is too long: ")
    assert "maximum context length is 64 tokens" in message
    assert str(num_tokens) in message


@pytest.mark.parametrize("path", [MESSAGES, COUNT, f"{MESSAGES}/"])
def test_B12_the_key_is_asked_for_in_either_header(guarded, path):
    body = said("a", max_tokens=2) if path != COUNT else {"messages": said("a")["messages"]}
    for headers in ({}, {"x-api-key": "k"}, {"Authorization": "Bearer KK"}):
        refused = guarded.http.post(path, json=body, headers=headers)
        error_of(refused, 401, "authentication_error")
    for headers in (KEY, {"x-api-key": "K"}, KEY | {"x-api-key": "other"}):
        assert guarded.http.post(path, json=body, headers=headers).status_code == 200


def test_a_large_body_and_an_unknown_field_are_refused(guarded):
    large = guarded.http.post(MESSAGES, json=said("a" * 3000), headers=KEY)
    unknown = guarded.http.post(MESSAGES, json=said("a", top_q=1), headers=KEY)

    error_of(large, 413, "request_too_large")
    message = error_of(unknown, 400, "invalid_request_error")
    assert "did you mean 'top_k'" in message or "did you mean 'top_p'" in message


def test_what_nobody_reads_within_blocks_is_named_and_refused_by_strict_servers(server, guarded):
    body = said([{"type": "text", "text": "hi", "foo": 1}])
    response = server.post(MESSAGES, body)

    assert response.status_code == 200, response.text
    assert response.headers["X-Octavo-Ignored-Fields"] == "messages[].content[].foo"
    for path in (MESSAGES, COUNT):
        if path == COUNT:
            del body["max_tokens"]
        refused = guarded.http.post(path, json=body, headers=KEY)
        told = error_of(refused, 400, "invalid_request_error")
        assert "messages[].content[].foo" in told
