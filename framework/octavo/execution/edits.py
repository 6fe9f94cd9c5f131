"""What a request's parameters do to its logits, as arrays: made once, then used at every step.

Lists of ids may be as long as the vocabulary. Knows parameters and token ids. Does not know
logits, penalties (which grow with the history), stages or the op set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from octavo.engine.plan import RowSpec
    from octavo.interfaces.sampler import SamplingInputs


class RowEdits:
    """Allowed ids, biases, and bans of ends and bad words, for one row of the batch or many."""

    __slots__ = ("_allowed", "_bias", "_ends", "_last_ids", "_spec")

    def __init__(self, spec: RowSpec) -> None:
        params = spec.params
        self._spec = spec
        self._allowed = _ids(params.allowed_token_ids or ())
        bias = params.logit_bias or {}
        self._bias = _ids(bias), np.fromiter(bias.values(), dtype=np.float32)
        self._ends = _ids(())
        if params.min_tokens and spec.grammar is None:  # whose masks say when the text may end
            self._ends = _ids((*spec.eos_token_ids, *(params.stop_token_ids or ())))
        self._last_ids = _by_beginning(spec.bad_words_ids)

    @classmethod
    def of(cls, spec: RowSpec, in_use: Iterable[RowEdits | None]) -> RowEdits | None:
        """Return the edits of a request, or None when it has none.

        Those of another choice of the same call are shared, if there is one in use.
        """
        params = spec.params
        if not (
            params.allowed_token_ids or params.logit_bias or params.min_tokens or spec.bad_words_ids
        ):
            return None
        for one in in_use:
            if one is not None and one._is_for(spec):  # noqa: SLF001 - of the same class
                return one
        return cls(spec)

    def note(self, index: int, output_ids: Sequence[int], inputs: SamplingInputs) -> None:
        """Say in `inputs` how row `index` of the logits is to be edited after `output_ids`."""
        if len(self._allowed):
            inputs.allowed.append((index, self._allowed))
        if len(self._bias[0]):
            inputs.bias.append((index, *self._bias))
        if len(self._ends) and len(output_ids) < self._spec.params.min_tokens:
            inputs.banned.append((index, self._ends))
        for length, last_ids in self._last_ids.items():
            if length <= len(output_ids):
                banned = last_ids.get(tuple(output_ids[len(output_ids) - length :]))
                if banned is not None:
                    inputs.banned.append((index, banned))

    def _is_for(self, spec: RowSpec) -> bool:
        own = self._spec
        return (
            own.params is spec.params
            and own.bad_words_ids is spec.bad_words_ids
            and own.eos_token_ids == spec.eos_token_ids
        )


def _by_beginning(
    words: Sequence[tuple[int, ...]],
) -> dict[int, dict[tuple[int, ...], np.ndarray]]:
    """Return the ids that end words, by the ids before them, by the number of those."""
    found: dict[int, dict[tuple[int, ...], list[int]]] = {}
    for word in words:
        found.setdefault(len(word) - 1, {}).setdefault(tuple(word[:-1]), []).append(word[-1])
    return {
        length: {beginning: _ids(ends) for beginning, ends in by_beginning.items()}
        for length, by_beginning in found.items()
    }


def _ids(token_ids: Iterable[int]) -> np.ndarray:
    return np.fromiter(token_ids, dtype=np.int64)
