"""D1 to D5, of proposers that run beside a model, in the executor.

`sample`: settings of the engine, as `LLM` takes them; with a "model" they are tried on that one,
and else on a tiny one of made-up weights.

Knows tokens, drafts and engines. Does not know how any proposer guesses.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from octavo.testing.census import census
from octavo.testing.engines import request, run_all
from octavo.testing.invariants import PromiseBroken
from octavo.testing.tensors.draft_engines import DraftingExecutor, Proposal, Watch, drafting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.engine.engine import Engine
    from octavo.engine.messages import EngineRequest
    from octavo.testing.subjects import Subject

_MAX_TOKENS = 16
#: settings in which the same requests are run: alone and at ease, ahead of time, and cramped
_WAYS: Mapping[str, Mapping[str, Any]] = MappingProxyType({
    "one step at a time": {"depth": 0},
    "planned ahead, in small chunks": {"depth": 1, "max_num_batched_tokens": 9},
    "without room": {
        "depth": 0, "num_gpu_blocks_override": 14, "block_size": 4, "max_model_len": 48,
    },
})  # fmt: skip
_COMPARED = 12
_ROUNDS, _FIRST_ROUNDS = 6, 2


@dataclass(slots=True)
class _Runs:
    """What became of the same requests, by the way in which they were run."""

    plain: dict[str, list[int]]
    drafted: dict[str, dict[str, list[int]]]
    watches: dict[str, Watch]


def _requests() -> list[EngineRequest]:
    """Return requests that share beginnings, greedy and drawn."""
    made = []
    for number in range(6):
        prompt = [(7 * place + number // 2) % 250 for place in range(5 + 5 * number)]
        temperature = 0.0 if number % 2 else 1.0
        one = request(f"r{number}", prompt, _MAX_TOKENS, seed=number, temperature=temperature)
        made.append(one)
    return made


def _runs(subject: Subject) -> _Runs:
    """Run all requests without drafts, and in each way with some that are spoilt; once."""
    if "runs" not in subject.memory:
        with drafting(None, **_given(subject)) as (engine, _):
            runs = _Runs(_tokens(engine), {}, {})
        for way, settings in _WAYS.items():
            with drafting(subject, is_spoiling=True, **settings) as (engine, executor):
                runs.drafted[way] = _tokens(engine)
                executor.watched.rehearse()
                runs.watches[way] = executor.watched.watch
        subject.memory["runs"] = runs
    kept: _Runs = subject.memory["runs"]
    return kept


def _given(subject: Subject) -> dict[str, Any]:
    return subject.sample if isinstance(subject.sample, dict) else {}


def _tokens(engine: Engine) -> dict[str, list[int]]:
    return {name: one.token_ids for name, one in run_all(engine, _requests()).items()}


def _require_none(subject: Subject, number: str) -> None:
    """Raise PromiseBroken for the first thing that was seen wrong."""
    for way, watch in _runs(subject).watches.items():
        for found, text in watch.problems:
            if found == number:
                raise PromiseBroken(f"{text} ({way})")


def drafts_are_those_of_a_fresh_start(subject: Subject) -> str | None:
    """D1: whatever was rejected, preempted or written over before. Greedy requests are compared."""
    seen = [
        one
        for watch in _runs(subject).watches.values()
        for one in watch.proposals
        if one.is_greedy and one.drafts
    ]
    if not seen:
        return "it proposed nothing on this model"
    num_compared = max(4, round(_COMPARED * subject.effort))
    stride = max(1, len(seen) // num_compared)
    with drafting(subject, enable_prefix_caching=False, depth=0) as (engine, executor):
        for number, one in enumerate(seen[::stride]):
            fresh = _first_proposal(engine, executor, one, f"fresh{number}")
            kept = min(len(one.drafts), len(fresh))
            if one.drafts[:kept] != fresh[:kept]:
                raise PromiseBroken(
                    f"after {list(one.tokens)} it proposes {list(one.drafts)}, and from a fresh "
                    f"start {list(fresh)}"
                )
    return None


def _first_proposal(
    engine: Engine, executor: DraftingExecutor, one: Proposal, name: str
) -> tuple[int, ...]:
    """Return what is proposed after the same tokens, all but the last of them a prompt."""
    proposals = executor.watched.watch.proposals
    start = len(proposals)
    engine.add(request(name, list(one.tokens[:-1]), _MAX_TOKENS, temperature=0.0))
    while engine.has_work and len(proposals) == start:
        engine.step()
    engine.abort([name])
    while engine.has_work:
        engine.step()
    same = [new.drafts for new in proposals[start:] if new.tokens == one.tokens]
    return same[0] if same else ()


def drafts_are_ids_and_not_too_many(subject: Subject) -> None:
    """D2: for every row and step that was seen."""
    _require_none(subject, "D2")


def rows_that_ended_leave_nothing(subject: Subject) -> None:
    """D3: after many requests it holds no more than after some; an unused row is ignored."""
    _require_none(subject, "D3")
    with drafting(subject, depth=0) as (engine, executor):
        inner = executor.watched.inner
        inner.forget(executor.runner.shape.max_num_seqs - 1)
        held = []
        for number in range(_ROUNDS):
            prompts = [[(p * 5 + number + n) % 250 for p in range(20)] for n in range(8)]
            run_all(engine, [request(f"{number}-{i}", one, 8) for i, one in enumerate(prompts)])
            held.append(census(inner))
        # blocks may each be remembered, and all have been used after some rounds
        allowed = executor.runner.shape.num_blocks
        grown = held[-1] - held[_FIRST_ROUNDS - 1]
        if grown > allowed:
            num_requests = 8 * (_ROUNDS - _FIRST_ROUNDS)
            raise PromiseBroken(
                f"{num_requests} requests came and ended: it held {held[_FIRST_ROUNDS - 1]} "
                f"objects, and holds {held[-1]}"
            )


def requests_are_not_changed(subject: Subject) -> None:
    """D4: neither their tokens nor their blocks, by proposing or rehearsing."""
    _require_none(subject, "D4")


def the_text_is_the_same_beside_a_model(subject: Subject) -> None:
    """D5: greedy and seeded, with right drafts and wrong ones, in every way to run them."""
    runs = _runs(subject)
    for way, drafted in runs.drafted.items():
        for name, token_ids in drafted.items():
            if token_ids != runs.plain[name]:
                raise PromiseBroken(
                    f"{name} gets {token_ids} with drafts ({way}), and {runs.plain[name]} without"
                )
