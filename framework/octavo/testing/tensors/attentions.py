"""The promises of attention back ends: T1 to T8, on ragged batches over shuffled blocks.

`sample = {"device": "cuda"}` says where buffers live, if not on the CPU.

Knows queries, keys and values, and attention by its definition in float64. Does not know models.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from octavo.errors import UnsupportedError
from octavo.interfaces.attention import Attention, CacheSpec
from octavo.testing.invariants import PromiseBroken, Promises
from octavo.testing.suite import Suite
from octavo.testing.tensors.attention_cases import BLOCK, Shape, Steps, tables_of

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.testing.subjects import Subject

promises = Promises("attention", Attention)

#: steps that mix prefills, chunks and decodes, around the borders of blocks
STEPS: tuple[dict[int, int], ...] = (
    {0: 9, 1: 1},
    {1: 3, 0: 1, 2: 4},
    {0: 1, 1: 1, 2: 1},
    {3: 16, 0: 1, 1: 5},
    {2: 1, 0: 12, 1: 1},
    {2: 3, 3: 1},
)
SHAPES: tuple[Shape, ...] = (
    Shape(4, 4, 16),
    Shape(4, 2, 16),
    Shape(8, 1, 32),
    Shape(6, 2, 64),
    Shape(4, 2, 16, window=1),
    Shape(4, 2, 16, window=5),
    Shape(4, 2, 16, softcap=3.0),
    Shape(4, 2, 32, window=7, softcap=30.0),
)
#: sequences beyond pieces and tiles of any size: whole, with windows, and with caps
LONG_SHAPES: tuple[Shape, ...] = (
    Shape(2, 1, 16),
    Shape(2, 2, 16, softcap=5.0),
    *(Shape(2, 1, 16, window=size) for size in (31, 97, 128, 250, 513, 1100)),
)
LONG_STEPS: tuple[dict[int, int], ...] = (
    {0: 600, 1: 63},
    {0: 424, 1: 2},
    {1: 1, 0: 1},
    {0: 70, 1: 63},
    *[{0: 1, 1: 1}] * 3,
    {0: 140, 1: 300},
    {0: 1, 1: 1},
)
_LONG_BLOCKS = 320
_TOLERANCE = 5e-6


def _steps(subject: Subject, shape: Shape, tables: list[list[int]] | None = None) -> Steps:
    device = subject.sample["device"] if isinstance(subject.sample, dict) else "cpu"
    return Steps(subject.build(), shape, tables or tables_of(0), device)


@promises.keeps("T1")
def it_is_attention_by_its_definition(subject: Subject) -> None:
    """Ragged lengths, groups of heads, head sizes, windows and soft caps."""
    for shape in SHAPES:
        steps = _steps(subject, shape)
        for number, counts in enumerate(STEPS):
            out, expected = steps.step(counts)
            error = float((out.double() - expected).abs().max())
            if not error <= _TOLERANCE:
                raise PromiseBroken(
                    f"{shape}: step {number}, of {counts} tokens by sequence, is off by {error:.2g}"
                )


@promises.keeps("T1")
def it_is_attention_over_long_sequences(subject: Subject) -> None:
    """Beyond a thousand keys, with windows of some hundred, in chunks and token by token."""
    generator = torch.Generator().manual_seed(3)
    order = (torch.randperm(2 * _LONG_BLOCKS, generator=generator) + 1).tolist()
    tables = [order[:_LONG_BLOCKS], order[_LONG_BLOCKS:]]
    for shape in LONG_SHAPES:
        steps = _steps(subject, shape, tables)
        for counts in LONG_STEPS:
            out, expected = steps.step(counts)
            error = float((out.double() - expected).abs().max())
            if not error <= _TOLERANCE:
                raise PromiseBroken(
                    f"{shape}: {counts} tokens of sequences that are then {steps.lengths[:2]} "
                    f"long are off by {error:.2g}"
                )


@promises.keeps("T2")
def other_blocks_give_the_same_bits(subject: Subject) -> None:
    """Whatever the physical order."""
    for shape in SHAPES[:6]:
        first, second = (_steps(subject, shape, tables_of(seed)) for seed in (1, 2))
        for counts in STEPS:
            if not torch.equal(first.step(counts)[0], second.step(counts)[0]):
                raise PromiseBroken(f"{shape}: in other blocks the results of {counts} differ")


@promises.keeps("T3")
def what_the_batch_does_not_own_is_never_read(subject: Subject) -> None:
    """Another sequence writes NaN into every slot that is not owned, and nothing changes."""
    for shape in SHAPES[:6]:
        clean, spoilt = _steps(subject, shape), _steps(subject, shape)
        spoilt.spoil()
        for counts in STEPS:
            wanted, got = clean.step(counts)[0], spoilt.step(counts)[0]
            if not torch.equal(wanted, got):
                raise PromiseBroken(f"{shape}: NaN in slots that nobody owns changes {counts}")


@promises.keeps("T4")
def one_shot_is_any_chunking(subject: Subject) -> None:
    """A prompt at once, in chunks of any size, or token by token."""
    for shape in SHAPES:
        whole = _steps(subject, shape)
        at_once = whole.step({0: 21})[0]
        for sizes in ([20, 1], [4, 4, 13], [1] * 21, [5, 3, 8, 5], [16, 5]):
            parts = _steps(subject, shape)
            got = torch.cat([parts.step({0: size})[0] for size in sizes])
            error = float((got - at_once).abs().max())
            if not error <= _TOLERANCE:
                raise PromiseBroken(
                    f"{shape}: 21 tokens in chunks of {sizes} are off by {error:.2g}"
                )


@promises.keeps("T5")
def write_changes_the_slots_of_the_batch_alone(subject: Subject) -> None:
    """What a sequence attends to does not change while others write."""
    for seed, shape in enumerate(SHAPES[:4] * 2):
        alone, among = (_steps(subject, shape, tables_of(seed)) for _ in range(2))
        for steps in (alone, among):
            steps.step({0: 21})
        for counts in ({1: 7}, {2: 12, 3: 3}, *[{1: 1, 3: 1}] * 6, {1: 12}, {2: 14}, {3: 18}):
            among.step(counts)
        if not torch.equal(alone.step({0: 4})[0], among.step({0: 4})[0]):
            raise PromiseBroken(f"{shape}: others wrote, and a sequence that did not changed")


@promises.keeps("T6")
def rows_beyond_the_counts_are_not_written(subject: Subject) -> None:
    """And a step of nothing is fine."""
    for shape in SHAPES[:4]:
        steps = _steps(subject, shape)
        for counts in ({}, *STEPS):
            rest = steps.step_and_rest(counts)
            if not bool((rest == Steps.canary).all()):
                raise PromiseBroken(f"{shape}: a step of {counts} writes beyond its tokens")


@promises.keeps("T7")
def bytes_are_declared_as_they_are(subject: Subject) -> None:
    """In proportion to blocks and heads."""
    attention: Attention = subject.build()
    one = attention.bytes_per_block(CacheSpec(2, 32), BLOCK)
    if one <= 0:
        raise PromiseBroken(f"bytes_per_block is {one}")
    for spec, size in ((CacheSpec(4, 32), BLOCK), (CacheSpec(2, 32), 2 * BLOCK)):
        if attention.bytes_per_block(spec, size) != 2 * one:
            raise PromiseBroken(
                f"a block of {size} tokens, {spec.num_kv_heads} heads takes "
                f"{attention.bytes_per_block(spec, size)} bytes, and half as many take {one}"
            )
    held = _tensor_bytes(attention.allocate(CacheSpec(2, 32), 5, BLOCK))
    if held is not None and held != 5 * one:
        raise PromiseBroken(f"5 blocks of {one} bytes are declared, and {held} are allocated")


def _tensor_bytes(cache: Any) -> int | None:
    """Return the bytes of the tensors that a cache is made of; None where it is opaque."""
    parts = vars(cache).values() if hasattr(cache, "__dict__") else ()
    slots = [getattr(cache, name) for name in getattr(type(cache), "__slots__", ())]
    tensors: list[Tensor] = [
        one for one in (cache, *parts, *slots) if isinstance(one, torch.Tensor)
    ]
    return sum(one.nbytes for one in tensors) if tensors else None


@promises.keeps("T8")
def an_unknown_cache_dtype_is_refused(subject: Subject) -> str:
    """With the typed error, before anything is allocated."""
    attention: Attention = subject.build()
    try:
        attention.allocate(replace(CacheSpec(1, 8), dtype="int3"), 2, BLOCK)
    except UnsupportedError as error:
        return error.headline
    raise PromiseBroken("a cache of the dtype int3 is allocated")


class AttentionSuite(Suite, promises=promises):
    """The tests of an attention back end."""
