"""Executors that are wrong on purpose: each breaks the promise it is listed with."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import replace

import pytest

from mutants import assert_killed, name_of
from octavo.interfaces.executor import StepCosts
from octavo_plugins.executors.simulated import SimulatedExecutor, SimulatedOptions


class Simulated(SimulatedExecutor):
    Options = SimulatedOptions


class CountsSteps(Simulated):
    """Draws by the number of the step, not by the text."""

    def submit(self, plan):
        handle = super().submit(plan)
        result = handle.result()
        result.token_ids = [
            tuple((one + plan.step) % 250 for one in ids) for ids in result.token_ids
        ]
        return handle


class FailsTogether(Simulated):
    """What may not be drawn by one is drawn by nobody."""

    def submit(self, plan):
        handle = super().submit(plan)
        if any(start.spec.params.allowed_token_ids for start in plan.starts):
            result = handle.result()
            result.token_ids = [tuple(3 for _ in ids) for ids in result.token_ids]
        return handle


class LeavesAThread(Simulated):
    def start(self, config):
        threading.Thread(target=time.sleep, args=(12,), daemon=True).start()
        return super().start(config)


class ClosesOnce(Simulated):
    def close(self):
        super().close()
        del self.options


class PreparesAnything(Simulated):
    def prepare(self, resource):
        future = Future()
        future.set_exception(KeyError("no such thing"))
        return future


class FailsEarly(Simulated):
    def __init__(self, options):
        super().__init__(options)
        self.failed.set_exception(RuntimeError("not yet started"))


class CheaperInBulk(Simulated):
    def start(self, config):
        return replace(super().start(config), costs=StepCosts(((1, 90.0), (16, 40.0))))


MUTANTS = [
    (CountsSteps, "X1"),
    (FailsTogether, "X2"),
    (LeavesAThread, "X3"),
    (ClosesOnce, "X3"),
    (PreparesAnything, "X4"),
    (FailsEarly, "X5"),
    (CheaperInBulk, "X6"),
]


@pytest.mark.parametrize(("mutant", "number"), MUTANTS, ids=name_of)
def test_a_wrong_executor_is_killed(mutant, number):
    options = {"num-blocks": 40, "vocab-size": 258, "fixed-ms": 10, "per-token-ms": 1}
    assert_killed("executor", mutant, number, options=options)
