"""The sampler stages of a request that has one in Python: run row by row, with their states.

A draft may be taken back, so states change only when tokens are committed; until then the state
behind each draft is worked out from the one before it.

Knows stages and logits. Does not know batches, nor how a token is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from octavo.interfaces.sampler import SamplerStage, SamplingRow


@dataclass(slots=True)
class _Place:
    """One row of logits of the step: the states before its token, and what it was drawn from."""

    row: SamplingRow
    logits: Tensor
    states: list[Any]


class CustomStages:
    """The whole pipeline of one request, in order."""

    def __init__(self, stages: Sequence[SamplerStage], row: SamplingRow) -> None:
        self._stages = tuple(stages)
        self._states = [stage.new_state(row) for stage in self._stages]
        self._places: list[_Place] = []
        self.has_state = any(state is not None for state in self._states)

    def apply(self, logits: Tensor, row: SamplingRow, offset: int) -> None:
        """Edit logits [vocab] in place. The rows of a step come in the order of their offsets.

        `offset` counts the drafts before this row; the last of them ends `row.output_ids`.
        """
        if offset == 0:
            self._places.clear()
            states = self._states
        else:
            states = self._after(self._places[-1], row.output_ids[-1]) if self.has_state else []
        if not self.has_state:
            for stage in self._stages:
                stage.apply(logits, row)
            return
        for stage, state in zip(self._stages, states, strict=True):
            row.state = state
            stage.apply(logits, row)
        self._places.append(_Place(row, logits.clone(), states))

    def commit(self, token_ids: Sequence[int]) -> None:
        """Follow the tokens that the step's rows yielded."""
        if self.has_state:
            self._states = self._after(self._places[len(token_ids) - 1], token_ids[-1])

    def _after(self, place: _Place, token_id: int) -> list[Any]:
        states = []
        for stage, state in zip(self._stages, place.states, strict=True):
            place.row.state = state
            states.append(stage.advance(place.row, place.logits, token_id))
        return states
