"""What steps cost on some machine, as a file: measured there once, and replayed anywhere.

    {"model": "smollm2", "points": [[1, 12.5], [16, 30.1], [128, 90.0]],
     "per_context_ms": 0.0001, "decode_context_ms": 0.0005,
     "sequence_points": [[1, 0.0], [9, 1.5]], "machine": {"cpu": "..."}}

Knows numbers and JSON. Does not know how they were measured, nor models.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from octavo.errors import ConfigError
from octavo.interfaces.executor import StepCosts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from octavo.engine.plan import StepPlan

_KEYS = (
    "points", "per_context_ms", "decode_context_ms", "per_sequence_ms", "sequence_points",
    "machine", "model",
)  # fmt: skip
_MIN_POINTS = 2


@dataclass(frozen=True, slots=True)
class CostTable:
    """The costs of steps of one sequence, and what further sequences of a step add.

    That is `per_sequence_ms` for each, or what lies between `sequence_points`: (sequences, ms).
    A position before a token may cost more where the token is alone, as it has to be read for it:
    `decode_context_ms`, if it is not what `costs` say of all.
    `machine` and `model` say where the numbers come from, for people.
    """

    costs: StepCosts
    per_sequence_ms: float = 0.0
    machine: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    sequence_points: tuple[tuple[int, float], ...] = ()
    decode_context_ms: float | None = None

    def predict_ms(self, plan: StepPlan) -> float:
        """Return what a step takes."""
        num_tokens = num_pairs = num_alone = 0
        for advance in plan.advances:
            num_tokens += advance.num_tokens
            num_pairs += advance.num_tokens * advance.start
            if advance.num_tokens == 1:
                num_alone += advance.start
        step_ms = self.costs.predict_ms(num_tokens, num_pairs) + self._more_ms(len(plan.advances))
        if self.decode_context_ms is None:
            return step_ms
        return step_ms + num_alone * (self.decode_context_ms - self.costs.per_context_ms)

    def _more_ms(self, num_seqs: int) -> float:
        if num_seqs <= 1:
            return 0.0
        if not self.sequence_points:
            return self.per_sequence_ms * (num_seqs - 1)
        return StepCosts(self.sequence_points).predict_ms(num_seqs)

    def write(self, path: Path) -> None:
        """Write the table. Raises ConfigError when the file cannot be written."""
        values = {
            "model": self.model,
            "points": self.costs.points,
            "per_context_ms": self.costs.per_context_ms,
            "decode_context_ms": self.decode_context_ms,
            "per_sequence_ms": self.per_sequence_ms,
            "sequence_points": self.sequence_points,
            "machine": dict(self.machine),
        }
        try:
            path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write the cost table '{path}'", str(error)) from error

    @classmethod
    def read(cls, path: Path) -> CostTable:
        """Read a table. Raises ConfigError that says what is wrong with the file."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            return cls._of(values)
        except OSError as error:
            raise ConfigError(
                f"cannot read the cost table '{path}'",
                str(error),
                "write one with: octavo bench costs MODEL --output FILE",
            ) from error
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(
                f"'{path}' is no cost table",
                f"{type(error).__name__}: {error}",
                "write one with: octavo bench costs MODEL --output FILE",
            ) from error

    @classmethod
    def _of(cls, values: Any) -> CostTable:
        if not isinstance(values, dict):
            raise TypeError("it holds no table of settings")
        unknown = sorted(set(values) - set(_KEYS))
        if unknown:
            raise ValueError(f"unknown keys {', '.join(unknown)}; known: {', '.join(_KEYS)}")
        points = _points(values["points"])
        sequences, alone = values.get("sequence_points"), values.get("decode_context_ms")
        return cls(
            StepCosts(points, _number(values.get("per_context_ms", 0.0))),
            _number(values.get("per_sequence_ms", 0.0)),
            values.get("machine") or {},
            values.get("model"),
            _points(sequences, least=-math.inf) if sequences else (),
            None if alone is None else _number(alone),
        )


def _points(values: Any, least: float = 0.0) -> tuple[tuple[int, float], ...]:
    points = tuple((int(size), _number(ms, least)) for size, ms in values)
    if len(points) < _MIN_POINTS or list(points) != sorted(points):
        raise ValueError("points must be two or more pairs [tokens, ms] that rise")
    if len(dict(points)) < len(points):
        raise ValueError("points must be of different numbers of tokens")
    return points


def _number(value: Any, least: float = 0.0) -> float:
    number = float(value)
    if not math.isfinite(number) or number < least:
        raise ValueError(f"{value!r} is no number of milliseconds")
    return number
