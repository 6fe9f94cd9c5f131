"""Several models in one server: loaded when they are asked for, unloaded when nobody asks."""

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

from server_process import octavo_serve, run_to_exit, scripted_server_process

COMPLETIONS = "/v1/completions"
TWO = [["first", "alias"], ["second"]]
GREEDY = {"max_tokens": 4, "temperature": 0}


def engines(server):
    return psutil.Process(server.process.pid).children()


def status(server):
    return {
        card["id"]: card["status"]["value"] for card in server.http.get("/v1/models").json()["data"]
    }


def text_of(server, model, **fields):
    answer = server.post(COMPLETIONS, model=model, prompt="hi", **fields)
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == model
    return answer.json()["choices"][0]["text"]


def test_the_first_is_loaded_at_once_and_others_with_their_first_request():
    with scripted_server_process(models=TWO) as server:
        assert status(server) == {"first": "loaded", "alias": "loaded", "second": "unloaded"}
        assert len(engines(server)) == 1
        assert text_of(server, "first") == "hi"
        assert text_of(server, "second") == "hi"
        assert len(engines(server)) == 2
        assert status(server)["second"] == "loaded"
        assert server.http.get("/health").status_code == 200
        assert server.stop() == 0


def test_a_model_that_sleeps_is_not_loaded_by_requests():
    with scripted_server_process(models=TWO) as server:
        assert server.http.post("/sleep?model=second").status_code == 200
        assert server.post(COMPLETIONS, model="second", prompt="hi").status_code == 503
        assert text_of(server, "first") == "hi"
        assert len(engines(server)) == 1
        assert server.http.post("/wake_up").status_code == 200
        assert status(server)["second"] == "unloaded"
        assert text_of(server, "second") == "hi"
        assert server.http.post("/sleep").status_code == 200
        assert engines(server) == []
        assert server.http.post("/wake_up?model=second").status_code == 200
        assert text_of(server, "second") == "hi"
        assert server.post(COMPLETIONS, model="first", prompt="hi").status_code == 503


def test_many_who_ask_at_once_share_one_engine():
    with scripted_server_process(models=TWO) as server, ThreadPoolExecutor(12) as threads:
        texts = threads.map(lambda _: text_of(server, "second"), range(12))
        assert set(texts) == {"hi"}
        assert len(engines(server)) == 2


def test_who_leaves_while_a_model_is_loaded_takes_nothing_from_the_others():
    with scripted_server_process(models=TWO, second_script={"start_s": 1.0}) as server:
        with ThreadPoolExecutor(2) as threads:
            stays = threads.submit(text_of, server, "second")
            with pytest.raises(httpx.ReadTimeout):
                server.http.post(COMPLETIONS, json={"model": "second", "prompt": "hi"}, timeout=0.2)
            assert stays.result() == "hi"
        server.until(server.is_idle)


def test_an_idle_model_is_unloaded_and_comes_back_with_the_next_request():
    with scripted_server_process(models=TWO, idle_seconds=0.5) as server:
        assert text_of(server, "second") == "hi"
        server.until(lambda: not engines(server))
        assert set(status(server).values()) == {"unloaded"}
        assert server.http.get("/health").status_code == 200
        assert server.metrics()["engine_up"] == 0
        assert text_of(server, "first") == "hi"
        assert len(engines(server)) == 1
        assert server.stop() == 0


def test_a_model_in_use_is_not_unloaded():
    script = {"step_ms": 20.0, "max_model_len": 1000}
    with scripted_server_process(idle_seconds=0.3, script=script) as server:
        text = text_of(server, "scripted", ignore_eos=True, max_tokens=60)
        assert len(text) >= 60
        assert len(engines(server)) == 1


def test_a_model_that_cannot_be_loaded_is_told_and_tried_again():
    with scripted_server_process(
        models=TWO, second_script={"start_error": "no such weights"}
    ) as server:
        for _ in range(2):
            answer = server.post(COMPLETIONS, model="second", prompt="hi")
            assert answer.status_code == 503
            assert "no such weights" in answer.json()["error"]["message"]
        assert text_of(server, "first") == "hi"
        assert status(server)["second"] == "unloaded"


def test_a_dead_engine_of_one_model_leaves_the_others_alone():
    with scripted_server_process(models=TWO) as server:
        text_of(server, "second")
        second = max(engines(server), key=lambda one: one.create_time())
        second.kill()
        assert text_of(server, "first") == "hi"
        server.until(lambda: server.post(COMPLETIONS, model="second", prompt="hi").is_success)


def test_two_models_of_one_name_are_refused():
    code, error, _ = run_to_exit("smollm2", "smollm2")
    assert code == 2
    assert "two models are called 'smollm2'" in error
    assert "NAME=MODEL" in error


def test_one_name_for_several_models_is_refused():
    code, error, _ = run_to_exit("smollm2", "x=smollm2", "--served-model-name", "one")
    assert code == 2
    assert "--served-model-name one names one model, and 2 are given" in error


def test_one_model_under_two_names_of_which_one_is_loaded_later():
    with octavo_serve("small=smollm2", "again=smollm2", "--max-model-len", "256") as server:
        first = server.post(COMPLETIONS, model="small", prompt="The sky is", **GREEDY)
        second = server.post(COMPLETIONS, model="again", prompt="The sky is", **GREEDY)
        assert first.json()["choices"] == second.json()["choices"]
        started_s = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started_s < 10
