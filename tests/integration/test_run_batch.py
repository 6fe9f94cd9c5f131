"""`octavo run-batch`: one line of output for each of input, whatever happens."""

import json
import os
import signal
import threading
from contextlib import closing

import psutil
import pytest

import scripted_server
from octavo.batch.files import BatchInput, BatchOutput
from octavo.batch.local import run_local_batch
from octavo.cli.main import main
from octavo.errors import EngineDeadError
from octavo.serving.client import RestartPolicy


def line_of(custom_id, url="/v1/completions", **body):
    body = {"prompt": custom_id, "max_tokens": 50, **body}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body})


def answer(folder, *, limit=8, on_progress=lambda _: None, **options):
    """Answer folder/in with the scripted engine, and return the last progress and the lines."""
    plan = scripted_server.plan_of({"access_log": False, **options})
    plan.listener.close()
    last = []
    with closing(BatchInput(folder / "in", 2**20)) as batch, BatchOutput(folder / "out") as output:
        is_complete = run_local_batch(
            plan, (batch, output), limit, lambda now: (last.append(now), on_progress(now))
        )
    return is_complete, last[-1], written(folder)


def written(folder):
    return [json.loads(line) for line in (folder / "out").read_text().splitlines()]


def texts(lines):
    return {
        one["custom_id"]: one["response"]["body"]["choices"][0]["text"]
        for one in lines
        if one["error"] is None
    }


def codes(lines):
    return {one["custom_id"]: one["error"]["code"] for one in lines if one["error"]}


def test_every_line_is_answered_whatever_it_holds(tmp_path):
    chat = {"messages": [{"role": "user", "content": "hello"}]}
    lines = [
        line_of("a"),
        line_of("chat", "/v1/chat/completions", **chat),
        "not json",
        line_of("url", "/v1/nope"),
        line_of("admin", "/v1/load_lora_adapter"),
        line_of("long", prompt="x" * 5000),
        line_of("model", model="other"),
        line_of("fails", vllm_xargs={"fail_at": 1}),
        "",
        line_of("a"),
        json.dumps({"method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}),
        line_of("last"),
    ]
    (tmp_path / "in").write_text("\n".join(lines))
    is_complete, progress, out = answer(tmp_path)

    assert is_complete
    assert (progress.num_answered, progress.num_failed) == (3, 8)
    assert progress.done_bytes + 1 == (tmp_path / "in").stat().st_size  # all but the blank line
    assert len(out) == len({one["id"] for one in out}) == 11
    good = [one for one in out if one["custom_id"] != "chat"]
    assert texts(good) == {"a": "a", "last": "last"}
    (said,) = [one["response"]["body"] for one in out if one["custom_id"] == "chat"]
    assert said["choices"][0]["message"]["content"] == "hello"
    assert {code for one in out if one["error"] for code in [one["error"]["code"]]} == {
        "invalid_json", "invalid_url", "duplicate_custom_id", "invalid_custom_id",
        "context_length_exceeded", "model_not_found", "server_error",
    }  # fmt: skip
    statuses = {one["custom_id"]: one["response"] for one in out if one["response"]}
    assert statuses["long"]["status_code"] == 400
    assert statuses["model"]["status_code"] == 404
    assert statuses["fails"]["status_code"] == 500
    assert all(one["response"]["request_id"] == one["id"] for one in out if one["response"])


def test_a_line_nested_too_deeply_and_what_is_no_json_are_answered_by_name(tmp_path):
    deep = line_of("deep", metadata=0).replace(
        '"metadata": 0', '"x": ' + "[" * 50_000 + "]" * 50_000
    )
    half = line_of("half", prompt="TEXT").replace("TEXT", r"x\ud83d")
    nan = line_of("nan", temperature=float("nan"))
    (tmp_path / "in").write_text("\n".join([deep, half, nan, line_of("last")]))
    is_complete, _, out = answer(tmp_path)

    assert is_complete
    assert texts(out) == {"half": "x\ufffd", "last": "last"}
    assert codes(out) == {"deep": "invalid_json", "nan": "invalid_request_error"}


def test_B157_a_batch_with_one_custom_id_twice_ends(tmp_path):
    nameless = json.dumps({"method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}})
    lines = [line_of("a"), line_of("b"), line_of("a"), nameless, line_of("c")]
    (tmp_path / "in").write_text("\n".join(lines))
    _, progress, out = answer(tmp_path)

    assert sorted(str(one["custom_id"]) for one in out) == ["None", "a", "a", "b", "c"]
    assert (progress.num_answered, progress.num_failed) == (3, 2)


def test_what_is_answered_is_not_done_again(tmp_path):
    names = [f"r{i}" for i in range(10)]
    (tmp_path / "in").write_text("\n".join([*map(line_of, names[:6]), "bad"]) + "\n")
    answer(tmp_path)
    before = (tmp_path / "out").read_bytes()
    (tmp_path / "out").write_bytes(before[:-20])  # the machine went down while it wrote
    kept = before[: before[:-20].rindex(b"\n") + 1]
    (tmp_path / "in").write_text(
        "\n".join([*map(line_of, names[:6]), "bad", *map(line_of, names[6:])])
    )
    _, progress, out = answer(tmp_path)

    assert (tmp_path / "out").read_bytes().startswith(kept)
    assert (progress.num_before, progress.num_answered + progress.num_failed) == (6, 5)
    assert texts(out) == {name: name for name in names}
    assert len(out) == 11


def test_a_request_that_kills_the_engine_fails_alone(tmp_path):
    names = [f"r{i}" for i in range(12)]
    lines = [line_of(name) for name in names]
    lines.insert(3, line_of("kills", vllm_xargs={"die_at": 2}))
    lines.insert(9, line_of("kills too", vllm_xargs={"die_at": 1}))
    (tmp_path / "in").write_text("\n".join(lines))
    _, progress, out = answer(tmp_path, limit=4)

    assert texts(out) == {name: name for name in names}
    assert codes(out) == {"kills": "engine_unavailable", "kills too": "engine_unavailable"}
    assert (progress.num_answered, progress.num_failed) == (12, 2)


def test_a_full_queue_is_waited_for(tmp_path):
    (tmp_path / "in").write_text("\n".join(line_of(f"r{i}", n=3) for i in range(12)))
    script = {"max_num_queued_reqs": 4, "max_num_seqs": 1}
    _, progress, _ = answer(tmp_path, script=script)

    assert (progress.num_answered, progress.num_failed) == (12, 0)


def test_an_engine_that_cannot_start_is_an_error_and_nothing_is_lost(tmp_path):
    (tmp_path / "in").write_text(line_of("a"))
    with pytest.raises(EngineDeadError):
        answer(tmp_path, script={"die_at_start": True})
    assert (tmp_path / "out").read_bytes() == b""


def test_an_engine_that_dies_again_and_again_ends_the_run_and_what_is_left_can_go_on(
    tmp_path, monkeypatch, new_processes
):
    policy = RestartPolicy(max_in_row=2, first_delay_s=0.01)
    monkeypatch.setattr("octavo.batch.local._RESTART", policy)
    kills = [line_of(f"kills {i}", vllm_xargs={"die_at": 1}) for i in range(4)]
    (tmp_path / "in").write_text("\n".join([line_of("a"), *kills, line_of("b")]))
    with pytest.raises(EngineDeadError, match="died 3 times in a row"):
        answer(tmp_path, limit=1)

    out = written(tmp_path)
    assert texts(out) == {"a": "a"}
    assert codes(out) == {"kills 0": "engine_unavailable"}
    assert new_processes() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_batch_goes_on_where_it_ended(tmp_path, number, new_processes):
    names = [f"r{i:02}" for i in range(40)]
    (tmp_path / "in").write_text("\n".join(map(line_of, names)))
    sent = threading.Event()

    def interrupt(progress):
        if progress.num_answered >= 5 and not sent.is_set():
            sent.set()
            os.kill(os.getpid(), number)

    is_complete, progress, out = answer(
        tmp_path, limit=4, on_progress=interrupt, script={"step_ms": 5}
    )
    assert not is_complete
    assert 5 <= progress.num_answered == len(out) < 40
    assert new_processes() == []

    is_complete, progress, out = answer(tmp_path)
    assert is_complete
    assert texts(out) == {name: name for name in names}
    assert len(out) == 40


def test_a_huge_file_is_not_read_whole(tmp_path):
    with (tmp_path / "in").open("w") as file:
        for number in range(40):
            file.write(line_of(f"r{number}", prompt="x" * 2_000_000) + "\n")
    process = psutil.Process()
    before_bytes = process.memory_info().rss
    highest = []
    _, progress, _ = answer(
        tmp_path, on_progress=lambda _: highest.append(process.memory_info().rss)
    )

    assert progress.num_failed == 40  # each is longer than a line may be
    assert max(highest) - before_bytes < 40e6


def test_smollm2_answers_a_file_by_the_command(tmp_path, capsys):
    chat = {"messages": [{"role": "user", "content": "Say hello."}], "temperature": 0}
    lines = [line_of("c", "/v1/chat/completions", **chat), line_of("p", prompt="One, two,"), "x"]
    (tmp_path / "in").write_text("\n".join(lines))
    words = ["run-batch", "-i", f"{tmp_path}/in", "-o", f"{tmp_path}/out", "smollm2", "--json"]
    words += ["--max-model-len", "512"]

    assert main(words) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["answered"], report["failed"], report["is_complete"]) == (2, 1, True)
    assert report["output_tokens"] > 3
    out = written(tmp_path)
    usages = [one["response"]["body"]["usage"] for one in out if one["response"]]
    assert sum(usage["completion_tokens"] for usage in usages) == report["output_tokens"]

    words[1:5] = ["--input-file", f"{tmp_path}/in", "--output-file", f"{tmp_path}/out"]
    assert main(words) == 1
    assert json.loads(capsys.readouterr().out)["before"] == 3
    assert written(tmp_path) == out


def test_the_same_file_for_both_is_refused(tmp_path, capsys):
    (tmp_path / "in").write_text(line_of("a"))
    assert main(["run-batch", "-i", f"{tmp_path}/in", "-o", f"{tmp_path}/in", "smollm2"]) == 2
    assert "are the same file" in capsys.readouterr().err
    assert (tmp_path / "in").read_text() == line_of("a")
