"""/tokenize and /detokenize, and routes that nothing stands behind: a real server, scripted."""

import openai
import pytest

from octavo_plugins.dialects.openai.absent import ABSENT
from scripted import BOS, EOS, BytesTokenizer
from server_process import scripted_server_process


@pytest.fixture(scope="module")
def server():
    with scripted_server_process(script={"max_model_len": 100}) as process:
        yield process
        assert process.stop() == 0


def error_of(response, status):
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


@pytest.mark.parametrize("text", ["", "hello there", "\u6f22\u5b57 \U0001f600", "a" * 30_000])
def test_text_becomes_tokens_and_text_again(server, text):
    found = server.post("/tokenize", prompt=text).json()

    assert found["tokens"] == BytesTokenizer().encode(text)
    assert found["count"] == len(found["tokens"])
    assert (found["max_model_len"], found["token_strs"]) == (100, None)
    assert server.post("/detokenize", tokens=found["tokens"]).json() == {"prompt": text}


def test_tokens_are_shown_on_request_special_ones_too(server):
    found = server.post("/tokenize", prompt="hello<s>", return_token_strs=True).json()

    assert found["token_strs"] == ["hello", "<s>"]
    assert server.post("/detokenize", tokens=[BOS, EOS]).json() == {"prompt": "<s><|end|>"}


def test_messages_are_rendered_as_in_a_chat(server):
    messages = [{"role": "user", "content": "hello one"}]
    found = server.post("/tokenize", messages=messages).json()
    usage = server.post("/v1/chat/completions", messages=messages).json()["usage"]

    assert found["count"] == usage["prompt_tokens"]


def test_wrong_bodies_are_refused(server):
    assert error_of(server.post("/tokenize", {}), 400)["param"] == "prompt"
    assert error_of(server.post("/tokenize", prompt="a", messages=[]), 400)["param"] == "prompt"
    assert error_of(server.post("/tokenize", messages=[]), 400)["param"] == "messages"
    assert error_of(server.post("/tokenize", prompt="a", stream=True), 400)["param"] == "stream"
    assert error_of(server.post("/detokenize", tokens=[-1]), 400)["param"] == "tokens"
    assert "10000 is not in the" in error_of(server.post("/detokenize", tokens=[10000]), 400)[
        "message"
    ]  # fmt: skip
    assert error_of(server.post("/tokenize", prompt="a", model="other"), 404)["param"] == "model"


def test_unknown_fields_are_named(server):
    response = server.post("/tokenize", prompt="a", priority=1, add_specialtokens=True)

    named = response.headers["X-Octavo-Ignored-Fields"].split(", ")
    assert sorted(named) == ["add_specialtokens", "priority"]


@pytest.mark.parametrize("path", ABSENT)
def test_routes_that_nothing_stands_behind_say_so(server, path):
    for address in (path, f"{path}/some/thing"):
        for method in ("GET", "POST", "DELETE"):
            error = error_of(server.http.request(method, address), 501)
            assert error["message"].startswith("this server does not serve ")
            assert "scripted" in error["message"]


def test_the_client_of_openai_is_told_in_its_shape(server):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)

    with pytest.raises(openai.InternalServerError, match="does not serve moderation"):
        client.moderations.create(input="a")
    with pytest.raises(openai.InternalServerError, match="octavo run-batch"):
        client.batches.list()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/tokenize"])
def test_a_wrong_method_is_405_and_options_are_told(server, path):
    refused = server.http.get(path)
    told = server.http.options(path)

    error_of(refused, 405)
    assert "POST" in refused.headers["Allow"]
    assert told.status_code == 204
    assert "POST" in told.headers["Allow"]
    error_of(server.http.post("/v1/chat"), 404)
