"""How op sets draw: O6 to O11 of their promises.

Knows logits, filters and noise by their definitions, in float64. Does not know any op set.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from octavo.interfaces.sampler import LogprobInputs
from octavo.testing.invariants import PromiseBroken
from octavo.testing.tensors.op_cases import Ops
from octavo.testing.tensors.sampling_cases import (
    chi_square_limit,
    distribution,
    edited,
    inputs_of,
    mixed_rows,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from octavo.interfaces.ops import OpSet
    from octavo.interfaces.sampler import SamplingInputs, SamplingOutputs
    from octavo.testing.subjects import Subject

VOCAB = 150


def _logits(made: Ops, array: NDArray[np.float32]) -> Tensor:
    return torch.from_numpy(array.copy()).to(made.device)


def _draw(
    ops: OpSet, made: Ops, array: NDArray[np.float32], inputs: SamplingInputs
) -> SamplingOutputs:
    """Draw from copies: an op set may overwrite what it is given."""
    return ops.sample(_logits(made, array), copy.deepcopy(inputs))


def greedy_is_the_first_of_the_largest(subject: Subject) -> None:
    """And what may not be drawn is not drawn; bad rows are told, and no other suffers."""
    ops: OpSet = subject.build()
    made = Ops(ops)
    array = np.round(np.random.default_rng(0).standard_normal((12, VOCAB))).astype(np.float32)
    array[3, 7], array[5] = np.nan, -np.inf
    out = _draw(ops, made, array, inputs_of(12))
    bad = np.flatnonzero(out.is_bad).tolist()
    if bad != [3, 5]:
        raise PromiseBroken(f"rows 3 (NaN) and 5 (nothing left) are bad, and told are {bad}")
    for row in sorted(set(range(12)) - {3, 5}):
        wanted = int(array[row].argmax())
        if int(out.token_ids[row]) != wanted:
            raise PromiseBroken(
                f"greedy drew token {out.token_ids[row]}, logit {array[row][out.token_ids[row]]}; "
                f"the first of the largest is {wanted}, logit {array[row][wanted]}"
            )


def edits_and_filters_leave_exactly_what_they_should(subject: Subject) -> None:
    """Rows of all sorts beside float64: each draw is of what is left."""
    ops: OpSet = subject.build()
    made = Ops(ops)
    for seed in range(max(1, round(12 * subject.effort))):
        array, inputs = mixed_rows(20, VOCAB, seed)
        wanted = edited(array, inputs)
        out = _draw(ops, made, array, inputs)
        for row in range(20):
            token = int(out.token_ids[row])
            probabilities, doubt = distribution(wanted[row], inputs, row)
            if probabilities[token] == 0 and not doubt[token]:
                close = wanted[row].max() - wanted[row][token] < 1e-4  # noqa: PLR2004 - rounding
                if not (inputs.temperature[row] == 0 and close):
                    raise PromiseBroken(
                        f"seed {seed}, row {row}: token {token} was drawn, which is not left by "
                        f"temperature {inputs.temperature[row]}, top_k {inputs.top_k[row]}, top_p "
                        f"{inputs.top_p[row]}, min_p {inputs.min_p[row]} and the row's edits"
                    )


def draws_have_the_distribution(subject: Subject) -> None:
    """By chi-square, with the op set's own noise: plain, and behind each filter."""
    ops: OpSet = subject.build()
    made = Ops(ops)
    count = 4000
    row = np.linspace(-2, 2, 12, dtype=np.float32)[np.random.default_rng(1).permutation(12)]
    zeros = np.zeros(count, dtype=np.int64)
    filters: tuple[dict[str, float], ...] = (
        {}, {"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.2}, {"temperature": 1.7},
    )  # fmt: skip
    for number, changes in enumerate(filters):
        seeds = np.full(count, 1234 + number, dtype=np.uint64)
        fields = {"temperature": np.ones(count, np.float32)} | {
            name: np.full(count, value, getattr(inputs_of(1), name).dtype)
            for name, value in changes.items()
        }
        uniforms = ops.uniforms(seeds, np.arange(count), zeros, 0)
        inputs = inputs_of(count, uniforms=uniforms, **fields)
        out = _draw(ops, made, np.tile(row, (count, 1)), inputs)
        probabilities, _ = distribution(row.astype(np.float64), inputs, 0)
        observed = np.bincount(out.token_ids, minlength=12)
        left = probabilities > 0
        if observed[~left].any():
            raise PromiseBroken(f"with {changes} tokens are drawn that are not left")
        expected = probabilities[left] * count
        statistic = float(((observed[left] - expected) ** 2 / expected).sum())
        if statistic > chi_square_limit(int(left.sum()) - 1):
            raise PromiseBroken(
                f"with {changes or 'temperature 1'} {count} draws are {observed.tolist()}, "
                f"expected {[round(p * count) for p in probabilities]}: chi-square {statistic:.0f}"
            )


def noise_is_a_function_of_its_numbers(subject: Subject) -> None:
    """The same alone and among others, in [0, 1), and different for different numbers."""
    ops: OpSet = subject.build()
    rng = np.random.default_rng(3)
    seeds = rng.integers(0, 2**63, 500).astype(np.uint64)
    positions, choices = rng.integers(0, 99, 500), rng.integers(0, 9, 500)
    together = ops.uniforms(seeds, positions, choices, 3)
    if together.min() < 0 or together.max() >= 1 or len(set(together.tolist())) < 499:  # noqa: PLR2004
        raise PromiseBroken("noise is not in [0, 1), or repeats itself")
    for i in (0, 7, 499):
        one = slice(i, i + 1)
        if ops.uniforms(seeds[one], positions[one], choices[one], 3)[0] != together[i]:
            raise PromiseBroken(f"the noise of row {i} depends on the others")
    for name, other in (
        ("seed", ops.uniforms(seeds + np.uint64(1), positions, choices, 3)),
        ("position", ops.uniforms(seeds, positions + 1, choices, 3)),
        ("choice", ops.uniforms(seeds, positions, choices + 1, 3)),
        ("purpose", ops.uniforms(seeds, positions, choices, 4)),
    ):
        if (other == together).any():
            raise PromiseBroken(f"the noise does not depend on the {name}")
    if abs(float(together.mean()) - 0.5) > 5 * math.sqrt(1 / 12 / 500):
        raise PromiseBroken(f"the noise has the mean {together.mean():.3f}")


def logprobs_are_those_of_the_logits(subject: Subject) -> None:
    """Of chosen and top tokens, beside float64; ties go by the lower id."""
    ops: OpSet = subject.build()
    made = Ops(ops)
    array = (np.random.default_rng(5).standard_normal((4, VOCAB)) * 3).astype(np.float32)
    array[1] = np.round(array[1])
    rows, chosen = np.array([2, 0, 1, 3]), np.array([4, 7, 11, 0])
    inputs = LogprobInputs(rows, chosen, np.array([2, 0, 5, -1], np.int32))
    out = ops.logprobs(_logits(made, array), inputs)
    x = array.astype(np.float64)
    logs = (
        x
        - np.log(np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True))
        - x.max(1, keepdims=True)
    )
    for i, (row, token) in enumerate(zip(rows, chosen, strict=True)):
        order = np.lexsort((np.arange(VOCAB), -array[row]))
        num_top = VOCAB if inputs.num_top[i] < 0 else int(inputs.num_top[i])
        if abs(float(out.chosen[i]) - logs[row][token]) > 1e-4:  # noqa: PLR2004 - float32
            raise PromiseBroken(f"logprob {out.chosen[i]} of token {token}, not {logs[row][token]}")
        rank = 1 + int((array[row] > array[row][token]).sum())
        if int(out.ranks[i]) != rank and row != 1:
            raise PromiseBroken(f"rank {out.ranks[i]} of token {token}, not {rank}")
        if out.top_ids[i].tolist() != order[:num_top].tolist():
            raise PromiseBroken(f"top ids {out.top_ids[i][:8]}, not {order[:num_top][:8]}")
        if not np.allclose(out.top_logprobs[i], logs[row][order[:num_top]], atol=1e-4):
            raise PromiseBroken(f"top logprobs {out.top_logprobs[i][:4]} of row {row}")


def a_draw_depends_on_its_own_row_alone(subject: Subject) -> None:
    """In another order, and with fewer others, each row draws the same token."""
    ops: OpSet = subject.build()
    made = Ops(ops)
    array, inputs = mixed_rows(12, VOCAB, 99)
    inputs = replace(inputs, allowed=[], bias=[], penalties=[], banned=[], masks=[])
    whole = _draw(ops, made, array, inputs).token_ids
    for order in (np.arange(12)[::-1].copy(), np.array([7]), np.array([3, 3, 0])):
        part = inputs_of(
            len(order),
            temperature=inputs.temperature[order],
            top_k=inputs.top_k[order],
            top_p=inputs.top_p[order],
            min_p=inputs.min_p[order],
            uniforms=inputs.uniforms[order],
        )
        tokens = _draw(ops, made, array[order], part).token_ids
        if tokens.tolist() != whole[order].tolist():
            raise PromiseBroken(
                f"rows {order.tolist()} by themselves draw {tokens}, not {whole[order]}"
            )
