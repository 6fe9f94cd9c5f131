"""Times the kernels of a recorded step, next to what this machine can do at most.

Calls of one sort are made in a row, by one foreign call where they are a library's own. The sorts
take turns, so that between two times of one all others ran, and caches hold of its weights and
pages what they hold of them in a step. What a step gains by running block by block of rows is not
in it.

The limits take their turns as well:

    reads               bytes a second of torch's product of a vector with itself, the faster of
                        256 MiB and as many bytes as the step reads, which a cache may hold
    products, linears   the best rate that a linear of the same format reaches here, over all
                        shapes of the step, with many rows that meet one matrix again and again
    products, others    torch's product of float32 matrices

A product is a multiplication with an addition. Of all times the fastest counts, as other programs
only ever make one slower. Knows recorded calls. Does not know models, kernels, requests or how to
print.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import torch

from octavo.bench.roofline import Roofline, multiplying, reading
from octavo.execution.recording import joined
from octavo.interfaces.attention import Attention

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from octavo.execution.recording import RecordedCall
    from octavo.interfaces.native import Work

#: so many rounds, but no new one is begun after so many seconds, unless there were fewer than ...
_ROUNDS: Final = 40
_MAX_SECONDS: Final = 5.0
_MIN_ROUNDS: Final = 5
#: rows at which a linear's best rate is looked for, as far as its buffers have them
_PEAK_ROWS: Final = 128
#: torch's threads sleep while kernels run: what wakes them is no measure of anything
_LIMIT_RUNS: Final = 3
_LINEAR: Final = "linear"
#: names of limits, beside the formats of linears
_READS: Final = "reads"
_FLOATS: Final = "products of floats"


@dataclass(frozen=True, slots=True)
class KernelRow:
    """All calls of one sort in a step. Shares are of the machine's limits; None: not counted.

    `limits` are the timer's, by name, in bytes or products a second: whatever is timed later may
    raise them. `product_limit` names the one of this sort.
    """

    name: str
    num_calls: int
    step_ms: float
    num_bytes: int
    num_products: int
    product_limit: str
    limits: Mapping[str, float]

    @property
    def read_share(self) -> float | None:
        """Return the share of the speed at which memory is read."""
        rate = 1000 * self.num_bytes / self.step_ms
        return rate / self.limits[_READS] if rate else None

    @property
    def product_share(self) -> float | None:
        """Return the share of the best rate of products."""
        rate = 1000 * self.num_products / self.step_ms
        return rate / self.limits[self.product_limit] if rate else None

    @property
    def share(self) -> float | None:
        """Return the share of the roofline: the larger of the two."""
        shares = [one for one in (self.read_share, self.product_share) if one is not None]
        return max(shares, default=None)


@dataclass(slots=True)
class _Turn:
    """What is timed in each round, so many times in a row, and the seconds that each took."""

    make: Callable[[], object]
    num_times: int = 1
    times_s: list[float] = field(default_factory=list)

    def take(self) -> None:
        """Make it."""
        for _ in range(self.num_times):
            start_s = time.perf_counter()
            self.make()
            self.times_s.append(time.perf_counter() - start_s)


class KernelTimer:
    """Times the calls of steps, with the counts and lengths that their buffers hold at the time.

    What calls write is overwritten many times: sequences that are running are worth nothing
    afterwards. Limits are the best that have been seen since this was made.
    """

    def __init__(self) -> None:
        self._rates: dict[str, float] = {}

    @property
    def limits(self) -> Roofline:
        """Return the limits that all machines have, as far as `time` has measured them."""
        products = self._rates[_FLOATS]
        return Roofline(self._rates[_READS] / 1e9, 2 * products / 1e9, torch.get_num_threads())

    @torch.inference_mode()
    def time(self, calls: Sequence[RecordedCall]) -> list[KernelRow]:
        """Return the sorts in the order in which a step first makes them."""
        sorts: dict[str, list[RecordedCall]] = {}
        for call in calls:
            sorts.setdefault(_name(call), []).append(call)
        totals = {name: _total(sort) for name, sort in sorts.items()}
        turns = {name: _Turn(partial(_make, joined(sort))) for name, sort in sorts.items()}
        limits = _limits(sum(num_bytes for num_bytes, _ in totals.values()))
        limits += [limit for sort in sorts.values() if (limit := _peak(sort[0])) is not None]
        _take_turns([*turns.values(), *(turn for _, _, turn in limits)])
        for name, amount, turn in limits:
            self._rates[name] = max(self._rates.get(name, 0.0), amount / min(turn.times_s))
        return [
            self._row(name, sort, totals[name], min(turns[name].times_s))
            for name, sort in sorts.items()
        ]

    def _row(
        self, name: str, sort: Sequence[RecordedCall], total: tuple[int, int], taken_s: float
    ) -> KernelRow:
        work = _work(sort[0])
        limit = _FLOATS if sort[0].operation != _LINEAR or work is None else work.format
        return KernelRow(name, len(sort), 1000 * taken_s, *total, limit, self._rates)


def _limits(num_bytes: int) -> list[tuple[str, int, _Turn]]:
    """Return what measures limits beside those of linears: name, amount, and what is timed."""
    probes = [(_READS, reading()), (_FLOATS, multiplying())]
    if num_bytes:
        probes.append((_READS, reading(num_bytes)))
    return [(name, probe.amount, _Turn(probe.call, _LIMIT_RUNS)) for name, probe in probes]


def _peak(call: RecordedCall) -> tuple[str, int, _Turn] | None:
    """Return what measures the limit of a linear's format, as `_limits`; None for other calls."""
    if call.operation != _LINEAR or _work(call) is None:
        return None
    out, x, _, _, rows = call.args
    num_rows = min(_PEAK_ROWS, len(out), len(x))
    made = joined([call])

    def make() -> None:
        num_live = rows.value
        rows.value = num_rows
        _make(made)
        rows.value = num_live

    num_live = rows.value
    rows.value = num_rows
    work = _work(call)
    rows.value = num_live
    return None if work is None else (work.format, work.num_products, _Turn(make))


def _take_turns(turns: Sequence[_Turn]) -> None:
    """Time all, round by round; a first round is not counted."""
    for turn in turns:
        turn.make()
    start_s = time.perf_counter()
    for number in range(_ROUNDS):
        if number >= _MIN_ROUNDS and time.perf_counter() - start_s > _MAX_SECONDS:
            break
        for turn in turns:
            turn.take()


def _make(made: Sequence[Callable[[], None]]) -> None:
    for call in made:
        call()


def _total(calls: Sequence[RecordedCall]) -> tuple[int, int]:
    """Return the bytes that calls read together, and the products they make."""
    works = [work for call in calls if (work := _work(call)) is not None]
    return sum(work.read_bytes for work in works), sum(work.num_products for work in works)


def _work(call: RecordedCall) -> Work | None:
    native = call.as_native()
    return None if native is None else native.work()


def _name(call: RecordedCall) -> str:
    """Return the sort of a call: its operation and format, and a linear's outputs and inputs."""
    words = [call.operation]
    if isinstance(call.owner, Attention):
        words.insert(0, "attention")
    if call.operation == _LINEAR:
        out, x = call.args[:2]
        words.append(f"{out.shape[-1]} x {x.shape[-1]}")
    work = _work(call)
    if work is not None:
        words.append(work.format)
    return " ".join(words)
