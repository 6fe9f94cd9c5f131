"""Hundreds of requests, one after another, through an engine that is never idle and never full.

Random traces are short: they do not see what goes wrong at the fiftieth request, what waits for
an idle engine, or what is kept of requests that have ended.

Knows the engine, and requests with parameters and metadata. Does not know how policies are made.
"""

from __future__ import annotations

import copy
import gc
import hashlib
import random
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from octavo.engine.request import Request
from octavo.testing.engines import make_engine, plans_of, request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.engine.engine import Engine
    from octavo.engine.messages import EngineRequest
    from octavo.testing.engines import EngineSetup

NUM_REQUESTS = 320
_EVERY_STEPS = 2
#: with room for all, who waits so long for a first token is passed over without need
_MOST_STEPS_TO_START = 150
_MOST_STEPS_TO_END = 1000
#: a policy may remember whom it served last
_MOST_KEPT = 16
_CROWD = 80
_VOCAB = 900


@dataclass
class Soak:
    """What was seen, by the number of the promise that it breaks."""

    broken: dict[str, str] = field(default_factory=dict)

    def see(self, number: str, problems: Iterator[str]) -> None:
        """Note the first problem."""
        for problem in problems:
            self.broken.setdefault(number, problem)


def soak(setup: EngineSetup) -> Soak:
    """Run requests that come steadily, where there is room for all of them at once."""
    roomy = replace(
        setup, num_blocks=500, max_num_seqs=16, max_num_batched_tokens=256, max_model_len=128
    )
    seen = Soak()
    sources = _requests(NUM_REQUESTS)
    before = [_shown(one) for one in sources]
    engine = make_engine(roomy)
    seen.see("S4", _late(engine, sources))
    seen.see("S11", _changed(sources, before))
    del engine
    seen.see("S15", _kept(sources))
    return seen


def _requests(count: int) -> list[EngineRequest]:
    dice = random.Random(count)  # noqa: S311 - a seed, so that it is the same each time
    return [
        request(
            f"soak-{number}",
            [dice.randrange(_VOCAB) for _ in range(dice.choice((1, 5, 17, 31, 64, 90)))],
            dice.randint(4, 12),
            priority=dice.randint(0, 5),
            arrival_s=float(number),
            metadata={"user": f"u{number % 7}", "session_id": f"s{number % 11}"},
            extra_args={"note": {"of": number}},
        )
        for number in range(count)
    ]


def _shown(source: EngineRequest) -> dict[str, Any]:
    """Return a copy of what a caller gave with a request."""
    params = {one.name: getattr(source.params, one.name) for one in fields(source.params)}
    given = {**params, "metadata": source.metadata, "prompt": source.prompt_token_ids}
    return copy.deepcopy(given)


def _late(engine: Engine, sources: list[EngineRequest]) -> Iterator[str]:
    """Run all; yield who does not start, or does not end, in time."""
    came: dict[str, int] = {}
    left = sources[::-1]
    for step in range(_EVERY_STEPS * len(sources) + _MOST_STEPS_TO_END):
        if left and step % _EVERY_STEPS == 0:
            engine.add(left[-1])
            came[left.pop().request_id] = step
        if not left and not engine.has_work:
            return
        for output in engine.step():
            came.pop(output.request_id, None)
        late = [one for one, since in came.items() if step - since > _MOST_STEPS_TO_START]
        if late:
            core = engine.core
            yield (
                f"{late[0]}, number {int(late[0].partition('-')[2]) + 1} that came, waits for "
                f"{_MOST_STEPS_TO_START} steps although {len(core.running)} of "
                f"{core.limits.max_num_seqs} seats are taken"
            )
            return
    yield f"{len(engine.core.waiting)} requests wait still when all that run have ended"


def _changed(sources: list[EngineRequest], before: list[dict[str, Any]]) -> Iterator[str]:
    """Yield where parameters, metadata or the prompt are not what the caller gave."""
    for source, was in zip(sources, before, strict=True):
        for name, value in _shown(source).items():
            if value != was.get(name):
                yield f"{name} of {source.request_id} was {was.get(name)}, and is {value}"


def _kept(sources: list[EngineRequest]) -> Iterator[str]:
    """Yield how many requests are still in memory, where the engine is not any more."""
    gc.collect()
    mine = {id(one) for one in sources}
    kept = [one for one in gc.get_objects() if type(one) is Request and id(one.source) in mine]
    if len(kept) > _MOST_KEPT:
        yield f"all {len(sources)} requests have ended, and {len(kept)} of them are kept"


def schedule_of_crowd(setup: EngineSetup) -> str:
    """Return a digest of all steps in which few seats serve many requests, all there at once."""
    engine = make_engine(replace(setup, num_blocks=120, max_num_seqs=6, max_model_len=128))
    for one in _requests(_CROWD):
        engine.add(one)
    for _ in range(_MOST_STEPS_TO_END):
        if not engine.has_work:
            break
        engine.step()
    steps = [
        ([one.request_id for one in plan.starts], [(a.row, a.num_tokens) for a in plan.advances])
        for plan in plans_of(engine)
    ]
    return hashlib.sha256(repr(steps).encode()).hexdigest()
