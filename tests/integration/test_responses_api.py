"""OpenAI's responses as its client uses them: the real server, a scripted engine."""

import threading

import openai
import pytest

from server_process import scripted_server_process

RESPONSES = "/v1/responses"
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": None}
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


@pytest.fixture(scope="module")
def server():
    script = {"max_model_len": 100_000, "step_ms": 1.0}
    with scripted_server_process(script=script, parsers=["hermes", "think"]) as process:
        yield process
        assert process.stop() == 0


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def plain(response):
    """Return a response without what is another each time."""
    fields = response.model_dump()
    for name in ("id", "created_at", "completed_at"):
        fields.pop(name)
    for item in fields["output"]:
        item.pop("id")
        item.pop("call_id", None)
        item.pop("parsed_arguments", None)
        for part in item.get("content") or ():
            part.pop("parsed", None)
    return fields


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("Good day \u6f22\u5b57 \U0001f600!", ["message"]),
        (f"{CALL}\n{CALL}", ["function_call", "function_call"]),
        (f"<think>hm</think>ok {CALL}", ["reasoning", "message", "function_call"]),
    ],
)
def test_a_stream_builds_the_whole_answer(client, text, kinds):
    fields = {"model": "scripted", "input": text, "tools": [TOOL]}
    whole = client.responses.create(**fields)
    with client.responses.stream(**fields) as stream:
        events = list(stream)
        final = stream.get_final_response()

    assert [item.type for item in whole.output] == kinds
    assert whole.status == "completed"
    assert plain(final) == plain(whole)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    names = [event.type.removeprefix("response.") for event in events]
    assert names[:2] == ["created", "in_progress"]
    assert names[-1] == "completed"
    assert names.count("output_item.added") == names.count("output_item.done") == len(kinds)
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens
    assert (whole.usage.output_tokens_details.reasoning_tokens > 0) == ("reasoning" in kinds)


def test_an_answer_goes_on_from_the_one_before(client, server):
    first = client.responses.create(model="scripted", input="one", instructions="be short")
    second = client.responses.create(
        model="scripted", input="two", previous_response_id=first.id, metadata={"k": "v"}
    )

    assert (first.output_text, second.output_text) == ("one", "two")
    assert second.metadata == {"k": "v"}
    assert second.previous_response_id == first.id
    assert client.responses.retrieve(first.id).output_text == "one"
    deleted = server.http.delete(f"{RESPONSES}/{first.id}")
    assert deleted.json() == {"id": first.id, "object": "response", "deleted": True}
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.NotFoundError) as caught:
        client.responses.create(model="scripted", input="a", previous_response_id=first.id)
    assert caught.value.param == "previous_response_id"
    third = client.responses.create(model="scripted", input="a", previous_response_id=second.id)
    assert third.output_text == "a"


def test_what_is_not_to_be_stored_is_not(client):
    response = client.responses.create(model="scripted", input="a", store=False)

    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_too_few_tokens_leave_it_incomplete(client):
    response = client.responses.create(model="scripted", input="abcdef", max_output_tokens=3)
    events = list(
        client.responses.create(model="scripted", input="abcdef", max_output_tokens=3, stream=True)
    )

    assert (response.status, response.output_text) == ("incomplete", "abc")
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output[0].status == "incomplete"
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == "abc"


def test_a_failure_in_mid_stream_is_the_last_event(client):
    fields = {"vllm_xargs": {"fail_at": 3}}
    *_, last = client.responses.create(
        model="scripted", input="abcdef", stream=True, extra_body=fields
    )

    assert last.type == "response.failed"
    assert last.response.error.message == "the logits of this request were NaN"
    assert client.responses.retrieve(last.response.id).status == "failed"


def test_a_running_response_is_cancelled(client, server):
    long = {"ignore_eos": True}
    stream = client.responses.create(model="scripted", input="abc", stream=True, extra_body=long)
    created = next(iter(stream))
    response_id = created.response.id
    rest = []
    reading = threading.Thread(target=lambda: rest.extend(stream))
    reading.start()

    assert client.responses.retrieve(response_id).status == "in_progress"
    assert client.responses.cancel(response_id).status == "cancelled"
    reading.join(20)

    assert rest[-1].type == "response.incomplete"
    assert rest[-1].response.status == "cancelled"
    assert client.responses.retrieve(response_id).status == "cancelled"
    server.until(server.is_idle)
    with pytest.raises(openai.BadRequestError, match="cancelled already"):
        client.responses.cancel(response_id)


def test_a_client_that_leaves_ends_its_request(server):
    long = {"input": "abc", "ignore_eos": True}

    server.send_and_leave(RESPONSES, long | {"stream": True}, after_s=0.2)
    server.send_and_leave(RESPONSES, long, after_s=0.2)
    server.until(server.is_idle)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"conversation": "c"}, "conversation"),
        ({"input": []}, "input"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
    ],
)
def test_what_is_not_served_is_refused(server, fields, param):
    response = server.post(RESPONSES, {"input": "a"} | fields)

    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_what_changes_nothing_is_named(server):
    body = {"input": "a", "include": ["x"], "text": {"verbosity": "low"}, "frobnicate": 1}
    response = server.post(RESPONSES, body)

    assert response.status_code == 200
    named = response.headers["X-Octavo-Ignored-Fields"].split(", ")
    assert sorted(named) == ["frobnicate", "include", "text.verbosity"]


def test_what_nobody_reads_within_items_is_named(server):
    response = server.post(RESPONSES, {"input": [{"role": "user", "content": "a", "foo": 1}]})

    assert response.status_code == 200
    assert response.headers["X-Octavo-Ignored-Fields"] == "input[].foo"
