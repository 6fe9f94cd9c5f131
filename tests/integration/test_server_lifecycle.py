"""How servers start, fail to start, lose their engine, and end."""

import http.client
import json
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest
import torch

from byte_models import save_tokenizer
from checkpoints import write_safetensors
from server_process import OCTAVO, SCRIPTED, run_to_exit, scripted_server_process

COMPLETIONS = "/v1/completions"
LONG = {"prompt": "go on", "ignore_eos": True, "max_tokens": 100_000}
SCRIPT = {"max_model_len": 200_000, "step_ms": 3.0}


def start_stream(server, results, **fields):
    """Stream in a thread; the text of the whole answer is appended to `results`."""

    def stream():
        try:
            body = {**LONG, "stream": True, **fields}
            with httpx.stream("POST", server.url + COMPLETIONS, json=body, timeout=30) as response:
                results.append("".join(response.iter_text()))
        except httpx.HTTPError as error:
            results.append(repr(error))

    thread = threading.Thread(target=stream)
    thread.start()
    return thread


def wait_for_running(server, number):
    server.until(lambda: server.metrics()["num_requests_running"] == number)


# ---------------------------------------------------------------------- an engine that dies


def test_B148_requests_of_a_killed_engine_get_an_error_and_the_next_ones_answers():
    with scripted_server_process(script=SCRIPT) as server:
        texts = []
        threads = [start_stream(server, texts) for _ in range(8)]
        whole = []
        threads.append(
            threading.Thread(target=lambda: whole.append(server.post(COMPLETIONS, LONG)))
        )
        threads[-1].start()
        wait_for_running(server, 9)
        before = server.metrics()
        server.engine.send_signal(signal.SIGKILL)
        killed_s = time.monotonic()
        for thread in threads:
            thread.join()
        assert time.monotonic() - killed_s < 2
        assert len(texts) == 8
        for text in texts:
            last, done = text.rstrip().split("\n\n")[-2:]
            assert done == "data: [DONE]"
            assert json.loads(last.removeprefix("data: "))["error"]["code"] == "engine_unavailable"
        assert whole[0].status_code == 503
        assert whole[0].headers["Retry-After"]
        server.until(lambda: server.http.get("/health").status_code == 200)
        assert server.post(COMPLETIONS, prompt="hi").json()["choices"][0]["text"] == "hi"
        after = server.metrics()
        assert after["generation_tokens_total"] >= before["generation_tokens_total"]
        assert after["num_requests_running"] == 0
        assert server.stop() == 0


def test_B148_health_is_503_while_there_is_no_engine():
    with scripted_server_process(script={**SCRIPT, "start_s": 0.6}) as server:
        server.engine.kill()
        server.until(lambda: server.http.get("/health").status_code == 503)
        body = server.http.get("/health").json()
        refused = server.post(COMPLETIONS, prompt="hi")
        metrics = server.metrics()
        server.until(lambda: server.http.get("/health").status_code == 200)

        assert body["error"]["code"] == "engine_unavailable"
        assert refused.status_code == 503
        assert metrics["engine_up"] == 0
        assert server.metrics()["engine_up"] == 1


def test_B148_a_crash_loop_ends_the_server_with_an_error():
    server = scripted_server_process(script=SCRIPT)
    fatal = {**LONG, "vllm_xargs": {"die_at": 2}}

    def keep_killing():
        while server.process.poll() is None:
            try:
                httpx.post(server.url + COMPLETIONS, json=fatal, timeout=10)
            except httpx.HTTPError:
                time.sleep(0.05)

    thread = threading.Thread(target=keep_killing)
    thread.start()
    try:
        assert server.process.wait(20) == 1
    finally:
        code = server.stop()
        thread.join()
    assert code == 1
    assert "error: the engine died 3 times in a row" in server.log


def test_a_hung_step_makes_health_bad_and_a_long_one_does_not():
    with scripted_server_process(script={**SCRIPT, "max_num_seqs": 4}) as server:
        texts = []
        hang = start_stream(server, texts, max_tokens=3, vllm_xargs={"hang_s": 6.0})
        time.sleep(2.0)
        assert server.http.get("/health").status_code == 200
        time.sleep(3.5)
        response = server.http.get("/health")
        hang.join()
        assert response.status_code == 503
        assert "step has run for" in response.json()["error"]["message"]
        assert server.http.get("/health").status_code == 200


def test_the_log_says_what_is_loaded_before_it_says_that_it_is_served():
    with scripted_server_process() as server:
        loading, serving = server.log.find("loading "), server.log.find(" serves ")
    assert 0 <= loading < serving


# ---------------------------------------------------------------------- the end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_requests_end_and_exits_with_0(number):
    server = scripted_server_process(script=SCRIPT)
    texts = []
    thread = start_stream(server, texts, max_tokens=200)
    wait_for_running(server, 1)

    code = server.stop(number)
    thread.join()

    assert code == 0
    assert texts[0].count("data: {") > 20
    assert '"finish_reason":"length"' in texts[0]
    assert texts[0].endswith("data: [DONE]\n\n")
    with pytest.raises(ConnectionRefusedError), socket.create_connection(server.address):
        pass


def test_a_signal_to_the_whole_group_drains_too():
    """What Ctrl-C in a terminal and a service manager's stop do."""
    server = scripted_server_process(script=SCRIPT)
    engine = server.engine
    texts = []
    thread = start_stream(server, texts, max_tokens=200)
    wait_for_running(server, 1)
    engine.send_signal(signal.SIGTERM)

    assert server.stop(signal.SIGTERM) == 0
    thread.join()
    assert '"finish_reason":"length"' in texts[0]


@pytest.mark.parametrize("how", ["second signal", "timeout"])
def test_requests_that_do_not_end_are_ended_with_an_error(how):
    limit_s = 0.5 if how == "timeout" else 60
    server = scripted_server_process(script=SCRIPT, shutdown_timeout_s=limit_s)
    texts = []
    thread = start_stream(server, texts)
    wait_for_running(server, 1)
    start_s = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    if how == "second signal":
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)

    code = server.process.wait(10)
    thread.join()

    assert code == 0
    assert time.monotonic() - start_s < 4
    assert "the server is shutting down" in texts[0]
    assert server.stop() == 0


def test_the_engine_goes_when_the_server_is_killed():
    server = scripted_server_process(script=SCRIPT)
    engine = server.engine
    server.process.kill()
    engine.wait(5)
    server.stop()


def test_a_signal_while_the_engine_loads_leaves_nothing():
    started = subprocess.Popen(
        [*SCRIPTED, json.dumps({"script": {"start_s": 60}})], stderr=subprocess.DEVNULL
    )
    process = psutil.Process(started.pid)
    deadline_s = time.monotonic() + 10
    while not process.children() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    time.sleep(1.0)
    (engine,) = process.children()
    started.terminate()

    assert started.wait(5) == 0
    assert not psutil.pid_exists(engine.pid)


def test_an_idle_server_uses_no_cpu():
    with scripted_server_process(script=SCRIPT) as server:
        server.post(COMPLETIONS, prompt="hi")
        processes = [psutil.Process(server.process.pid), server.engine]
        for _ in range(5):  # what is left of the request takes its time on a busy machine
            before = [process.cpu_times() for process in processes]
            time.sleep(1.2)
            after = [process.cpu_times() for process in processes]
            pairs = zip(before, after, strict=True)
            used = [b.user + b.system - a.user - a.system for a, b in pairs]
            # a tick a second keeps the Date header
            if used[0] <= 0.02 and used[1] <= 0.01:
                return

        pytest.fail(f"it goes on working: {used} s of CPU in 1.2 s")


# ---------------------------------------------------------------------- keys and limits


def test_keys_guard_every_route_but_health():
    with scripted_server_process(script=SCRIPT, api_key=["one", "two"]) as server:
        for method, path in (
            ("GET", "/v1/models"), ("GET", "/metrics"), ("GET", "/version"),
            ("POST", COMPLETIONS), ("GET", "/nowhere"), ("GET", "/health/"),
        ):  # fmt: skip
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "one"}):
                response = server.http.request(method, path, headers=headers)
                assert response.status_code == 401, (path, headers)
                assert response.json()["error"]["code"] == "invalid_api_key"
        assert server.http.get("/health").status_code == 200
        for headers in (
            {"Authorization": "Bearer one"}, {"Authorization": "bearer two"}, {"X-Api-Key": "two"},
        ):  # fmt: skip
            assert server.http.get("/v1/models", headers=headers).status_code == 200
        assert "wrong" not in server.log
        assert "two" not in server.log


def test_bodies_above_the_limit_are_refused_unread():
    with scripted_server_process(script=SCRIPT, max_body_bytes=1000) as server:
        announced = server.http.post(COMPLETIONS, content=b"x" * 1001)
        chunked = server.http.post(COMPLETIONS, content=iter([b"x" * 400] * 3))
        connection = http.client.HTTPConnection(*server.address, timeout=5)
        connection.putrequest("POST", COMPLETIONS)
        connection.putheader("Content-Length", str(10**12))
        connection.endheaders()
        unsent = connection.getresponse()  # though not one byte of the body was sent
        connection.close()

        for response in (announced, chunked):
            assert response.status_code == 413
            assert response.json()["error"]["code"] == "request_too_large"
        assert unsent.status == 413
        good = server.post(COMPLETIONS, prompt="hi")
        assert good.status_code == 200


def test_strict_servers_refuse_unknown_fields():
    with scripted_server_process(script=SCRIPT, strict_fields=True) as server:
        response = server.post(COMPLETIONS, prompt="hi", max_token=5)

        assert response.status_code == 400
        assert response.json()["error"]["param"] == "max_token"
        search = {"prompt": "hi", "use_beam_search": True, "temperature": 1}
        assert server.post(COMPLETIONS, search).status_code == 200
        response = server.post(COMPLETIONS, search | {"temperature": 0.5})
        assert response.json()["error"]["param"] == "temperature"  # nothing is drawn


def test_json_logs_are_json():
    with scripted_server_process(script=SCRIPT, log_format="json") as server:
        server.post(COMPLETIONS, prompt="hi")
        server.until(lambda: COMPLETIONS in server.log)  # the line follows the answer
        entries = [json.loads(line) for line in server.log.splitlines()]

        assert entries[-1]["path"] == COMPLETIONS
        assert entries[-1]["status"] == 200
        assert len(entries[-1]["request_id"]) == 32


# ---------------------------------------------------------------------- starts that cannot work


def test_B150_a_port_in_use_is_told_before_anything_is_loaded(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, stderr, seconds = run_to_exit("smollm2", "--host", "127.0.0.1", "--port", str(port))

    assert code == 2
    assert stderr.startswith(f"error: cannot listen on 127.0.0.1:{port}\n  the port is in use\n")
    assert "Traceback" not in stderr
    assert seconds < 5


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (["smollm2", "--chat-template", "/no/such/file"], 2, "cannot read the chat template"),
        (["/no/such/folder"], 1, "/no/such/folder"),
        (["smollm2", "--scheduler", "prioritty"], 2, "unknown scheduler 'prioritty'"),
        (["smollm2", "--max-num-seqz", "3"], 2, "unknown flag"),
        (["smollm2", "--host", "no.such.host.invalid"], 2, "unknown host"),
        ([], 2, "no model was named"),
        (["--served-model-name", "a", "smollm2"], 2, "here a smollm2: MODEL comes before it"),
    ],
)
def test_B150_what_cannot_work_is_told_soon_in_one_message(flags, code, said):
    found, stderr, seconds = run_to_exit(*flags, "--port", "0")

    assert found == code
    assert said in stderr
    assert stderr.count("error:") == 1
    assert "Traceback" not in stderr
    assert seconds < 5


def test_B150_a_truncated_model_is_told_soon(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF\x03\x00\x00\x00" + b"\x01" * 60)

    code, stderr, seconds = run_to_exit(str(path), "--port", "0")

    assert code == 1
    assert str(path) in stderr
    assert "Traceback" not in stderr
    assert seconds < 5


def test_B150_what_the_engine_finds_wrong_is_told_in_one_message(tmp_path):
    """Behind the ports and flags: a context that the model has not, and (B137) a lost shard."""
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 258,
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    }  # fmt: skip
    shards = [{"model.norm.weight": torch.ones(32)}, {"lm_head.weight": torch.ones(258, 32)}]
    folder = save_tokenizer(write_safetensors(tmp_path, config, shards))
    (folder / "model-00002-of-00002.safetensors").unlink()
    long = ("--load-format", "dummy", "--max-model-len", "100000")
    with ThreadPoolExecutor(2) as pool:
        runs = pool.map(lambda flags: run_to_exit(str(folder), *flags, "--port", "0"), (long, ()))
    for (code, stderr, seconds), said in zip(
        runs,
        (
            "max-model-len 100000 is more than the model allows",
            "model-00002-of-00002.safetensors, which holds 'lm_head.weight'",
        ),
        strict=True,
    ):
        assert code == 1
        assert said in stderr
        assert stderr.count("error:") == 1
        assert "Traceback" not in stderr
        assert seconds < 10


def test_B150_an_engine_that_cannot_start_ends_the_server_with_its_error():
    options = {"script": {"start_error": "model.gguf is truncated"}}
    done = subprocess.run(
        [*SCRIPTED, json.dumps(options)], capture_output=True, text=True, timeout=20,
        check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert "error: model.gguf is truncated\n  the file is scripted to be wrong\n" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_is_there_without_heavy_imports():
    start_s = time.monotonic()
    done = subprocess.run([*OCTAVO, "--help"], capture_output=True, text=True, check=False)

    assert done.returncode == 0
    assert "--max-num-seqs" in done.stdout
    assert time.monotonic() - start_s < 5
