"""Rows to sample from, and what a draw must be, by definition and in float64.

Knows logits, parameters and noise. Does not know op sets.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.interfaces.sampler import PenaltyRow, SamplingInputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CLOSE = 1e-5


def inputs_of(count: int, **changes: Any) -> SamplingInputs:
    """Return the inputs of greedy rows, or of others where the changes say so."""
    fields: dict[str, Any] = {
        "temperature": np.zeros(count, np.float32),
        "top_k": np.zeros(count, np.int32),
        "top_p": np.ones(count),
        "min_p": np.zeros(count),
        "uniforms": np.full(count, 0.5),
    }
    return SamplingInputs(**{**fields, **changes})


def mixed_rows(count: int, vocab: int, seed: int) -> tuple[NDArray[np.float32], SamplingInputs]:
    """Return logits and inputs of rows of all sorts, edited or not."""
    rng = np.random.default_rng(seed)
    logits = (rng.standard_normal((count, vocab)) * rng.choice([0.5, 3], (count, 1))).astype("f4")
    inputs = inputs_of(
        count,
        temperature=rng.choice([0.0, 0.7, 1.3], count).astype(np.float32),
        top_k=rng.choice([0, 1, 5, vocab], count).astype(np.int32),
        top_p=rng.choice([1.0, 0.3, 0.9], count),
        min_p=rng.choice([0.0, 0.05, 0.4], count),
        uniforms=np.floor(rng.random(count) * 2**53) / 2**53,
    )
    for row in range(count):
        _edit(inputs, row, vocab, rng)
    return logits, inputs


def _edit(inputs: SamplingInputs, row: int, vocab: int, rng: np.random.Generator) -> None:
    ids = rng.permutation(vocab).astype(np.int64)
    if row % 2:
        inputs.allowed.append((row, np.sort(ids[: vocab // 2])))
    if row % 3 == 0:
        inputs.bias.append((row, ids[:4], rng.normal(size=4).astype(np.float32) * 3))
    if row % 3:
        counts = rng.integers(0, 3, 6).astype(np.int32)
        inputs.penalties.append(PenaltyRow(row, ids[:6], counts, 1.4, 0.3, -0.2))
    if row % 4 == 1:
        inputs.banned.append((row, ids[2:9]))
    if row % 5 == 2:  # noqa: PLR2004 - of five rows, one
        bits = rng.integers(0, 2**32, -(-vocab // 32), dtype=np.uint32)
        inputs.masks.append((row, bits | np.uint32(7)))


def edited(logits: NDArray[np.float32], inputs: SamplingInputs) -> NDArray[np.float64]:
    """Return the logits after all edits, in the order that `SamplingInputs` says."""
    x = logits.astype(np.float64)
    for row, ids in inputs.allowed:
        keep = np.zeros(x.shape[1], bool)
        keep[ids] = True
        x[row, ~keep] = -np.inf
    for row, ids, adds in inputs.bias:
        x[row, ids] += adds.astype(np.float64)
    for one in inputs.penalties:
        values = x[one.row, one.token_ids]
        repetition = np.float64(np.float32(one.repetition))
        values = np.where(values > 0, values / repetition, values * repetition)
        counts = one.output_counts
        values -= counts * np.float64(np.float32(one.frequency))
        values -= (counts > 0) * np.float64(np.float32(one.presence))
        x[one.row, one.token_ids] = values
    for row, ids in inputs.banned:
        x[row, ids] = -np.inf
    for row, mask in inputs.masks:
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: x.shape[1]]
        x[row, bits == 0] = -np.inf
    return x


def distribution(row: NDArray[np.float64], inputs: SamplingInputs, index: int) -> Any:
    """Return the probabilities that filters leave of an edited row, and those near a border.

    A token near the border of a filter may be in or out, by rounding.
    """
    temperature = float(inputs.temperature[index])
    if temperature == 0 or not np.isfinite(row).any():
        best = np.zeros(len(row))
        best[int(np.argmax(row))] = 1.0
        return best, np.zeros(len(row), bool)
    x = (row - row.max()) / temperature
    weights = np.exp(x)
    doubt = np.zeros(len(row), bool)
    if inputs.min_p[index] > 0:
        limit = float(inputs.min_p[index]) * weights.max()
        doubt |= np.abs(weights - limit) < _CLOSE
        weights = np.where(weights >= limit, weights, 0)
    k = int(inputs.top_k[index])
    if 0 < k < len(row):
        kth = np.sort(weights)[-k]
        tied = (weights == kth) & (weights > 0)
        doubt |= tied if tied.sum() > 1 else np.zeros(len(row), bool)
        weights = np.where(weights >= kth, weights, 0)
    p = float(inputs.top_p[index])
    if p < 1:
        probabilities = weights / weights.sum()
        order = np.argsort(-probabilities, kind="stable")
        before = np.cumsum(probabilities[order]) - probabilities[order]
        doubt[order] |= np.abs(before - p) < _CLOSE
        weights[order[before >= p]] = 0
    return weights / weights.sum(), doubt


def chi_square_limit(degrees: int) -> float:
    """Return what a chi-square statistic exceeds once in a million (Wilson and Hilferty, 1931)."""
    sigmas = 4.75
    part = 2 / (9 * degrees)
    return degrees * (1 - part + sigmas * math.sqrt(part)) ** 3
