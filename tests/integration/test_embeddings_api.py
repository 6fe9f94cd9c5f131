"""Vectors and scores over HTTP: the real server, tiny models, OpenAI's own client."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import openai
import pytest

from byte_models import EOS, LLAMA, random_prompt, save_byte_model
from embedding_models import cosine, expected_vector, save_embedding_model
from server_process import octavo_serve

EMBEDDINGS = "/v1/embeddings"
FLAGS = (
    "--max-num-batched-tokens", "32", "--threads", "1", "--max-model-len", "256",
    "--max-num-seqs", "8",
)  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A model that appends an end and may be cut, beside a plain one, loaded when asked for."""
    root = tmp_path_factory.mktemp("models")
    (root / "sums").mkdir()
    (root / "plain").mkdir()
    sums = save_embedding_model(LLAMA, root / "sums", matryoshka_dimensions=[16, 32])
    plain = save_byte_model(LLAMA, root / "plain")
    with octavo_serve(f"sums={sums}", f"plain={plain}", *FLAGS) as process:
        yield process
        assert process.stop() == 0


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def of_text(text, mode="last", dimensions=None):
    """Return what the model with an end must answer to a text."""
    return expected_vector(LLAMA, [*text.encode(), EOS], mode, dimensions)


def error_of(response, status=400):
    assert response.status_code == status, response.text
    return response.json()["error"]


def gauge(server, name, labels=""):
    """Return a number of the first model's."""
    pattern = rf"octavo:{name}{{[^}}]*{labels}[^}}]*}} (\S+)"
    lines = server.http.get("/metrics").text.splitlines()
    found = [re.fullmatch(pattern, line) for line in lines if 'model_name="sums"' in line]
    return sum(float(match.group(1)) for match in found if match)


def ended(server, reason):
    return gauge(server, "request_success_total", f'finished_reason="{reason}"')


def test_B159_openais_client_gets_vectors_in_every_encoding(client, server):
    inputs = ["a", "bb"]
    answers = [
        client.embeddings.create(model="sums", input=inputs),  # the client asks for base64
        client.embeddings.create(model="sums", input=inputs, encoding_format="float"),
        client.embeddings.create(model="sums", input=[[*b"a", EOS], [*b"bb", EOS]]),  # LangChain
    ]
    for answer in answers:
        assert [one.index for one in answer.data] == [0, 1]
        for text, one in zip(inputs, answer.data, strict=True):
            assert one.object == "embedding"
            assert len(one.embedding) == 64
            assert cosine(one.embedding, of_text(text)) > 0.9999
        assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (5, 5)
        assert (answer.object, answer.model) == ("list", "sums")
    raw = server.post(EMBEDDINGS, input=inputs, encoding_format="base64").json()["data"]
    for one, other in zip(raw, answers[1].data, strict=True):
        numbers = np.frombuffer(base64.b64decode(one["embedding"]), dtype="<f4")
        np.testing.assert_allclose(numbers, other.embedding, atol=1e-6)
    error = error_of(server.post(EMBEDDINGS, input=inputs, encoding_format="foo"))
    assert error["param"] == "encoding_format"


def test_B161_usage_counts_the_end_that_the_tokenizer_appends(client):
    for text in ("a", "some words more", "x" * 80):
        answer = client.embeddings.create(model="sums", input=text)
        assert answer.usage.prompt_tokens == len(text) + 1
        assert cosine(answer.data[0].embedding, of_text(text)) > 0.9999


@pytest.mark.parametrize("mode", ["last", "mean"])
def test_B163_long_and_short_texts_in_one_request(server, mode):
    lengths = [5, 200, 31, 32, 33, 64, 199, 7, 120, 96]
    inputs = [random_prompt(num, num) for num in lengths]
    data = server.post(EMBEDDINGS, input=inputs, pooling=mode).json()["data"]
    for ids, one in zip(inputs, data, strict=True):
        assert cosine(one["embedding"], expected_vector(LLAMA, ids, mode)) > 0.9999


def test_B164_dimensions_where_the_model_was_trained_for_them(client, server):
    for encoding in ("float", "base64"):
        answer = client.embeddings.create(
            model="sums", input="a", dimensions=16, encoding_format=encoding
        )
        vector = answer.data[0].embedding
        if isinstance(vector, str):  # asked for by name, it is not decoded by the client
            vector = np.frombuffer(base64.b64decode(vector), dtype="<f4")
        assert len(vector) == 16
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)
        assert cosine(vector, of_text("a", dimensions=16)) > 0.9999
    assert error_of(server.post(EMBEDDINGS, input="a", dimensions=8))["param"] == "dimensions"
    plain = server.post(EMBEDDINGS, input="a", model="plain", dimensions=16)
    assert "cannot be cut" in error_of(plain)["message"]
    whole = server.post(EMBEDDINGS, input="a", model="plain", dimensions=64).json()
    assert len(whole["data"][0]["embedding"]) == 64


def test_B01_too_long_texts_are_refused_in_the_known_words_or_cut(server):
    error = error_of(server.post(EMBEDDINGS, input=["a", "x" * 300]))
    assert "maximum context length is 256 tokens" in error["message"]
    assert "301 tokens" in error["message"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input")
    assert server.post(EMBEDDINGS, input="x" * 255).status_code == 200
    cut = server.post(EMBEDDINGS, input="x" * 300, truncate_prompt_tokens=10).json()
    assert cut["usage"]["prompt_tokens"] == 10
    assert cosine(cut["data"][0]["embedding"], of_text("x" * 9)) > 0.9999


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": ["a", 1]}, "input"),
        ({"input": [[1.5]]}, "input"),
        ({"input": [99_999]}, "input"),
        ({"input": 3}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": "a", "messages": [{"role": "user", "content": "b"}]}, "input"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "pooling": "cls"}, "pooling"),
        ({"input": "a", "stream": True}, "stream"),
        ({"input": "a", "task": "classify"}, "task"),
        ({"input": "a", "endianness": "big"}, "endianness"),
        ({"input": "a", "priority": "high"}, "priority"),
        ({"input": "a", "cache_salt": ""}, "cache_salt"),
    ],
)
def test_wrong_requests_name_the_field(server, body, param):
    for path in (EMBEDDINGS, "/pooling"):
        assert error_of(server.post(path, body))["param"] == param


def test_unknown_fields_are_told_and_unknown_models_are_404(server):
    answer = server.post(EMBEDDINGS, input="a", user="me", cache_salt="s", dimension=3)
    assert answer.status_code == 200
    assert answer.headers["X-Octavo-Ignored-Fields"] == "dimension"
    assert error_of(server.post(EMBEDDINGS, input="a", model="no"), 404)["param"] == "model"


def test_a_conversation_is_one_text_without_the_tokenizers_end(server):
    messages = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"}]
    answer = server.post(EMBEDDINGS, messages=messages).json()
    assert answer["usage"]["prompt_tokens"] == 3
    expected = expected_vector(LLAMA, list(b"abc"), "last")
    assert cosine(answer["data"][0]["embedding"], expected) > 0.9999
    assert error_of(server.post(EMBEDDINGS, messages=[]))["param"] == "messages"


def test_pooling_answers_in_vllms_shape(server):
    answer = server.post("/pooling", input=["a", "bb"], use_activation=False, task="embed").json()
    found = [(one["index"], one["object"]) for one in answer["data"]]
    assert found == [(0, "pooling"), (1, "pooling")]
    vector = answer["data"][1]["data"]
    assert cosine(vector, of_text("bb")) > 0.9999
    assert np.linalg.norm(vector) != pytest.approx(1, abs=0.01)
    assert answer["id"].startswith("pool-")


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
@pytest.mark.parametrize(
    ("first", "second"),
    [("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2")],
)
def test_scores_of_one_with_many(server, path, first, second):
    texts = ["the sea", "the see", "12345"]
    answer = server.post(path, {first: "the sea", second: texts}).json()
    assert [(one["index"], one["object"]) for one in answer["data"]] == [
        (index, "score") for index in range(3)
    ]
    for text, one in zip(texts, answer["data"], strict=True):
        assert one["score"] == pytest.approx(float(of_text("the sea") @ of_text(text)), abs=1e-4)
    assert answer["usage"]["prompt_tokens"] == 8 + 8 + 8 + 6


def test_scores_of_pairs_and_of_what_is_no_pair(server):
    pairs = server.post("/score", text_1=["a", "bc"], text_2=["a", "d"]).json()["data"]
    assert pairs[0]["score"] == pytest.approx(1)
    assert pairs[1]["score"] == pytest.approx(float(of_text("bc") @ of_text("d")), abs=1e-4)
    assert (
        "2 texts cannot"
        in error_of(server.post("/score", text_1=["a", "b"], text_2="a"))["message"]
    )
    for body in ({"text_1": "a"}, {"text_1": "a", "data_1": "b", "text_2": "c"}):
        assert "give one of" in error_of(server.post("/score", body))["message"]
    assert error_of(server.post("/score", text_1="a", text_2=[]))["param"] == "text_2"


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_documents_are_ranked(server, path):
    texts = ["12345", "the sea", "the see"]
    documents = [texts[0], {"text": texts[1], "id": 7}, texts[2]]
    answer = server.post(path, query="the sea", documents=documents).json()
    results = answer["results"]
    scores = [float(of_text("the sea") @ of_text(text)) for text in texts]
    assert [one["index"] for one in results] == sorted(range(3), key=lambda i: -scores[i])
    for one in results:
        assert one["document"] == {"text": texts[one["index"]]}
        assert one["relevance_score"] == pytest.approx(scores[one["index"]], abs=1e-4)
    assert answer["usage"]["total_tokens"] == 30
    best = server.post(path, query="the sea", documents=documents, top_n=1, return_documents=False)
    assert best.json()["results"] == [
        {"index": 1, "relevance_score": results[0]["relevance_score"]}
    ]
    assert error_of(server.post(path, query="a", documents=[]))["param"] == "documents"
    assert error_of(server.post(path, query="a", documents=["b"], top_n=-1))["param"] == "top_n"


def test_classes_are_refused_in_words(server):
    assert "no model here tells classes" in error_of(server.post("/classify", input="a"))["message"]


def test_many_requests_at_once_and_one_that_leaves(server):
    """Vectors are counted like texts, and a client that goes away leaves nothing behind."""
    before = ended(server, "stop"), ended(server, "abort")
    inputs = [[random_prompt(num, num)] for num in (5, 40, 100, 200)]
    answers = {}

    def ask(number):
        answers[number] = server.post(EMBEDDINGS, input=inputs[number % 4], pooling="mean").json()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, answer in answers.items():
        expected = expected_vector(LLAMA, inputs[number % 4][0], "mean")
        assert cosine(answer["data"][0]["embedding"], expected) > 0.9999
    many = {"input": [random_prompt(200, seed) for seed in range(200)], "pooling": "mean"}
    server.send_and_leave(EMBEDDINGS, many, after_s=0.3)
    server.until(lambda: ended(server, "stop") + ended(server, "abort") == sum(before) + 212)
    assert ended(server, "stop") >= before[0] + 12
    assert ended(server, "abort") > before[1]
    server.until(lambda: gauge(server, "num_requests_running") == 0)


def test_a_request_may_not_take_longer_than_the_server_lets_it(tmp_path):
    path = save_byte_model(LLAMA, Path(tmp_path))
    with octavo_serve(path, *FLAGS, "--request-timeout-s", "0.4") as limited:
        many = [random_prompt(200, seed) for seed in range(500)]
        error = error_of(limited.post(EMBEDDINGS, input=many, pooling="mean"), 504)
        assert error["code"] == "request_timeout"
        limited.until(limited.is_idle)
        assert limited.post(EMBEDDINGS, input="a").status_code == 200


def test_a_file_of_requests_is_answered_with_vectors(tmp_path):
    path = save_byte_model(LLAMA, Path(tmp_path))
    asked, answered = tmp_path / "asked.jsonl", tmp_path / "answered.jsonl"
    bodies = {EMBEDDINGS: {"input": "ab"}, "/v1/score": {"text_1": "a", "text_2": "a"}}
    lines = [
        json.dumps({"custom_id": url, "method": "POST", "url": url, "body": body})
        for url, body in bodies.items()
    ]
    asked.write_text("\n".join(lines))
    command = [sys.executable, "-m", "octavo", "run-batch", "-i", asked, "-o", answered]
    subprocess.run([*command, "--model", path, *FLAGS], check=True, capture_output=True)
    found = [json.loads(line) for line in answered.read_text().splitlines()]
    bodies = {one["custom_id"]: one["response"]["body"] for one in found}
    vector = bodies[EMBEDDINGS]["data"][0]["embedding"]
    assert cosine(vector, expected_vector(LLAMA, list(b"ab"), "last")) > 0.9999
    assert bodies["/v1/score"]["data"][0]["score"] == pytest.approx(1)


def test_a_guarded_server_guards_these_routes(tmp_path):
    path = save_byte_model(LLAMA, Path(tmp_path))
    with octavo_serve(path, *FLAGS, "--api-key", "secret", "--strict-fields") as guarded:
        bodies = {
            EMBEDDINGS: {"input": "a"},
            "/pooling": {"input": "a"},
            "/score": {"text_1": "a", "text_2": "b"},
            "/rerank": {"query": "a", "documents": ["b"]},
        }
        for path, body in bodies.items():
            assert guarded.post(path, body).status_code == 401
            headers = {"Authorization": "Bearer secret"}
            answer = guarded.http.post(path, json=body, headers=headers)
            assert answer.status_code == 200
            refused = guarded.http.post(path, json={**body, "inputs": 1}, headers=headers)
            assert error_of(refused)["param"] == "inputs"
