"""Turns, processes that fail, and what the worker times."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from octavo_peers import worker
from octavo_peers.engines.engine import Engine
from octavo_peers.processes import Limits, run_job
from octavo_peers.rounds import Comparison, Contender, in_turn
from octavo_peers.work import Case, Job

CASE, OTHER_CASE = Case(4, 1, 3), Case(4, 2, 3)
LIMITS = Limits(timeout_s=20)


def job(**changes) -> Job:
    return Job("llamacpp", "m.gguf", (CASE, OTHER_CASE), 3, {}, **{"min_s": 0.0, **changes})


@pytest.fixture
def program(tmp_path):
    """Makes a program that stands in for the Python of an engine."""

    def make(body: str) -> str:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\ncat > {tmp_path}/job\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return make


START = """echo '{"version": "1.2", "start_s": 0.5}'"""
TIMES = """\
echo '{"case": {"num_prompt_tokens": 4, "num_seqs": 1, "num_output_tokens": 3},
 "pairs": [[1.0, 2.0]], "first_ids": [9]}' | tr -d '\\n'; echo"""
ERROR = """\
echo '{"case": {"num_prompt_tokens": 4, "num_seqs": 2, "num_output_tokens": 3},
 "error": "MemoryError: "}' | tr -d '\\n'; echo"""


def test_a_run_has_what_the_process_wrote(program):
    python = program(f"{START}\n{TIMES}\n{ERROR}\n")
    run = run_job(python, job(), 1, LIMITS)

    assert (run.engine, run.round_number, run.version, run.start_s) == ("llamacpp", 1, "1.2", 0.5)
    assert run.error is None
    assert [times.case for times in run.times] == [CASE, OTHER_CASE]
    assert run.times[0].pairs == ((1.0, 2.0),)
    assert run.times[1].error == "MemoryError: "


def test_the_process_gets_its_threads_and_when_it_was_started(program, tmp_path):
    python = program(f"echo $OMP_NUM_THREADS > {tmp_path}/threads\n")
    before_s = time.monotonic()
    run_job(python, job(), 0, LIMITS)
    sent = Job.from_json(json.loads((tmp_path / "job").read_text()))

    assert (tmp_path / "threads").read_text() == "3\n"
    assert before_s <= sent.spawned_s <= time.monotonic()


def test_a_crash_keeps_what_was_measured_and_the_last_words(program):
    python = program(f"{START}\n{TIMES}\necho out of luck >&2\nkill -SEGV $$")
    run = run_job(python, job(), 0, LIMITS)

    assert run.error == "out of luck (exit code -11)"
    assert len(run.times) == 1


def test_a_process_that_says_why_it_failed_is_quoted(program):
    python = program("""echo '{"error": "ValueError: no model"}'\necho noise >&2\nexit 1""")

    assert run_job(python, job(), 0, LIMITS).error == "ValueError: no model"


def test_a_program_that_reads_nothing_is_no_crash_of_ours(tmp_path):
    assert run_job("/bin/false", job(), 0, LIMITS).error == "nothing printed (exit code 1)"


def test_a_process_that_hangs_is_ended_with_its_children(program, tmp_path):
    python = program(f"{START}\nsleep 60 & echo $! > {tmp_path}/child\nwait")
    run = run_job(python, job(), 0, Limits(timeout_s=0.5))

    assert run.error == "ran longer than 0.5 s"
    assert run.start_s == 0.5
    child = int((tmp_path / "child").read_text())
    deadline_s = time.monotonic() + 5
    while _runs(child) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not _runs(child)


def test_sigterm_ends_the_engine_that_runs(program, tmp_path):
    python = program(f"echo $$ > {tmp_path}/child\nsleep 60")
    (tmp_path / "m.gguf").touch()
    folder = Path(worker.__file__).parents[1]
    words = ["compare", tmp_path / "m.gguf", "--python", f"octavo={python}"]
    peers = subprocess.Popen([sys.executable, folder, *words], stderr=subprocess.DEVNULL)
    child = tmp_path / "child"
    deadline_s = time.monotonic() + 30
    while not (child.exists() and child.read_text()) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    peers.terminate()

    assert peers.wait(30) == 128 + signal.SIGTERM
    assert not _runs(int(child.read_text()))


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_the_order_is_turned_every_round():
    contenders = [Contender(engine, "python", "m") for engine in "abc"]

    orders = ["".join(one.engine for one in in_turn(contenders, i)) for i in range(3)]
    assert orders == ["abc", "cba", "abc"]


def test_every_engine_runs_once_a_round(program, capsys):
    python = program(f"{START}\n{TIMES}\n{ERROR}\n")
    contenders = tuple(Contender(name, python, "m.gguf") for name in ("octavo", "vllm"))
    results = Comparison(contenders, (CASE, OTHER_CASE), (), 2, 1, 0, 100, 0.0, LIMITS).run()

    assert [(run.round_number, run.engine) for run in results.runs] == [
        (0, "octavo"),
        (0, "vllm"),
        (1, "vllm"),
        (1, "octavo"),
    ]
    assert results.machine["cores"] == len(os.sched_getaffinity(0))
    assert capsys.readouterr().err.splitlines()[1:3] == [
        "round 1 of 2: vllm ... started in 0.5 s, 1 cases failed",
        "round 2 of 2: vllm ... started in 0.5 s, 1 cases failed",
    ]


class Scripted(Engine):
    """Answers with the length of each prompt, and notes its calls."""

    def __init__(self, _job, missing=0, failing_seqs=0, call_s=0.0):
        self.calls, self.prepared, self.is_closed = [], [], False
        self._missing, self._failing_seqs, self._call_s = missing, failing_seqs, call_s

    def version(self):
        return "9"

    def prepare(self, case, prefix):
        self.prepared.append((case, prefix))

    def generate(self, prompts, num_tokens):
        if len(prompts) == self._failing_seqs:
            raise MemoryError("too many\n sequences")
        self.calls.append((prompts, num_tokens))
        time.sleep(self._call_s)
        return [[len(prompt)] * (num_tokens - self._missing) for prompt in prompts]

    def close(self):
        self.is_closed = True


@pytest.fixture
def engine(monkeypatch):
    """Puts a scripted engine in the place of one."""

    def put(**options):
        made = Scripted(None, **options)
        entry = type("Entry", (), {"load": lambda _self, _job: made})()
        monkeypatch.setattr(worker, "ENGINES", {"llamacpp": entry})
        return made

    return put


def test_a_case_is_timed_in_pairs_of_calls_after_a_short_one(engine):
    one, sent = engine(), []
    the_job = job()
    worker.work(the_job, sent.append)

    assert sent[0]["version"] == "9"
    assert sent[0]["start_s"] > 0
    assert [message["case"] for message in sent[1:]] == [vars(CASE), vars(OTHER_CASE)]
    assert sent[2]["first_ids"] == [4, 4]
    first_s, total_s = sent[1]["pairs"][0]
    assert first_s >= 0
    assert total_s >= 0
    assert one.calls == [
        ([the_job.first_prompt()], 1),
        *(
            call
            for case in (CASE, OTHER_CASE)
            for call in (
                (the_job.warm_prompts(case), 2),
                (the_job.prompts(case, 0), 1),
                (the_job.prompts(case, 1), 3),
            )
        ),
    ]
    assert one.prepared == [(CASE, []), (OTHER_CASE, [])]
    assert one.is_closed


def test_pairs_are_repeated_until_the_time_is_up(engine):
    one, sent = engine(call_s=0.004), []
    worker.work(job(min_s=0.02), sent.append)
    pairs = sent[1]["pairs"]

    assert len(pairs) > 1
    assert sum(map(sum, pairs)) >= 0.02
    assert sum(map(sum, pairs[:-1])) < 0.02
    timed = [prompts[0] for prompts, num_tokens in one.calls if num_tokens in {1, 3}]
    assert len({tuple(prompt) for prompt in timed}) == len(timed), "no call repeats a prompt"


def test_a_case_that_fails_is_said_and_the_next_one_tried(engine, capsys):
    one, sent = engine(failing_seqs=1), []
    with pytest.raises(MemoryError):
        worker.work(job(), sent.append)
    assert one.is_closed

    engine(failing_seqs=2)
    sent = []
    worker.work(job(), sent.append)
    assert "pairs" in sent[1]
    assert sent[2] == {"case": vars(OTHER_CASE), "error": "MemoryError: too many sequences"}
    assert "Traceback" in capsys.readouterr().err


def test_an_engine_that_stops_early_is_not_timed(engine):
    engine(missing=1)
    with pytest.raises(ValueError, match=r"asked for 1 tokens of each of 1 sequences, got \[0\]"):
        worker.work(job(), lambda _: None)
