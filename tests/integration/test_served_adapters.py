"""Adapters of a tiny model behind `octavo serve`: the text of `LLM`, and no mixing of names."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

import tiny_models
from byte_models import LLAMA, save_byte_model
from octavo import LLM, LoRARequest, SamplingParams
from peft_folders import WEIGHTS, Lora, write_adapter
from server_process import octavo_serve, run_to_exit

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
PROMPT = "The sea is everything. It covers seven tenths of the terrestrial globe."
ASKED = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_byte_model(LLAMA, tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("adapters")


def write(root, name, **settings):
    weights = tiny_models.reference_model(LLAMA).state_dict()
    return write_adapter(root / name, weights, Lora(**settings))


@pytest.fixture(scope="module")
def expected(model, root):
    """The texts of `LLM`, by adapter."""
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    with LLM(model, threads=1) as llm:
        texts = {}
        for name in ("one", "two"):
            folder = write(root, name, seed=len(name) + (name == "two"))
            adapters = LoRARequest(name, 1, str(folder))
            texts[name] = llm.generate(PROMPT, params, lora_request=adapters, use_tqdm=False)
        blend = tuple(
            LoRARequest(name, 1, str(root / name), scale)
            for name, scale in (("one", 0.5), ("two", -1))
        )
        texts["blend"] = llm.generate(PROMPT, params, lora_request=blend, use_tqdm=False)
        texts["none"] = llm.generate(PROMPT, params, use_tqdm=False)
    return {name: outputs[0].outputs[0].text for name, outputs in texts.items()}


@pytest.fixture(scope="module")
def server(model, root, expected):
    flags = ["--served-model-name", "base", "--threads", "1", "--max-lora-rank", "16"]
    flags += ["--lora-modules", f"one={root / 'one'}", f"two={root / 'two'}"]
    with octavo_serve(model, *flags, "--lora-root", str(root)) as process:
        yield process


def answer(server, **fields):
    response = server.post("/v1/completions", ASKED | fields)
    assert response.status_code == 200, response.text
    return response.json()


def text(server, **fields):
    return answer(server, **fields)["choices"][0]["text"]


def test_each_name_has_its_own_text_in_one_batch(server, expected):
    assert len(set(expected.values())) == 4
    blend = [{"name": "one", "scale": 0.5}, {"name": "two", "scale": -1}]
    asked = {
        "none": {"model": "base"},
        "one": {"model": "one"},
        "two": {"model": "two"},
        "blend": {"model": "base", "adapters": blend},
    }
    with ThreadPoolExecutor(12) as pool:
        futures = {
            (name, i): pool.submit(text, server, **asked[name]) for i in range(3) for name in asked
        }
        got = {key: future.result() for key, future in futures.items()}
    assert got == {(name, i): expected[name] for name, i in futures}


def test_B122_a_name_that_is_loaded_again_has_no_old_prefixes(server, expected):
    cached = []
    for name in ("one", "two", "one"):
        loaded = server.post(LOAD, lora_name="ad", lora_path=name)
        assert loaded.status_code == 200, loaded.text
        got = answer(server, model="ad", cache_salt="of this test")
        cached.append(got["usage"]["prompt_tokens_details"]["cached_tokens"])
        assert got["choices"][0]["text"] == expected[name]
        assert server.post(UNLOAD, lora_name="ad").status_code == 200
    assert cached[:2] == [0, 0]
    assert cached[2] > 0  # the content is the one of the first turn again


def test_files_that_change_in_place_are_read_anew(server, root, expected):
    folder = write(root, "moving", seed=3)
    assert server.post(LOAD, lora_name="moving", lora_path="moving").status_code == 200
    assert text(server, model="moving") == expected["one"]
    write(root, "moving", seed=4)
    assert answer(server, model="moving")["choices"][0]["text"] == expected["two"]
    (folder / "adapter_config.json").write_text("{")
    refused = server.post("/v1/completions", ASKED | {"model": "moving"})
    assert refused.status_code == 400
    assert "is no valid JSON" in refused.json()["error"]["message"]
    assert refused.json()["error"]["param"] == "model"
    assert text(server, model="one") == expected["one"]


def test_B127_a_bad_adapter_costs_the_others_nothing(server, root, expected):
    write(root, "bad", seed=1)
    assert server.post(LOAD, lora_name="bad", lora_path="bad").status_code == 200
    write(root, "bad", seed=1, rank=64)
    with ThreadPoolExecutor(5) as pool:
        base = [pool.submit(text, server, model="base") for _ in range(4)]
        bad = pool.submit(server.post, "/v1/completions", ASKED | {"model": "bad"})
        assert [one.result() for one in base] == [expected["none"]] * 4
    assert bad.result().status_code == 400
    assert "rank 64 is more than max-lora-rank, 16" in bad.result().json()["error"]["message"]
    assert server.post(LOAD, lora_name="worse", lora_path="bad").status_code == 400
    assert text(server, model="base") == expected["none"]


def test_files_that_lie_outside_of_the_root_are_not_loaded_over_http(server, root, tmp_path):
    write(tmp_path, "private", seed=1)
    (root / "lured").mkdir()
    for file in (tmp_path / "private").iterdir():
        (root / "lured" / file.name).symlink_to(file)
    refused = server.post(LOAD, lora_name="lured", lora_path="lured")
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "lora_path"
    assert "leads outside of the folder" in refused.json()["error"]["message"]
    assert "private" not in refused.text


def test_a_fifo_among_the_files_holds_up_nobody(server, root, expected):
    write(root, "waits", seed=1)
    (root / "waits" / WEIGHTS).unlink()
    os.mkfifo(root / "waits" / WEIGHTS)
    refused = server.post(LOAD, lora_name="waits", lora_path="waits")
    assert refused.status_code == 400
    assert "it is a FIFO, not a file" in refused.json()["error"]["message"]
    assert server.post(LOAD, lora_name="after", lora_path="one").status_code == 200
    assert text(server, model="after") == expected["one"]
    server.post(UNLOAD, lora_name="after")


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("scale", [1e308, 1e39, -1e20, 1000.5])
def test_a_scale_out_of_bounds_is_400(server, path, scale):
    asked = (
        {"prompt": "x"}
        if path == "/v1/completions"
        else {"messages": [{"role": "user", "content": "x"}]}
    )
    refused = server.post(
        path, asked | {"model": "base", "adapters": [{"name": "one", "scale": scale}]}
    )
    assert refused.status_code == 400, refused.text
    assert refused.json()["error"]["param"] == "adapters"
    assert "'one' must be a number from -1000 to 1000" in refused.json()["error"]["message"]


def test_logits_that_an_adapter_makes_no_numbers_are_400(server, root, expected):
    write(root, "huge", seed=5, size=1e38)
    assert server.post(LOAD, lora_name="huge", lora_path="huge").status_code == 200
    blend = [{"name": "huge", "scale": 1000}]
    for fields, param in (
        ({"model": "base", "adapters": blend}, "adapters"),
        ({"model": "huge"}, "model"),
    ):
        refused = server.post("/v1/completions", ASKED | fields)
        assert refused.status_code == 400, refused.text
        assert refused.json()["error"]["param"] == param
        assert "run with adapters: 'huge' (scale " in refused.json()["error"]["message"]
    assert text(server, model="one") == expected["one"]
    server.post(UNLOAD, lora_name="huge")


def test_B127_a_bad_adapter_at_start_is_refused(model, root):
    write(root, "start", rank=64)
    code, said, _ = run_to_exit(
        model, "--lora-modules", f"start={root / 'start'}", "--max-lora-rank", "16",
        "--threads", "1", "--port", "0",
    )  # fmt: skip
    assert code == 1
    assert "rank 64 is more than max-lora-rank, 16" in said
