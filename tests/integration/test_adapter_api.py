"""Adapters as models over HTTP: names, blends, loading and unloading; a scripted engine.

The engine answers a request that has adapters with their names and scales, so that what reached
it is what comes back.
"""

import threading

import pytest

from server_process import run_to_exit, scripted_server_process

CHAT, COMPLETIONS, MODELS = "/v1/chat/completions", "/v1/completions", "/v1/models"
LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
ASKED = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 99}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    for name in ("sql", "poem", "bad", "late"):
        (root / name).mkdir()
    (root.parent / "outside").mkdir(exist_ok=True)
    (root / "link").symlink_to(root.parent / "outside")
    (root / "inside").symlink_to(root / "sql")
    return root


@pytest.fixture(scope="module")
def server(root):
    modules = [f"sql={root / 'sql'}", f'{{"name": "poem", "path": "{root / "poem"}"}}']
    with scripted_server_process(lora_modules=modules, lora_root=str(root)) as process:
        yield process


def said(server, **fields):
    response = server.post(CHAT, ASKED | fields)
    assert response.status_code == 200, response.text
    answer = response.json()
    return answer["model"], answer["choices"][0]["message"]["content"]


def error_of(response, status=400):
    assert response.status_code == status, response.text
    return response.json()["error"]


def test_adapters_are_listed_with_the_model_that_they_change(server, root):
    cards = {card["id"]: card for card in server.http.get(MODELS).json()["data"]}
    assert list(cards) == ["scripted", "second-name", "sql", "poem"]
    assert cards["scripted"]["parent"] is None
    assert cards["sql"]["parent"] == cards["poem"]["parent"] == "scripted"
    assert cards["sql"]["root"] == str(root / "sql")
    assert cards["sql"]["max_model_len"] == cards["scripted"]["max_model_len"]
    assert server.http.get(f"{MODELS}/poem").json() == cards["poem"]


def test_the_model_of_a_request_names_an_adapter(server):
    assert said(server, model="sql") == ("sql", "sql*1")
    assert said(server, model="scripted") == ("scripted", "hi")
    assert said(server) == ("scripted", "hi")
    answer = server.post(COMPLETIONS, model="poem", prompt=["a", "b"], max_tokens=99).json()
    assert answer["model"] == "poem"
    assert [choice["text"] for choice in answer["choices"]] == ["poem*1", "poem*1"]


def test_streams_carry_the_adapters_name(server):
    events = server.events(CHAT, model="sql", **ASKED)
    assert {event["model"] for event in events} == {"sql"}
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert text == "sql*1"


def test_a_blend_is_a_field_beside_the_model(server):
    blend = [{"name": "sql", "scale": 0.5}, {"name": "poem", "scale": -2}]
    assert said(server, model="second-name", adapters=blend) == ("scripted", "sql*0.5+poem*-2")
    assert said(server, adapters=[{"name": "poem"}]) == ("scripted", "poem*1")
    assert said(server, adapters=[]) == ("scripted", "hi")
    text = server.post(COMPLETIONS, prompt="x", adapters=blend, max_tokens=99).json()
    assert text["choices"][0]["text"] == "sql*0.5+poem*-2"


@pytest.mark.parametrize(
    ("fields", "status", "param", "message"),
    [
        ({"model": "sq"}, 404, "model", "did you mean 'sql'?"),
        ({"adapters": [{"name": "nobody"}]}, 404, "adapters", "there is no adapter 'nobody'"),
        ({"model": "sql", "adapters": [{"name": "poem"}]}, 400, "adapters", "an adapter already"),
        ({"adapters": [{"name": "sql"}] * 2}, 400, "adapters", "named twice"),
        ({"adapters": [{"name": "sql", "weight": 1}]}, 400, "adapters", "weight"),
        ({"adapters": [{"name": "sql", "scale": "1"}]}, 400, "adapters", "float"),
        ({"adapters": "sql"}, 400, "adapters", "array"),
    ],
)
def test_what_names_no_adapter(server, fields, status, param, message):
    for path, asked in ((CHAT, ASKED), (COMPLETIONS, {"prompt": "x"})):
        error = error_of(server.post(path, asked | fields), status)
        assert error["param"] == param
        assert message in error["message"]


def test_loaded_used_and_unloaded_at_run_time(server, root):
    error = error_of(server.post(CHAT, ASKED | {"model": "late"}), 404)
    assert error["code"] == "model_not_found"
    response = server.post(LOAD, lora_name="late", lora_path=str(root / "late"))
    assert (response.status_code, response.text) == (
        200, "Success: LoRA adapter 'late' added successfully.",
    )  # fmt: skip
    assert response.headers["content-type"].startswith("text/plain")
    assert said(server, model="late") == ("late", "late*1")
    response = server.post(UNLOAD, lora_name="late", lora_int_id=3)
    assert (response.status_code, response.text) == (
        200, "Success: LoRA adapter 'late' removed successfully.",
    )  # fmt: skip
    error_of(server.post(CHAT, ASKED | {"model": "late"}), 404)
    error_of(server.post(UNLOAD, lora_name="late"), 404)
    assert "late" not in server.http.get(MODELS).text


def test_a_name_that_is_taken(server):
    error = error_of(server.post(LOAD, lora_name="sql", lora_path="poem"))
    assert error["param"] == "lora_name"
    assert "loaded already" in error["message"]
    error = error_of(server.post(LOAD, lora_name="second-name", lora_path="poem"))
    assert error["message"] == "'second-name' is the name of a model"
    ok = server.post(LOAD, lora_name="sql", lora_path="sql", load_inplace=True)
    assert ok.status_code == 200
    assert said(server, model="sql") == ("sql", "sql*1")


def test_one_of_many_loads_of_a_name_wins(server):
    codes = []

    def load():
        codes.append(server.post(LOAD, lora_name="race", lora_path="late").status_code)

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [200, 400, 400, 400]
    assert server.post(UNLOAD, lora_name="race").status_code == 200


@pytest.mark.parametrize(
    "path",
    ["..", "../outside", "sql/../../outside", "/", "/etc", "link", "link/x", "a\0b"],
)
def test_paths_outside_of_the_root_are_refused(server, path):
    error = error_of(server.post(LOAD, lora_name="x", lora_path=path))
    assert error["param"] == "lora_path"
    assert str(server.address) not in error["message"]


def test_a_link_within_the_root_is_followed(server, root):
    assert server.post(LOAD, lora_name="inside", lora_path="inside").status_code == 200
    card = server.http.get(f"{MODELS}/inside").json()
    assert card["root"] == str(root / "sql")
    server.post(UNLOAD, lora_name="inside")


def test_what_the_engine_refuses_is_not_served(server):
    error = error_of(server.post(LOAD, lora_name="b", lora_path="bad"))
    assert error["param"] == "lora_path"
    assert error["message"].startswith("it is scripted to be bad")
    error_of(server.post(CHAT, ASKED | {"model": "b"}), 404)


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (LOAD, {"lora_name": "x"}, "lora_path"),
        (LOAD, {"lora_path": "sql"}, "lora_name"),
        (LOAD, {"lora_name": "", "lora_path": "sql"}, "lora_name"),
        (LOAD, {"lora_name": "x\n", "lora_path": "sql"}, "lora_name"),
        (LOAD, {"lora_name": 3, "lora_path": "sql"}, "lora_name"),
        (LOAD, {"lora_name": "x" * 257, "lora_path": "sql"}, "lora_name"),
        (UNLOAD, {}, "lora_name"),
    ],
)
def test_bodies_that_are_wrong(server, path, fields, param):
    assert error_of(server.post(path, fields))["param"] == param


def test_a_base_model_that_is_not_there(server):
    fields = {"lora_name": "x", "lora_path": "sql", "base_model_name": "llama"}
    assert error_of(server.post(LOAD, fields), 404)["param"] == "base_model_name"


def test_nothing_is_loaded_where_it_is_not_allowed(root):
    with scripted_server_process(lora_modules=[f"sql={root / 'sql'}"], api_key=["k"]) as server:
        headers = {"Authorization": "Bearer k"}
        for path in (LOAD, UNLOAD):
            fields = (
                {"lora_name": "sql", "lora_path": "sql"} if path == LOAD else {"lora_name": "sql"}
            )
            # B12: these routes need the key as all others do
            assert server.post(path, fields).status_code == 401
            response = server.http.post(path, json=fields, headers=headers)
            assert "--lora-root" in error_of(response)["message"]
        assert "sql" in server.http.get(MODELS, headers=headers).text


def test_an_adapter_is_served_again_after_the_engine_died(server):
    pid = server.engine.pid
    server.post(CHAT, ASKED | {"model": "sql", "vllm_xargs": {"die_at": 1}})
    server.until(lambda: server.http.get("/health").status_code == 200, 20)
    assert server.engine.pid != pid
    assert said(server, model="sql") == ("sql", "sql*1")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--lora-modules", "a=/nowhere"], "a: '/nowhere' is no folder"),
        (["--lora-modules", "a"], "an adapter is given as name=path, or as a JSON object"),
        (["--lora-modules", "a=/", "a=/tmp"], "two adapters have the name 'a'"),
        (["--lora-modules", '{"name": "a"}'], "must hold the texts name and path"),
        (["--lora-modules", '{"name"'], "is no valid JSON"),
        (["--lora-modules", "a=/", "--no-enable-lora"], "switched off by enable-lora"),
        (["--lora-root", "/nowhere"], "'/nowhere' is no folder"),
    ],
)
def test_flags_that_are_wrong_end_the_start_at_once(flags, message):
    code, text, _ = run_to_exit("smollm2", *flags, "--port", "0")
    assert code == 2
    assert message in text


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("a", None, "a: '{folder}' has no adapter_config.json"),
        ("a", "{", "a: '{folder}/adapter_config.json' is no valid JSON"),
        ("a", '{"peft_type": "LOHA"}', "a: peft_type: 'LOHA' is not supported"),
        ("a", '{"peft_type": "LORA", "r": 4, "lora_alpha": 8}', "a: '{folder}' has no adapter_mo"),
        ("smollm2", None, "smollm2: 'smollm2' is the name of a model"),
    ],
)
def test_what_is_no_adapter_is_told_before_a_model_is_loaded(tmp_path, name, config, message):
    if config is not None:
        (tmp_path / "adapter_config.json").write_text(config)
    flags = ["--lora-modules", f"{name}={tmp_path}", "--port", "0"]
    code, text, seconds = run_to_exit("smollm2", *flags)
    assert code == 2
    assert "adapters cannot be served (--lora-modules)" in text
    assert message.format(folder=tmp_path) in " ".join(text.split())
    assert "loading" not in text
    assert seconds < 5
