"""What operators ask of a running server: the real server and engine process, a scripted engine."""

import threading
import time

import httpx
import pytest

from server_process import scripted_server_process

COMPLETIONS = "/v1/completions"
LONG = {"prompt": "abc", "max_tokens": 100_000, "ignore_eos": True}
SEARCH = {"use_beam_search": True, "n": 2}


@pytest.fixture
def server():
    with scripted_server_process(script={"max_model_len": 200_000, "step_ms": 2.0}) as process:
        yield process
        assert process.stop() == 0


class Asking:
    """A request in a thread of its own."""

    def __init__(self, server, headers=None, **fields):
        self.answer = None
        self._server = server
        self._sent = headers or {}, fields
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self):
        headers, fields = self._sent
        self.answer = httpx.post(
            f"{self._server.url}{COMPLETIONS}", json=fields, headers=headers, timeout=60
        )

    def end(self):
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self.answer

    @property
    def is_running(self):
        return self._thread.is_alive()


def started(server, **fields):
    asking = Asking(server, **(LONG | fields))
    server.until(lambda: server.http.get("/load").json()["server_load"] > 0)
    return asking


def reason_of(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["finish_reason"]


def post(server, path, status=200):
    response = server.http.post(path)
    assert response.status_code == status, response.text
    return response.json()


def test_health_and_facts(server):
    assert server.http.get("/ready").json() == {"scripted": "ready"}
    assert server.http.get("/live").status_code == 200
    assert server.http.get("/ping").status_code == 200
    assert server.http.get("/load").json() == {"server_load": 0}
    info = server.http.get("/server_info").json()
    assert info["models"][0]["names"] == ["scripted", "second-name"]
    assert info["models"][0]["max_model_len"] == 200_000


def test_a_head_is_that_of_the_get(server):
    for path in ("/health", "/version", "/v1/models"):
        head, got = server.http.head(path), server.http.get(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == got.headers["content-length"]
    assert server.http.head(COMPLETIONS).status_code == 405


def test_a_paused_model_lets_new_requests_wait(server):
    running = started(server)

    assert post(server, "/pause") == {"status": "paused"}
    assert reason_of(running.end()) == "abort"
    assert server.http.get("/is_paused").json() == {"is_paused": True}
    assert server.http.get("/ready").status_code == 503
    waiting = Asking(server, prompt="hello")
    time.sleep(0.3)
    assert waiting.is_running
    assert post(server, "/resume") == {"status": "resumed"}
    assert waiting.end().json()["choices"][0]["text"] == "hello"


def test_what_runs_may_be_kept_where_it_is(server):
    running = started(server, max_tokens=200)

    post(server, "/pause?mode=keep")
    before = server.metrics()["generation_tokens_total"]
    time.sleep(0.3)
    assert server.metrics()["generation_tokens_total"] == before
    assert running.is_running
    post(server, "/resume")

    assert reason_of(running.end()) == "length"


def test_what_runs_may_end_first(server):
    running = started(server, max_tokens=100)

    post(server, "/pause?mode=wait")

    assert reason_of(running.end()) == "length"
    post(server, "/resume")
    search = started(server, max_tokens=60, **SEARCH)
    server.until(lambda: server.metrics()["generation_tokens_total"] > 105)
    post(server, "/pause?mode=wait")  # its later steps go on
    assert reason_of(search.end()) == "length"


def test_a_sleeping_model_has_no_process_and_refuses(server):
    engine = server.engine
    running = started(server)

    assert post(server, "/sleep?level=1") == {"status": "sleeping", "level": 1}
    assert reason_of(running.end()) == "abort"
    assert not engine.is_running()
    assert server.http.get("/is_sleeping").json() == {"is_sleeping": True}
    refused = server.post(COMPLETIONS, prompt="hello")
    assert refused.status_code == 503
    assert refused.headers["Retry-After"] == "1"
    assert "POST /wake_up" in refused.json()["error"]["message"]
    assert server.http.get("/ready").json() == {"scripted": "sleeping"}
    assert server.http.get("/health").status_code == 200
    assert post(server, "/wake_up") == {"status": "awake"}
    assert server.http.get("/is_sleeping").json() == {"is_sleeping": False}
    assert server.post(COMPLETIONS, prompt="hello").json()["choices"][0]["text"] == "hello"


def test_who_waits_at_a_pause_is_refused_when_the_model_sleeps(server):
    post(server, "/pause")
    waiting = Asking(server, prompt="hello")
    time.sleep(0.2)
    post(server, "/sleep?mode=wait")

    assert waiting.end().status_code == 503
    post(server, "/wake_up")
    assert server.post(COMPLETIONS, prompt="hello").status_code == 200


def test_requests_are_ended_by_their_ids(server):
    mine = started(server, headers={"X-Request-Id": "mine-1"})
    other = started(server, max_tokens=300, headers={"X-Request-Id": "mine-10"})

    answer = server.post("/abort_requests", request_ids=["mine-1", "cmpl-none"])

    assert answer.json() == {"aborted": 1}
    assert reason_of(mine.end()) == "abort"
    assert reason_of(other.end()) == "length"
    search = started(server, headers={"X-Request-Id": "mine-2"}, **SEARCH)
    assert server.post("/abort_requests", request_ids=["mine-2"]).json()["aborted"] >= 2
    assert reason_of(search.end()) == "abort"


def test_the_prefix_cache_is_reset_when_nothing_runs(server):
    assert post(server, "/reset_prefix_cache") == {"success": True}
    running = started(server)
    assert post(server, "/reset_prefix_cache") == {"success": False}
    post(server, "/reset_prefix_cache?reset_running_requests=true")
    assert reason_of(running.end()) == "abort"


@pytest.mark.parametrize(
    ("path", "param"),
    [("/sleep?level=3", "level"), ("/pause?mode=on", "mode"), ("/resume?modle=x", "modle")],
)
def test_wrong_parameters_are_refused(server, path, param):
    response = server.http.post(path)

    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_what_cannot_be_done_is_said(server):
    assert "POST /pause" in post(server, "/sleep?level=0", 400)["error"]["message"]
    assert "modes: abort, wait" in post(server, "/sleep?mode=keep", 400)["error"]["message"]
    assert post(server, "/sleep?model=other", 404)["error"]["code"] == "model_not_found"


def test_B12_no_route_but_the_probes_is_open_and_no_secret_is_shown():
    with scripted_server_process(api_key=["SECRET"]) as server:
        for path in ("/version", "/load", "/metrics", "/server_info", "/is_paused", "/v1/models"):
            assert server.http.get(path).status_code == 401, path
            assert server.http.get(f"/{path}").status_code == 401, path
            assert server.http.get(f"{path}/").status_code == 401, path
        for path in ("/sleep", "/pause", "/reset_prefix_cache", "/abort_requests", "/nowhere"):
            assert server.http.post(path).status_code == 401, path
        for path in ("/health", "/live", "/ready", "/ping"):
            assert server.http.get(path).status_code == 200, path
        key = {"Authorization": "Bearer SECRET"}
        assert "SECRET" not in server.http.get("/server_info", headers=key).text
        assert server.http.get("/is_paused", headers=key).json() == {"is_paused": False}
