"""Edits of raw logits before sampling: penalties, biases, bans, allowed ids, bad words, masks.

All but masks are sparse: they touch the tokens they name and nothing else. Knows rows, ids and
numbers.
Does not know requests or where a history comes from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor


def _caps_of_bytes() -> NDArray[np.float32]:
    """Return for each byte what its bits let logits be: all there is, or nothing. [256, 8]."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    caps = np.where(bits == 1, np.float32(math.inf), np.float32(-math.inf))
    caps.setflags(write=False)
    return caps


_CAPS: Final = _caps_of_bytes()
#: logits that one call edits: from 32768 on torch wakes threads, which costs more than it saves
_PIECE: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class PenaltyEntries:
    """One entry for each (row, token) with history, each pair at most once; all arrays [n].

    `output_counts` says how often the token stands in the output; 0: in the prompt alone.
    """

    rows: NDArray[np.int64]
    token_ids: NDArray[np.int64]
    output_counts: NDArray[np.integer]
    repetition: NDArray[np.float32]
    frequency: NDArray[np.float32]
    presence: NDArray[np.float32]


def apply_penalties(logits: Tensor, entries: PenaltyEntries) -> None:
    """Penalise the tokens of the history in logits [rows, vocab], in place.

    Repetition divides positive logits and multiplies others, for prompt and output; frequency is
    subtracted once for every occurrence in the output, presence once if there is one.
    """
    if not len(entries.rows):
        return
    where = _where(logits, entries.rows, entries.token_ids)
    counts = _like(entries.output_counts, logits)
    repetition = _like(entries.repetition, logits)
    values = logits[where]
    values = torch.where(values > 0, values / repetition, values * repetition)
    values -= _like(entries.frequency, logits) * counts
    values -= _like(entries.presence, logits) * (counts > 0)
    logits[where] = values


def add_bias(
    logits: Tensor,
    rows: NDArray[np.int64],
    token_ids: NDArray[np.int64],
    bias: NDArray[np.floating],
) -> None:
    """Add bias [n] to the logits at (rows, token_ids) [n], in place; pairs may repeat."""
    if len(rows):
        where = _where(logits, rows, token_ids)
        logits.index_put_(where, _like(bias, logits), accumulate=True)


def ban(logits: Tensor, rows: NDArray[np.int64], token_ids: NDArray[np.int64]) -> None:
    """Set the logits at (rows, token_ids) [n] to -inf, in place."""
    if len(rows):
        logits[_where(logits, rows, token_ids)] = -math.inf


def keep_only(logits: Tensor, row: int, token_ids: NDArray[np.int64]) -> None:
    """Set all logits of one row to -inf except those of token_ids, in place."""
    _check(token_ids, logits.shape[1])
    ids = torch.from_numpy(token_ids).to(logits.device)
    line = logits[row]
    kept = line.index_select(0, ids)  # far faster than the same with square brackets
    line.fill_(-math.inf)
    line.index_copy_(0, ids, kept)


def keep_masked(logits: Tensor, row: int, mask: NDArray[np.uint32]) -> None:
    """Set all logits of one row to -inf except those whose bits are set, in place.

    mask: [ceil(vocab / 32)]; token t is bit t % 32 of word t // 32. NaN stays NaN.
    """
    vocab_size = logits.shape[1]
    if len(mask) != -(-vocab_size // 32):
        raise ValueError(f"a mask of {vocab_size} tokens has not {len(mask)} words")
    # a byte's eight caps are looked up at once: a masked fill takes forty times as long here
    caps = _CAPS.take(mask.view(np.uint8), axis=0).reshape(-1)[:vocab_size]
    pairs = zip(logits[row].split(_PIECE), _like(caps, logits).split(_PIECE), strict=True)
    for values, cap in pairs:
        torch.minimum(values, cap, out=values)


def bad_word_bans(history: Sequence[int], words: Sequence[Sequence[int]]) -> list[int]:
    """Return the ids that would complete a word: the last id of each whose others end `history`."""
    length = len(history)
    bans = []
    for word in words:
        prefix = len(word) - 1
        if prefix < 0 or prefix > length:
            continue
        if list(history[length - prefix :]) == list(word[:-1]):
            bans.append(word[-1])
    return bans


def _where(
    logits: Tensor, rows: NDArray[np.int64], token_ids: NDArray[np.int64]
) -> tuple[Tensor, Tensor]:
    _check(token_ids, logits.shape[1])
    return (
        torch.from_numpy(rows).to(logits.device),
        torch.from_numpy(token_ids).to(logits.device),
    )


def _check(token_ids: NDArray[np.int64], vocab_size: int) -> None:
    """Refuse ids outside the vocabulary: torch would take negative ones from the end."""
    if len(token_ids) and (token_ids.min() < 0 or token_ids.max() >= vocab_size):
        raise ValueError(
            f"token ids must be from 0 up to {vocab_size}, not {token_ids.min()} to "
            f"{token_ids.max()}"
        )


def _like(values: NDArray[np.generic], logits: Tensor) -> Tensor:
    return torch.from_numpy(values).to(device=logits.device, dtype=logits.dtype)
