"""What stands before a server's routes: keys, other sites' pages, the time of a request."""

import json
import shutil
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from octavo.config.schema import ServerConfig
from server_process import run_to_exit, scripted_server_process

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


def test_a_search_that_takes_too_long_is_ended(hurried):
    answer = hurried.post(COMPLETIONS, **LONG, use_beam_search=True, n=3)
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "request_timeout"
    hurried.until(hurried.is_idle)
    num_tokens = hurried.metrics()["generation_tokens_total"]
    assert hurried.post(COMPLETIONS, prompt="hi").json()["choices"][0]["text"] == "hi"
    assert hurried.metrics()["generation_tokens_total"] <= num_tokens + 3


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


def test_no_page_may_steer_the_server_unless_its_site_is_listed(hurried, guarded):
    answer = hurried.http.post("/sleep", headers={"Origin": "http://evil.example"})
    assert answer.status_code == 403
    assert "may not steer" in answer.json()["error"]["message"]
    assert hurried.http.post("/pause", headers={"Origin": "null"}).status_code == 403
    assert hurried.post("/v1/completions", prompt="hi").status_code == 200
    key = {"Authorization": "Bearer secret"}
    assert guarded.http.post("/pause", headers=SITE | key).status_code == 200
    assert guarded.http.post("/resume", headers=key).status_code == 200


# ---------------------------------------------------------------------- who leaves while it waits


def test_clients_that_leave_at_a_pause_take_nothing_from_those_that_stay():
    script = {"max_num_seqs": 1, "max_num_queued_reqs": 3}
    with scripted_server_process(script=script) as server:
        assert server.http.post("/pause").status_code == 200
        for _ in range(6):
            server.send_and_leave(COMPLETIONS, {"prompt": "gone"}, after_s=0.05)
        server.until(lambda: server.http.get("/load").json() == {"server_load": 0})
        with ThreadPoolExecutor(4) as threads:
            waiting = [threads.submit(server.post, COMPLETIONS, prompt="hi") for _ in range(3)]
            server.until(lambda: server.http.get("/load").json() == {"server_load": 3})
            late = server.post(COMPLETIONS, prompt="hi")
            assert late.status_code == 503
            assert late.json()["error"]["code"] == "queue_full"
            assert server.http.post("/resume").status_code == 200
            assert [one.result().status_code for one in waiting] == [200, 200, 200]
        assert server.metrics()["prompt_tokens_total"] == 3 * 2


# ---------------------------------------------------------------------- HTTPS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not here")
    folder = tmp_path_factory.mktemp("tls")
    chain, key = folder / "chain.pem", folder / "key.pem"
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    command = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
    files = ("-keyout", str(key), "-out", str(chain))
    subprocess.run([*command, "-nodes", "-days", "2", *subject, *files], check=True)
    return {"ssl_certfile": str(chain), "ssl_keyfile": str(key)}


def test_a_server_with_a_certificate_speaks_https_and_no_http(certificate):
    trust = ssl.create_default_context(cafile=certificate["ssl_certfile"])
    with scripted_server_process(verify=trust, **certificate) as server:
        assert server.url.startswith("https://")
        assert server.post(COMPLETIONS, prompt="hi").json()["choices"][0]["text"] == "hi"
        assert server.events(COMPLETIONS, prompt="hi")
        plain = server.url.replace("https://", "http://")
        with pytest.raises(httpx.TransportError):
            httpx.get(plain + "/health")
        with pytest.raises(httpx.ConnectError, match="certificate"):
            httpx.get(server.url + "/health")
        assert server.http.get("/health").status_code == 200
        assert server.stop() == 0


def test_a_client_must_show_a_certificate_where_authorities_are_named(certificate):
    chain, key = certificate["ssl_certfile"], certificate["ssl_keyfile"]
    trust = ssl.create_default_context(cafile=chain)
    trust.load_cert_chain(chain, key)
    with scripted_server_process(verify=trust, ssl_ca_certs=chain, **certificate) as server:
        assert server.http.get("/health").status_code == 200
        stranger = ssl.create_default_context(cafile=chain)
        with pytest.raises(httpx.TransportError):
            httpx.get(server.url + "/health", verify=stranger)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--ssl-keyfile", "key.pem"), "ssl-keyfile is given without a certificate"),
        (("--ssl-certfile", "nowhere.pem"), "the certificate 'nowhere.pem' cannot be used"),
        (("--ssl-certfile", __file__), "not valid PEM"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_told_at_once(flags, said):
    code, error, seconds = run_to_exit("smollm2", "--port", "0", *flags)
    assert code == 2
    assert said in error
    assert seconds < 10
