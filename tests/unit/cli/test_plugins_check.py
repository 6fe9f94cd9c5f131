"""`octavo plugins check`: reports, exit codes, and errors that say what to do."""

from __future__ import annotations

import importlib.util
import json

import pytest

from octavo.cli.main import main

AGEING = """
from octavo.interfaces.scheduler import SchedulerPolicy

class Ageing(SchedulerPolicy):
    def order(self, request, view):
        return view.now_s * request.priority
"""


def check(*words):
    return main(["plugins", "check", *map(str, words)])


def test_a_component_that_keeps_its_promises(capsys):
    assert check("eviction:lru", "--effort", "0.1") == 0
    out = capsys.readouterr().out

    assert "eviction:lru (octavo " in out
    assert "ok E1 each block is popped once" in out
    assert "15 passed in " in out


WARNING = """
import logging

from octavo_plugins.evictions.lru import Lru

class Warning_(Lru):
    def add(self, block_id):
        logging.getLogger("mine").warning("block %d", block_id)
        super().add(block_id)
"""


def test_a_report_has_nothing_of_the_log(tmp_path, capfd, caplog):
    file = tmp_path / "warning.py"
    file.write_text(WARNING)

    assert check(f"{file}:Warning_", "--invariant", "E3") == 0
    assert "block" not in capfd.readouterr().err
    assert caplog.records == []


def test_what_is_declared_unsupported_is_reported_as_refused(capsys):
    assert check("allocator:contiguous", "--effort", "0.05", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    refused = [one["number"] for one in report["invariants"] if one["state"] == "refused"]

    assert report["passed"]
    assert {"A7", "A9"} <= set(refused)


def test_a_broken_promise_is_an_exit_code_and_a_counter_example(tmp_path, capsys):
    file = tmp_path / "ageing.py"
    file.write_text(AGEING)
    assert check(f"{file}:Ageing", "--invariant", "s10") == 1
    out = capsys.readouterr().out

    assert "FAILED S10 static keys stay as they are" in out
    assert "order(r0) was" in out
    assert "1. an engine in the mode" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["eviction:lrv"], "unknown eviction 'lrv' (octavo.testing)\n  did you mean 'lru'?"),
        (["evictions:lru"], "unknown kind 'evictions'\n  did you mean 'eviction'?"),
        (["lru"], "octavo plugins check lru: of which kind?"),
        ([], "octavo plugins check: of what?"),
        (["eviction:lru", "--invariant", "E9"], "eviction has no invariant 'E9'"),
        (["eviction:lru", "--option", "x"], "--option x: no value"),
        (["weights:gguf", "--invariant", "W1"], "weights 'gguf' cannot be tried without a sample"),
        (["dialect:openai"], "dialect 'openai' cannot be tried without a sample: calls"),
    ],
)
def test_errors_say_what_to_do(words, message, capsys):
    assert check(*words) > 0
    assert capsys.readouterr().err.startswith(f"error: {message}")


def test_without_hypothesis_there_is_a_clear_error(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert check("eviction:lru") == 1

    assert capsys.readouterr().err == (
        "error: octavo plugins check needs hypothesis, which is not installed\n"
        "  install it: pip install 'octavo[test]'\n"
    )
