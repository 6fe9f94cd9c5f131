"""The sampler stages of a request that has one in Python: run row by row, with their states.

A draft may be taken back, so states change only when tokens are committed; until then the state
behind each draft is worked out from the one before it.

Knows stages and logits. Does not know batches, nor how a token is drawn.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.errors import OctavoError
from octavo.faults import FAULTS, Fault, FaultLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from octavo.interfaces.sampler import SamplerStage, SamplingRow

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Place:
    """One row of logits of the step: the states before its token, and what it was drawn from."""

    row: SamplingRow
    logits: Tensor
    states: list[Any]


def call_stage(stage: SamplerStage, method: str, *args: Any, log: FaultLog) -> Any:
    """Call a method of a stage.

    Raises RequestFailedError, which names the stage, for what it raises by mistake; the log is
    told. What it raises on purpose, an OctavoError, goes on as it is.
    """
    try:
        return getattr(stage, method)(*args)
    except OctavoError:
        raise
    except FAULTS as error:
        fault = Fault.of(stage, method, error)
        log.tell(fault)
        raise fault.refusal() from error


class CustomStages:
    """The whole pipeline of one request, in order."""

    def __init__(
        self, stages: Sequence[SamplerStage], row: SamplingRow, log: FaultLog | None = None
    ) -> None:
        self._log = log or FaultLog(logger)
        self._stages = tuple(stages)
        self._states: list[Any] = []
        self._places: list[_Place] = []
        self._error: OctavoError | None = None
        try:
            self._states = [self._call(stage, "new_state", row) for stage in self._stages]
        except OctavoError as error:
            self.fail(error)
        self.has_state = any(state is not None for state in self._states)

    def fail(self, error: OctavoError) -> None:
        """Have the next `apply` raise what went wrong where no request could be ended for it."""
        self._error = error

    def _call(self, stage: SamplerStage, method: str, *args: Any) -> Any:
        return call_stage(stage, method, *args, log=self._log)

    def apply(self, logits: Tensor, row: SamplingRow, offset: int) -> None:
        """Edit logits [vocab] in place. The rows of a step come in the order of their offsets.

        `offset` counts the drafts before this row; the last of them ends `row.output_ids`. Raises
        RequestFailedError when a stage fails, or has failed since the last call.
        """
        if self._error is not None:
            raise self._error
        if offset == 0:
            self._places.clear()
            states = self._states
        else:
            states = self._after(self._places[-1], row.output_ids[-1]) if self.has_state else []
        if not self.has_state:
            for stage in self._stages:
                self._call(stage, "apply", logits, row)
            return
        for stage, state in zip(self._stages, states, strict=True):
            row.state = state
            self._call(stage, "apply", logits, row)
        self._places.append(_Place(row, logits.clone(), states))

    def commit(self, token_ids: Sequence[int]) -> None:
        """Follow the tokens that the step's rows yielded."""
        if not self.has_state:
            return
        try:
            self._states = self._after(self._places[len(token_ids) - 1], token_ids[-1])
        except OctavoError as error:
            self.fail(error)

    def _after(self, place: _Place, token_id: int) -> list[Any]:
        states = []
        for stage, state in zip(self._stages, place.states, strict=True):
            place.row.state = state
            states.append(self._call(stage, "advance", place.row, place.logits, token_id))
        return states
