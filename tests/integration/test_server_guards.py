"""What stands before a server's routes: keys, other sites' pages, the time of a request."""

import json

import pytest

from octavo.config.schema import ServerConfig
from server_process import scripted_server_process

COMPLETIONS = "/v1/completions"
LONG = {"prompt": "go on", "ignore_eos": True, "max_tokens": 100_000}
SLOW = {"step_ms": 20.0, "max_model_len": 200_000}
SITE = {"Origin": "https://app.example"}
ASKS = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}


@pytest.fixture(scope="module")
def hurried():
    with scripted_server_process(request_timeout_s=0.6, script=SLOW) as server:
        yield server


@pytest.fixture(scope="module")
def guarded():
    options = {"api_key": ["secret"], "allowed_origins": ["https://app.example"]}
    with scripted_server_process(**options, open_metrics=True) as server:
        yield server


def test_a_request_that_takes_too_long_is_ended_and_leaves_nothing(hurried):
    answer = hurried.post(COMPLETIONS, LONG)
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "request_timeout"
    assert "longer than 0.6 s" in answer.json()["error"]["message"]
    hurried.until(hurried.is_idle)
    assert hurried.post(COMPLETIONS, prompt="hi").json()["choices"][0]["text"] == "hi"


def test_a_stream_that_takes_too_long_ends_with_an_error(hurried):
    *parts, last = hurried.events(COMPLETIONS, **LONG)
    assert len(parts) > 5
    assert last["error"]["code"] == "request_timeout"
    hurried.until(hurried.is_idle)


def test_a_request_whose_engine_does_not_answer_is_ended(hurried):
    answer = hurried.post(COMPLETIONS, prompt="hi", vllm_xargs={"hang_s": 2.0})
    assert answer.status_code == 504
    hurried.until(hurried.is_idle)


def test_a_page_of_a_listed_site_may_ask(guarded):
    asked = guarded.http.options(COMPLETIONS, headers=SITE | ASKS)
    assert asked.status_code == 204
    assert asked.headers["Access-Control-Allow-Origin"] == SITE["Origin"]
    key = {"Authorization": "Bearer secret"}
    answer = guarded.http.post(COMPLETIONS, json={"prompt": "hi"}, headers=SITE | key)
    assert answer.status_code == 200
    assert answer.headers["Access-Control-Allow-Origin"] == SITE["Origin"]


def test_a_page_of_a_listed_site_can_read_that_its_key_is_wrong(guarded):
    answer = guarded.http.post(COMPLETIONS, json={"prompt": "hi"}, headers=SITE)
    assert answer.status_code == 401
    assert answer.headers["Access-Control-Allow-Origin"] == SITE["Origin"]


def test_a_page_of_another_site_may_not(guarded):
    asked = guarded.http.options(COMPLETIONS, headers={"Origin": "https://other.example"} | ASKS)
    assert asked.status_code == 400
    answer = guarded.http.get("/health", headers={"Origin": "https://other.example"})
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_no_page_may_ask_where_no_site_is_listed(hurried):
    asked = hurried.http.options(COMPLETIONS, headers=SITE | ASKS)
    assert "Access-Control-Allow-Origin" not in asked.headers
    answer = hurried.http.post(COMPLETIONS, json={"prompt": "hi"}, headers=SITE)
    assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("GET", "/metrics", 200),
        ("GET", "/v1/models", 401),
        ("GET", "/version", 401),
        ("POST", COMPLETIONS, 401),
        ("GET", "/nowhere", 401),
    ],
)
def test_a_key_guards_all_but_what_is_open(guarded, method, path, status):
    assert guarded.http.request(method, path).status_code == status


def test_a_list_of_sites_may_be_written_as_vllm_has_it():

    sites = ["https://a.example", "https://b.example"]
    assert ServerConfig(allowed_origins=json.dumps(sites)).allowed_origins == tuple(sites)
