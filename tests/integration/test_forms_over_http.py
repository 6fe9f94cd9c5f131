"""Forms of answers over HTTP: kept in streams and whole answers, refused with 400, bounded."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor

import openai
import psutil
import pytest

from byte_models import save_dummy_model
from server_process import octavo_serve

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "an order"}]
ORDER = {
    "type": "object",
    "properties": {"title": {"type": "string", "maxLength": 9}, "qty": {"enum": [1, 20, 300]}},
    "required": ["title", "qty"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "order", "schema": ORDER, "strict": True}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("bytes")
    save_dummy_model(path)
    flags = (
        *("--load-format", "dummy", "--max-model-len", "2048", "--max-logprobs", "-1"),
        *("--grammar.max-compile-s", "3", "--grammar.max-states", "500"),
    )
    with octavo_serve(str(path), *flags) as process:
        yield process
        assert process.stop() == 0


def is_order(text):
    data = json.loads(text)
    return (
        list(data) == ["title", "qty"] and len(data["title"]) <= 9 and data["qty"] in {1, 20, 300}
    )


def chat(server, **fields):
    return server.post(CHAT, messages=MESSAGES, seed=1, max_tokens=300, **fields)


def test_whole_and_streamed_answers_have_the_form(server):
    whole = chat(server, response_format=FORMAT).json()["choices"][0]
    events = server.events(CHAT, messages=MESSAGES, seed=1, max_tokens=300, response_format=FORMAT)
    deltas = [event["choices"][0]["delta"].get("content") or "" for event in events]

    assert whole["finish_reason"] == "stop"
    assert is_order(whole["message"]["content"])
    assert "".join(deltas) == whole["message"]["content"]


def test_the_forms_of_openais_client_and_of_vllms(server):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    model = client.models.list().data[0].id
    answer = client.chat.completions.create(
        model=model, messages=MESSAGES, response_format=FORMAT, seed=2, max_tokens=300, n=2
    )
    chosen = client.completions.create(
        model=model, prompt="x", extra_body={"structured_outputs": {"choice": ["up", "down"]}}
    )

    assert all(is_order(choice.message.content) for choice in answer.choices)
    assert chosen.choices[0].text in {"up", "down"}


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"guided_choice": ["up", "down"]}, "up|down"),
        ({"guided_regex": "[0-9]{4}"}, "[0-9]{4}"),
        ({"structured_outputs": {"grammar": 'start: "a"~3'}}, "aaa"),
        ({"response_format": {"type": "json_object"}, "max_tokens": 600, "seed": 5}, r"(?s)\{.*"),
    ],
)
def test_B03_older_names_work(server, fields, pattern):
    answer = server.post(COMPLETIONS, prompt="x", **fields)

    assert answer.status_code == 200
    assert "x-octavo-ignored-fields" not in answer.headers
    assert re.fullmatch(pattern, answer.json()["choices"][0]["text"])


def test_B71_min_tokens_and_a_form_that_ends_earlier(server):
    answer = chat(server, response_format=FORMAT, temperature=0, min_tokens=200).json()

    assert answer["choices"][0]["finish_reason"] == "stop"
    assert is_order(answer["choices"][0]["message"]["content"])


TAGS = {
    "type": "structural_tag",
    "structures": [{"begin": "<call>", "schema": ORDER, "end": "</call>"}],
    "triggers": ["<call"],
}
ONE_TAG = {
    "type": "structural_tag",
    "format": {
        "type": "tag", "begin": "<call>", "end": "</call>",
        "content": {"type": "json_schema", "json_schema": ORDER},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("response_format", "has_form"),
    [
        ({"type": "regex", "regex": "[0-9]{4}"}, re.compile("[0-9]{4}").fullmatch),
        ({"type": "grammar", "grammar": 'root ::= [a-c]{2} ("!" | "?")'},
         re.compile("[a-c]{2}[!?]").fullmatch),
        ({"type": "grammar", "grammar": "start: /[a-c]{2}/"}, re.compile("[a-c]{2}").fullmatch),
        (ONE_TAG, lambda text: is_order(text.removeprefix("<call>").removesuffix("</call>"))),
    ],
    ids=["regex", "gbnf", "lark", "tag"],
)  # fmt: skip
def test_every_type_of_response_format_is_held_to(server, response_format, has_form):
    (choice,) = chat(server, response_format=response_format).json()["choices"]

    assert choice["finish_reason"] == "stop"
    assert has_form(choice["message"]["content"])


def test_a_tag_that_was_begun_is_gone_on_with(server):
    # the text around tags is free: this model's is cut by its length, and holds no begun tag
    answer = chat(server, response_format=TAGS).json()["choices"][0]

    assert "<call" not in re.sub("<call>.*?</call>", "", answer["message"]["content"] or "")


def nested(num_levels):
    schema = {"type": "integer"}
    for _ in range(num_levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("fields", "param", "reason"),
    [
        ({"type": "notatype"}, "response_format", "Invalid type: notatype"),
        ({"$ref": "#/nope"}, "response_format", "'/nope' does not exist"),
        ([1], "response_format", "must be an object"),
        (nested(200), "response_format", "nested too deeply"),
        ({"type": "integer", "multipleOf": 99_999_989}, "response_format", "longer than 3 s"),
        ({"guided_regex": "(a+)+$(?=b)"}, "guided_regex", "look-around"),
        ({"structured_outputs": {"grammar": "root ::= <[7]>"}}, "structured_outputs", "no GBNF"),
    ],
    ids=["type", "ref", "list", "nested", "for ever", "look-ahead", "gbnf"],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_B69_what_does_not_compile_is_400_and_nobody_else_notices(
    server, fields, param, reason, is_stream
):
    body = fields
    if param == "response_format":
        body = {"response_format": {"type": "json_schema", "json_schema": {"schema": fields}}}
    free = {"prompt": "x", "seed": 7, "max_tokens": 60, "ignore_eos": True}
    alone = server.post(COMPLETIONS, **free).json()["choices"][0]["text"]
    started_s = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        bad = pool.submit(chat, server, stream=is_stream, **body)
        good = pool.submit(server.post, COMPLETIONS, **free)
        error = bad.result().json()["error"]

    assert bad.result().status_code == 400
    assert time.monotonic() - started_s < 20
    assert reason in error["message"]
    assert error["param"] == param
    assert good.result().json()["choices"][0]["text"] == alone


@pytest.mark.parametrize(
    ("fields", "param", "reason"),
    [
        ({"guided_regex": "[0-9]+", "allowed_token_ids": [97]}, "guided_regex", "none is left"),
        ({"guided_choice": ["no"], "bad_words": ["n"]}, "guided_choice", "none is left"),
        (
            {"structured_outputs": {"regex": "[ab]*a[ab]{12}"}, "ignore_eos": True},
            "structured_outputs",
            "too many states",
        ),
    ],
    ids=["allowed ids", "bad words", "states"],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_what_proves_impossible_only_while_it_runs_is_the_requests_fault(
    server, fields, param, reason, is_stream
):
    if is_stream:
        body = {"prompt": "x", "seed": 3, "max_tokens": 1000, **fields}
        error = server.events(COMPLETIONS, **body)[-1]["error"]
    else:
        answer = server.post(COMPLETIONS, prompt="x", seed=3, max_tokens=1000, **fields)
        assert answer.status_code == 400
        error = answer.json()["error"]

    assert reason in error["message"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


@pytest.mark.parametrize("field", ["logprobs", "prompt_logprobs"])
def test_no_limit_of_logprobs_means_the_whole_vocabulary(server, field):
    def ask(number):
        options = {field: number, "return_tokens_as_token_ids": True}
        return server.post(COMPLETIONS, prompt="xy", max_tokens=1, **options)

    choice = ask(-1).json()["choices"][0]
    if field == "logprobs":
        vocab_size = len(choice["logprobs"]["top_logprobs"][0])
    else:
        vocab_size = len(choice["prompt_logprobs"][1])
    assert vocab_size > 256
    assert ask(vocab_size).status_code == 200
    too_many = ask(vocab_size + 1)
    assert too_many.status_code == 400
    assert too_many.json()["error"]["param"] == field


def test_temperatures_that_no_device_can_divide_by_are_greedy(server):
    def text_at(temperature):
        answer = server.post(COMPLETIONS, prompt="x", temperature=temperature, min_k=3.0)
        return answer.json()["choices"][0]["text"]

    assert text_at(1e-300) == text_at(0)


def test_B156_grammars_are_kept_for_the_next_and_not_for_ever(server):
    def memory():
        return server.engine.memory_info().rss

    def ask(number):
        form = {"type": "json_schema", "json_schema": {"schema": {"enum": [f"n{number}", "x"]}}}
        answer = server.post(COMPLETIONS, prompt="x", response_format=form)
        assert json.loads(answer.json()["choices"][0]["text"]) in {f"n{number}", "x"}

    for number in range(60):
        ask(number)
    before = memory()
    for number in range(60, 200):
        ask(number)

    assert memory() - before < 10 * 2**20
    assert len(server.engine.children()) <= 2, "processes that compile on trial"


def test_processes_that_compile_on_trial_end_with_the_engine(tmp_path):
    save_dummy_model(tmp_path)
    with octavo_serve(str(tmp_path), "--load-format", "dummy") as process:
        assert process.post(COMPLETIONS, prompt="x", guided_regex="a").status_code == 200
        trials = process.engine.children()
        assert trials
        process.engine.kill()
        _, alive = psutil.wait_procs(trials, timeout=10)

    assert alive == []
