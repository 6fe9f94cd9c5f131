"""The promises of executors: X1 to X6, on a tiny model of made-up weights.

`sample`: settings of the engine, as `LLM` takes them ({"tensor_parallel_size": 2}); with a "model"
they are tried on that one.

Knows plans, results and engines. Does not know models, or where they run.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from octavo.config.resolve import resolve
from octavo.engine.build import build_engine
from octavo.errors import OctavoError, UnsupportedError
from octavo.interfaces.adapter import AdapterSpec
from octavo.interfaces.executor import Executor
from octavo.testing.engines import request, run_all
from octavo.testing.invariants import PromiseBroken, Promises
from octavo.testing.made_up_model import settings_beside
from octavo.testing.suite import Suite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.engine.engine import Engine
    from octavo.engine.messages import EngineRequest
    from octavo.testing.subjects import Subject

promises = Promises("executor", Executor)

_ENDING_S = 3.0


@contextmanager
def _running(subject: Subject, **settings: Any) -> Iterator[Engine]:
    """Start an engine on a fresh executor, and close it."""
    given = subject.sample if isinstance(subject.sample, dict) else {}
    with settings_beside({**given, **settings}) as overrides:
        engine = build_engine(resolve(overrides=overrides), subject.build())
        try:
            yield engine
        finally:
            engine.close()


def _requests() -> list[EngineRequest]:
    """Return requests that share beginnings, greedy and drawn."""
    made = []
    for number in range(6):
        prompt = [(7 * place + number // 2) % 250 for place in range(5 + 9 * number)]
        temperature = 0.0 if number % 2 else 1.0
        made.append(request(f"r{number}", prompt, 12, seed=number, temperature=temperature))
    return made


def _tokens(engine: Engine) -> dict[str, list[int]]:
    return {name: one.token_ids for name, one in run_all(engine, _requests()).items()}


@promises.keeps("X1")
def a_step_sees_the_effects_of_those_before(subject: Subject) -> None:
    """One step at a time or planned ahead, in large chunks or small: the same tokens."""
    results = {}
    for name, settings in (
        ("one step at a time", {"depth": 0}),
        ("planned ahead, in small chunks", {"depth": 1, "max_num_batched_tokens": 7}),
        ("without room", {"depth": 1, "num_gpu_blocks_override": 9}),
    ):
        with _running(subject, **settings) as engine:
            results[name] = _tokens(engine)
    (first, wanted), *others = results.items()
    for name, got in others:
        for request_id, token_ids in got.items():
            if token_ids != wanted[request_id]:
                raise PromiseBroken(
                    f"{request_id} gets {token_ids} {name}, and {wanted[request_id]} {first}"
                )


@promises.keeps("X2")
def an_error_of_one_request_leaves_the_others_alone(subject: Subject) -> None:
    """One that may draw nothing, among others."""
    with _running(subject) as engine:
        wanted = _tokens(engine)
        nothing = request(
            "nothing", [1, 2, 3], 5, allowed_token_ids=[257], min_tokens=3, eos_token_ids=(257,)
        )
        outcomes = run_all(engine, [*_requests(), nothing])
        ended = outcomes.pop("nothing")
        if ended.finish_reason is None:
            raise PromiseBroken("a request that may draw nothing did not end")
        for request_id, one in outcomes.items():
            if one.token_ids != wanted[request_id]:
                raise PromiseBroken(f"beside one that fails {request_id} gets {one.token_ids}")


@promises.keeps("X3")
def closing_ends_what_it_started(subject: Subject) -> None:
    """Twice is fine, also before it was started; no thread is left."""
    unused: Executor = subject.build()
    unused.close()
    unused.close()
    before = set(threading.enumerate())
    with _running(subject) as engine:
        _tokens(engine)
        executor = engine.executor
    executor.close()
    deadline_s = time.monotonic() + _ENDING_S
    while left := {one for one in threading.enumerate() if one not in before and one.is_alive()}:
        if time.monotonic() > deadline_s:
            raise PromiseBroken(f"after close these threads run: {[one.name for one in left]}")
        time.sleep(0.01)


@promises.keeps("X4")
def what_cannot_be_prepared_is_told(subject: Subject) -> str | None:
    """At once with a typed error, or by the future; the steps go on."""
    with _running(subject) as engine:
        spec = AdapterSpec("none", "/there/is/no/such/adapter")
        engine.executor.discard(spec)
        try:
            future = engine.executor.prepare(spec)
        except UnsupportedError as error:
            return error.headline
        raised = future.exception(timeout=60)
        if raised is not None and not isinstance(raised, OctavoError):
            raise PromiseBroken(f"an adapter that is not there gives {raised!r}, no typed error")
        if raised is None and not isinstance(future.result(), str):
            raise PromiseBroken(f"what is prepared stands for {future.result()!r}, not for a text")
        engine.executor.discard(spec)
        _tokens(engine)
    return None


@promises.keeps("X5")
def failed_is_not_set_while_it_runs(subject: Subject) -> None:
    """Neither before it starts nor while steps run."""
    executor: Executor = subject.build()
    if executor.failed.done():
        raise PromiseBroken("`failed` is done before it was started")
    executor.close()
    with _running(subject) as engine:
        _tokens(engine)
        if engine.executor.failed.done():
            raise PromiseBroken("`failed` is done, and steps run")


@promises.keeps("X6")
def its_facts_are_those_of_a_model(subject: Subject) -> None:
    """Blocks, lengths and costs that an engine can plan with."""
    with _running(subject) as engine:
        info, core = engine.info, engine.core
        if info.vocab_size < 1 or info.max_model_len < 1 or info.capacity_tokens < 1:
            raise PromiseBroken(f"it offers {info}")
        times_ms = [core.costs.predict_ms(tokens) for tokens in (0, 1, 8, 64, 1000)]
        if times_ms != sorted(times_ms) or times_ms[0] < 0:
            raise PromiseBroken(f"steps of more tokens take less time: {times_ms}")


class ExecutorSuite(Suite, promises=promises):
    """The tests of an executor."""
