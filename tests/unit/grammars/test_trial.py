"""Compiling on trial: whose fault it is when the process ends."""

from __future__ import annotations

import json
import signal
import threading
import time

import psutil
import pytest

from octavo.errors import GrammarError
from octavo_plugins.grammars.options import TrialOptions
from octavo_plugins.grammars.trial import Trial


def source(lark):
    return json.dumps({"grammars": [{"lark_grammar": lark}]})


GOOD = source('start: "yes" | "no"')
FOR_EVER = source('start: %json {"type": "integer", "multipleOf": 99999989}')
#: by its own stack, whatever the limit of memory
TOO_MUCH = source(
    "start: %json " + json.dumps({
        "$ref": "#/$defs/d0",
        "$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(5000)}
        | {"d5000": {"type": "integer"}},
    })
)  # fmt: skip


@pytest.fixture
def trial():
    trial = Trial("trial_process.py", TrialOptions())
    yield trial
    trial.close()


def end(process, *, is_waited_for=True):
    process.send_signal(signal.SIGKILL)
    if is_waited_for:
        deadline_s = time.monotonic() + 10
        while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline_s:
            time.sleep(0.01)


def test_a_process_that_others_ended_is_no_fault_of_the_next_grammar(trial, new_processes):
    assert trial.check(GOOD) is None
    (first,) = new_processes()
    end(first)

    assert trial.check(GOOD) is None
    (second,) = new_processes()
    assert second.pid != first.pid
    assert trial.check(source("start: nothing")) is not None, "a complaint is still one"
    assert new_processes() == [second]


def test_one_that_others_end_at_work_is_replaced(trial, new_processes):
    assert trial.check(GOOD) is None
    (first,) = new_processes()
    first.suspend()
    timer = threading.Timer(0.3, end, (first,), {"is_waited_for": False})
    timer.start()

    assert trial.check(GOOD) is None
    timer.join()
    assert [one.pid for one in new_processes()] != [first.pid]


def test_several_that_others_ended_are_no_fault_of_one_grammar(trial, new_processes):
    threads = [threading.Thread(target=trial.check, args=(GOOD,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in new_processes():
        end(process)

    assert trial.check(GOOD) is None


def test_a_grammar_that_ends_its_process_twice_is_refused(trial, new_processes):
    with pytest.raises(GrammarError, match="takes more than 1024 MB, or is nested too deeply"):
        trial.check(TOO_MUCH)

    assert new_processes() == []
    assert trial.check(GOOD) is None


def test_one_that_takes_too_long_is_not_tried_again():
    trial = Trial("trial_process.py", TrialOptions(max_compile_s=1.0))
    started_s = time.monotonic()
    with pytest.raises(GrammarError, match="longer than 1 s"):
        trial.check(FOR_EVER)

    assert time.monotonic() - started_s < 1.9
    trial.close()


def test_nothing_is_tried_after_the_end(trial):
    trial.check(GOOD)
    trial.close()
    with pytest.raises(GrammarError, match="the engine is closing"):
        trial.check(GOOD)
