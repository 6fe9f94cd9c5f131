"""The promises of op sets: O1 to O9.

Knows operations by their definitions, in float64. Does not know any op set, models or layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from octavo.errors import OctavoError, UnsupportedError
from octavo.interfaces.ops import Count, OpSet
from octavo.interfaces.weights import WeightBlocks
from octavo.testing.invariants import PromiseBroken, Promises
from octavo.testing.suite import Suite
from octavo.testing.tensors import sampling
from octavo.testing.tensors.op_cases import CANARY, CAP, OpCase, Ops, blocks_of, noise, refusal_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from octavo.testing.subjects import Subject

promises = Promises("ops", OpSet)

#: of a result's error to the result, both as root mean squares: what activations of a type allow
_TOLERANCES = {"float64": 1e-6, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
#: products of activations that are rounded to bytes, as kernels of quantised weights do
_ROUNDED = 2e-2


def _cases(subject: Subject) -> Iterator[OpCase]:
    """Yield the operations; one that the op set refuses, as it may, is left out."""
    for case in Ops(subject.build()).cases():
        if case.is_optional and refusal_of(lambda case=case: case.run(Count(1))):  # type: ignore[misc]
            continue
        yield case


@promises.keeps("O1")
def rows_beyond_the_count_stay_as_they_were(subject: Subject) -> None:
    """Of every operation, for every count."""
    for case in _cases(subject):
        for count in (0, 1, 4, CAP):
            out = case.run(Count(count))
            if bool((out[count:] != CANARY).any()):
                raise PromiseBroken(f"{case.name} of {count} rows wrote beyond them")
            if count and bool((out[:count] == CANARY).all()):
                raise PromiseBroken(f"{case.name} of {count} rows wrote nothing")


@promises.keeps("O2")
def results_are_those_of_the_definition(subject: Subject) -> None:
    """Of every operation, beside float64."""
    limit = _TOLERANCES[subject.build().activation_dtype]
    for case in _cases(subject):
        got = case.run(Count(CAP)).double().cpu()
        error = _relative(got - case.expected, case.expected)
        allowed = max(limit, _ROUNDED) if case.name.startswith("linear") else limit
        if not error <= allowed:
            worst = int((got - case.expected).abs().flatten(1).max(1).values.argmax())
            raise PromiseBroken(
                f"{case.name} is off by {error:.2g} of the result, of {allowed:g} at most; row "
                f"{worst} is {_shown(got[worst])}, not {_shown(case.expected[worst])}"
            )


def _relative(error: Tensor, of: Tensor) -> float:
    return float(error.square().mean().sqrt() / of.square().mean().sqrt())


def _shown(row: Tensor) -> list[float]:
    return [round(value, 4) for value in row.flatten()[:4].tolist()]


@promises.keeps("O3")
def a_row_depends_on_its_own_row_alone(subject: Subject) -> None:
    """Alone, or with others: the same up to rounding."""
    for case in _cases(subject):
        whole = case.run(Count(CAP)).double().cpu()
        for count in (1, 2, 5):
            part = case.run(Count(count)).double().cpu()[:count]
            if not torch.allclose(part, whole[:count], rtol=1e-3, atol=1e-4):
                raise PromiseBroken(
                    f"{case.name}: rows of a batch of {count} differ from those of {CAP}"
                )


@promises.keeps("O4")
def an_unknown_block_type_is_refused(subject: Subject) -> str:
    """With the typed error, which names the tensor."""
    ops: OpSet = subject.build()
    blocks = WeightBlocks("model.w", "IQ9", (1, 8), np.zeros((1, 8), np.uint8), "a.gguf")
    error = refusal_of(lambda: ops.pack_linear([blocks]))
    if error is None:
        raise PromiseBroken("weights of the unknown block type IQ9 are packed")
    if "model.w" not in str(error) or "IQ9" not in str(error):
        raise PromiseBroken(f"the error names neither tensor nor type: {error}")
    if "F32" not in ops.block_types:
        raise PromiseBroken("F32 is not among its block types")
    return error.headline


@promises.keeps("O5")
def weights_are_packed_once(subject: Subject) -> None:
    """What is done to a file's memory afterwards changes no result."""
    ops: OpSet = subject.build()
    made = Ops(ops)
    weight = noise(32, 64) * 0.1
    data = weight.clone()
    packed = ops.pack_linear([blocks_of(data)])
    results = []
    for _ in range(2):
        out = made.canaries(32)
        ops.linear(out, made.on(made.x), packed, None, Count(CAP))
        results.append(out.clone())
        data.fill_(3.0)
    if not torch.equal(results[0], results[1]):
        raise PromiseBroken("a linear changes with the memory that its weight was packed from")


promises.keeps("O6")(sampling.greedy_is_the_first_of_the_largest)
promises.keeps("O7")(sampling.edits_and_filters_leave_exactly_what_they_should)
promises.keeps("O8")(sampling.draws_have_the_distribution)
promises.keeps("O9")(sampling.noise_is_a_function_of_its_numbers)
promises.keeps("O10")(sampling.logprobs_are_those_of_the_logits)
promises.keeps("O11")(sampling.a_draw_depends_on_its_own_row_alone)


@promises.keeps("O12")
def operations_it_lacks_are_refused(subject: Subject) -> str | None:
    """With the typed error, and nothing half done."""
    refused = []
    for case in Ops(subject.build()).cases():
        if not case.is_optional:
            continue
        try:
            case.run(Count(1))
        except UnsupportedError as error:
            refused.append(error.headline)
        except OctavoError as error:
            raise PromiseBroken(
                f"{case.name} fails with {type(error).__name__}: {error}"
            ) from error
    return refused[0] if refused else None


class OpsSuite(Suite, promises=promises):
    """The tests of an op set."""
