"""Client libraries as their users install them, each in an environment of its own."""

import json
import sys
from pathlib import Path

import pytest

from client_venvs import SCRIPTS, client_python, run_client
from octavo.config.resolve import resolve
from octavo.model_files import describe_model, load_tokenizer, locate_model
from server_process import octavo_serve, scripted_server_process

pytestmark = pytest.mark.full

#: script, what is installed for it, and what it says when all went well
CLIENTS = {
    "anthropic_python.py": (["anthropic"], ["messages", "tools", "counting", "errors"]),
    "langchain_openai.py": (
        ["langchain-openai"],
        ["invoke and stream", "batch", "tools", "structured output", "embeddings"],
    ),
    "langchain_anthropic.py": (["langchain-anthropic"], ["invoke and stream", "tools"]),
    "llama_index.py": (
        ["llama-index-llms-openai-like"],
        ["chat, stream, complete", "completions"],
    ),
    "litellm_client.py": (["litellm"], ["openai", "hosted_vllm", "embedding"]),
    "haystack_client.py": (["haystack-ai"], ["whole and stream", "tools"]),
}
#: routes that change the server for all who ask it
_STEERING = (
    "/(sleep|wake_up|pause|resume|abort_requests|reset_prefix_cache|v1/(un)?load_lora_adapter)$"
)


@pytest.fixture(scope="module")
def server():
    with octavo_serve("smollm2") as running:
        yield running


def where(server):
    return {"BASE_URL": f"{server.url}/v1", "MODEL": "smollm2"}


def said(text):
    return [line.removeprefix("ok ") for line in text.splitlines() if line.startswith("ok ")]


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("script", CLIENTS)
def test_a_client_library_works(server, script):
    requirements, steps = CLIENTS[script]
    text = run_client(client_python(*requirements), SCRIPTS / script, **where(server))
    assert said(text) == steps
    server.until(server.is_idle)


def test_openai_python_works(server):
    text = run_client(Path(sys.executable), SCRIPTS / "openai_python.py", **where(server))
    assert len(said(text)) == 9
    server.until(server.is_idle)


@pytest.mark.timeout(1500)
def test_no_request_that_the_document_allows_makes_the_server_fail():
    python = client_python("schemathesis")
    with scripted_server_process(request_timeout_s=10) as server:
        run_client(
            *(python.with_name("schemathesis"), "run", f"{server.url}/openapi.json"),
            *("--exclude-path-regex", _STEERING, "--checks", "not_a_server_error"),
            *("--phases", "examples,coverage,fuzzing", "--max-examples", "25"),
            timeout_s=600,
        )
        assert server.post("/v1/completions", prompt="hi").status_code == 200
        server.until(server.is_idle)


@pytest.mark.timeout(1800)
def test_guidellm_measures_the_server(server, tmp_path):
    python = client_python("guidellm")
    prompts, report = tmp_path / "prompts.jsonl", tmp_path / "report.json"
    prompts.write_text('{"prompt": "The sea is"}\n{"prompt": "One, two, three,"}\n')
    run_client(
        *(python.with_name("guidellm"), "run", "--disable-console-interactive"),
        *("--backend", f"kind=openai_http,target={server.url},model=smollm2"),
        *("--profile", "kind=concurrent,streams=2", "--constraint", "kind=max_requests,count=4"),
        *("--data", f"kind=json_file,path={prompts}", "--output", f"kind=json,path={report}"),
        timeout_s=600,
    )
    (found,) = json.loads(report.read_text())["benchmarks"]
    assert len(found["requests"]["successful"]) >= 2
    assert not found["requests"]["errored"]


@pytest.mark.timeout(1800)
def test_lm_eval_scores_the_model(server, tmp_path):
    python = client_python("lm-eval[api]", "transformers")
    tokenizer, task = tmp_path / "tokenizer", tmp_path / "task"
    task.mkdir()
    save_demo_tokenizer(tokenizer)
    words = SCRIPTS / "lm_eval_task.py", str(task), str(tokenizer)
    text = run_client(python, *words, HF_HUB_OFFLINE="1", **where(server))
    assert said(text) == ["lm-eval"]


def save_demo_tokenizer(folder):
    """Write the demo model's tokenizer as transformers reads one."""
    config = resolve(overrides={"model": "smollm2"})
    tokenizer = load_tokenizer(config, describe_model(config, locate_model(config)))
    folder.mkdir()
    (folder / "tokenizer.json").write_text(tokenizer._library.to_str())
    facts = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))
