"""Calls whose lists are as long as the vocabulary, for many sequences at once, hold up nobody."""

import psutil
import pytest

from byte_models import save_dummy_model
from server_process import octavo_serve

COMPLETIONS = "/v1/completions"
VOCAB = 50_000
#: what lists may cost; before they were checked, sent and prepared once a call it was several
MAX_MORE_S = 0.5

#: with 64 sequences each, of one prompt or of many
CALLS = {
    "bias": {"prompt": "Hi", "n": 64, "logit_bias": dict.fromkeys(range(VOCAB), 1.0)},
    "allowed": {
        "prompt": [f"Hi {i}" for i in range(16)], "n": 16, "allowed_token_ids": list(range(VOCAB)),
    },
    "ends": {"prompt": "Hi", "n": 64, "stop_token_ids": list(range(5_000, 45_000))},
    "ends before a minimum": {
        "prompt": "Hi", "n": 64, "stop_token_ids": list(range(5_000, 45_000)), "min_tokens": 1,
    },
    "bad words": {
        "prompt": [f"Hi {i}" for i in range(16)], "n": 4,
        "bad_words": [f"w{i} {i}" for i in range(1_000)],
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wide")
    save_dummy_model(folder, vocab_size=VOCAB, max_position_embeddings=4096)
    with octavo_serve(str(folder), "--load-format", "dummy", "--threads", "1") as process:
        yield process
        assert process.stop() == 0


def cpu_s(server, call):
    """Return what a call costs the server's process and the engine's, in seconds of processor.

    Both do one thing after another, so others wait for no longer than this.
    """
    processes = (psutil.Process(server.process.pid), server.engine)
    before = [sum(process.cpu_times()[:2]) for process in processes]
    answer = server.post(COMPLETIONS, call)
    assert answer.status_code == 200, answer.text
    return [
        sum(process.cpu_times()[:2]) - start
        for process, start in zip(processes, before, strict=True)
    ]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_with_lists_as_long_as_the_vocabulary_holds_up_nobody(server, name):
    call = {"max_tokens": 2, "ignore_eos": True, **CALLS[name]}
    plain = {key: call[key] for key in ("max_tokens", "ignore_eos", "prompt", "n")}

    plain_server_s, plain_engine_s = cpu_s(server, plain)
    server_s, engine_s = cpu_s(server, call)

    assert server_s - plain_server_s < MAX_MORE_S
    assert engine_s - plain_engine_s < MAX_MORE_S
