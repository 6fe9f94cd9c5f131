"""Token counts of one request, for penalties: kept as it grows, never recounted.

Knows token ids. Does not know logits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from octavo.interfaces.sampler import PenaltyRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from octavo.engine.plan import RowSpec


class PenaltyHistory:
    """The distinct tokens of prompt and output, and how often each stands in the output."""

    def __init__(self, spec: RowSpec, token_ids: Sequence[int]) -> None:
        params = spec.params
        self.repetition = params.repetition_penalty
        self.frequency = params.frequency_penalty
        self.presence = params.presence_penalty
        prompt = np.unique(np.asarray(token_ids[: spec.num_prompt_tokens], dtype=np.int64))
        self._size = len(prompt)
        self._ids = np.empty(max(64, 2 * self._size), dtype=np.int64)
        self._counts = np.zeros(len(self._ids), dtype=np.int32)
        self._ids[: self._size] = prompt
        self._index = {int(token_id): index for index, token_id in enumerate(prompt)}
        for token_id in token_ids[spec.num_prompt_tokens :]:
            self.append(token_id)

    @classmethod
    def of(cls, spec: RowSpec, token_ids: Sequence[int]) -> PenaltyHistory | None:
        """Return a history, or None when the request has no penalty."""
        params = spec.params
        if params.repetition_penalty == 1 and not (
            params.frequency_penalty or params.presence_penalty
        ):
            return None
        return cls(spec, token_ids)

    def append(self, token_id: int) -> None:
        """Count one more output token."""
        index = self._index.get(token_id)
        if index is None:
            index = self._size
            if index == len(self._ids):
                self._ids = np.concatenate([self._ids, np.empty_like(self._ids)])
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._ids[index] = token_id
            self._index[token_id] = index
            self._size += 1
        self._counts[index] += 1

    def row(self, row: int, drafts: Sequence[int] = ()) -> PenaltyRow:
        """Return the penalties for row `row` of the logits (views: to be read at once).

        `drafts` are counted as well, for this row only.
        """
        ids, counts = self._ids[: self._size], self._counts[: self._size]
        if drafts:
            ids, counts = self._with(drafts, ids, counts)
        return PenaltyRow(
            row,
            ids,
            counts,
            self.repetition,
            self.frequency,
            self.presence,
        )

    def _with(
        self, drafts: Sequence[int], ids: NDArray[np.int64], counts: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return copies of ids and counts in which `drafts` are counted."""
        new = [token_id for token_id in dict.fromkeys(drafts) if token_id not in self._index]
        places = {token_id: len(ids) + place for place, token_id in enumerate(new)}
        ids = np.concatenate((ids, np.asarray(new, dtype=np.int64)))
        counts = np.concatenate((counts, np.zeros(len(new), dtype=np.int32)))
        for token_id in drafts:
            counts[places.get(token_id, self._index.get(token_id, -1))] += 1
        return ids, counts
