"""Each operation of an op set on small buffers, and what it must come to in float64.

Knows the interface of op sets and the definitions of operations. Does not know any op set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from octavo.errors import UnsupportedError
from octavo.interfaces.architecture import RotaryConfig
from octavo.interfaces.weights import WeightBlocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from octavo.interfaces.ops import Count, OpSet

CAP, CANARY = 6, 777.0
_DIM, _OUT, _VOCAB, _HALF = 64, 96, 40, 48
_EPS, _CAP_AT, _FACTOR = 1e-5, 20.0, 0.3


def blocks_of(tensor: Tensor, name: str = "w") -> WeightBlocks:
    """Return a tensor as float32 blocks of a checkpoint, in memory that may not be written."""
    array = tensor.contiguous().numpy()
    data = array.reshape(-1, array.shape[-1]).view(np.uint8)
    data.setflags(write=False)
    return WeightBlocks(name, "F32", tuple(tensor.shape), data, "memory")


def noise(*shape: int, seed: int = 0) -> Tensor:
    """Return numbers that are the same each time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


@dataclass(slots=True)
class OpCase:
    """One operation.

    `run(rows)` calls it on fresh buffers and returns the one that it writes; `expected` is what
    all rows come to, in float64. `offered`: False where the op set may refuse it.
    """

    name: str
    run: Callable[[Count], Tensor]
    expected: Tensor
    is_optional: bool = False
    others: list[Tensor] = field(default_factory=list)


class Ops:
    """An op set under test, with weights that it packed."""

    def __init__(self, ops: OpSet) -> None:
        self.ops = ops
        norm = noise(_DIM, seed=1) * 0.1 + 1
        self.norm = ops.pack_vector([blocks_of(norm)])
        self.device = self.norm.device
        self.dtype = getattr(torch, ops.activation_dtype)
        self.norm64 = norm.double()
        self.x = noise(CAP, _DIM)
        self.wide = noise(CAP, 2 * _HALF)

    def on(self, x: Tensor) -> Tensor:
        """Return a copy where the op set computes; activations in its dtype."""
        return x.clone().to(self.device, self.dtype if x.is_floating_point() else None)

    def canaries(self, *shape: int) -> Tensor:
        """Return a buffer that nobody wrote."""
        return self.on(torch.full((CAP, *shape), CANARY))

    def cases(self) -> Iterator[OpCase]:
        """Yield every operation on rows."""
        yield from self._layers()
        yield from self._weights()
        yield self._rotary()

    def _layers(self) -> Iterator[OpCase]:
        ops, x, wide = self.ops, self.x, self.wide
        yield self._into(
            "rms_norm", _DIM,
            lambda out, n: ops.rms_norm(out, self.on(x), self.norm, _EPS, n), self._normed(x),
        )  # fmt: skip
        delta = noise(CAP, _DIM, seed=5)
        yield self._into(
            "add_rms_norm", _DIM,
            lambda out, n: ops.add_rms_norm(out, self.on(x), self.on(delta), self.norm, _EPS, n),
            self._normed(x.double() + delta.double()),
        )  # fmt: skip
        gate, up = wide.double().chunk(2, -1)
        yield self._into(
            "silu_mul", _HALF, lambda out, n: ops.silu_mul(out, self.on(wide), n),
            gate * torch.sigmoid(gate) * up,
        )  # fmt: skip
        inner = math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)
        yield self._into(
            "gelu_mul", _HALF, lambda out, n: ops.gelu_mul(out, self.on(wide), n),
            0.5 * gate * (1 + torch.tanh(inner)) * up, is_optional=True,
        )  # fmt: skip
        index = torch.tensor([3, 1, 1, 5, 0, 2])
        yield self._into(
            "gather_rows", _DIM,
            lambda out, n: ops.gather_rows(out, self.on(x), self.on(index), n), x.double()[index],
        )  # fmt: skip
        yield self._in_place("scale", lambda y, n: ops.scale(y, _FACTOR, n), x.double() * _FACTOR)
        capped = _CAP_AT * torch.tanh(x.double() / _CAP_AT)
        yield self._in_place("soft_cap", lambda y, n: ops.soft_cap(y, _CAP_AT, n), capped)

    def _normed(self, x: Tensor) -> Tensor:
        x = x.double()
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + _EPS) * self.norm64

    def _weights(self) -> Iterator[OpCase]:
        ops, x = self.ops, self.x
        parts = [noise(rows, _DIM, seed=9) * 0.1 for rows in (32, 48, 16)]
        bias = noise(_OUT, seed=3)
        weight = ops.pack_linear([blocks_of(part, f"w{i}") for i, part in enumerate(parts)])
        packed_bias = ops.pack_vector([blocks_of(bias)])
        product = x.double() @ torch.cat(parts).double().T
        yield self._into(
            "linear", _OUT, lambda out, n: ops.linear(out, self.on(x), weight, None, n), product
        )
        yield self._into(
            "linear with a bias", _OUT,
            lambda out, n: ops.linear(out, self.on(x), weight, packed_bias, n),
            product + bias.double(),
        )  # fmt: skip
        table = noise(_VOCAB, _DIM, seed=7) * 0.1
        embedding = ops.pack_embedding(blocks_of(table))
        ids = torch.tensor([39, 0, 3, 3, 1, 2])
        yield self._into(
            "embedding", _DIM, lambda out, n: ops.embedding(out, self.on(ids), embedding, n),
            table.double()[ids],
        )  # fmt: skip
        yield self._into(
            "linear with an embedding", _VOCAB,
            lambda out, n: ops.linear(out, self.on(x), embedding, None, n),
            x.double() @ table.double().T,
        )  # fmt: skip

    def _rotary(self) -> OpCase:
        heads, kv_heads, dim, theta = 3, 1, 16, 100.0
        q, k = noise(CAP, heads, dim), noise(CAP, kv_heads, dim)
        table = self.ops.rotary_table(RotaryConfig(dim, theta, {"rope_type": "default"}), 64)
        positions = torch.tensor([9, 0, 63, 5, 5, 1])
        frequencies = theta ** -(torch.arange(0, dim, 2).double() / dim)
        angles = (positions[:, None].double() * frequencies)[:, None]
        low, high = torch.cat((q, k), 1).double().chunk(2, -1)
        turned = (
            low * angles.cos() - high * angles.sin(),
            high * angles.cos() + low * angles.sin(),
        )

        def run(rows: Count) -> Tensor:
            mine, other = self.on(q), self.on(k)
            mine[rows.value :], other[rows.value :] = CANARY, CANARY
            self.ops.rotary(mine, other, self.on(positions), table, rows)
            return torch.cat((mine, other), 1)

        return OpCase("rotary", run, torch.cat(turned, -1))

    def _into(
        self,
        name: str,
        width: int,
        call: Callable[[Tensor, Count], None],
        expected: Tensor,
        *,
        is_optional: bool = False,
    ) -> OpCase:
        def run(rows: Count) -> Tensor:
            out = self.canaries(width)
            call(out, rows)
            return out

        return OpCase(name, run, expected, is_optional)

    def _in_place(
        self, name: str, call: Callable[[Tensor, Count], None], expected: Tensor
    ) -> OpCase:
        def run(rows: Count) -> Tensor:
            y = self.on(self.x)
            y[rows.value :] = CANARY
            call(y, rows)
            return y

        return OpCase(name, run, expected, is_optional=True)


def refusal_of(run: Callable[[], Any]) -> UnsupportedError | None:
    """Return the typed error with which a call is refused, or None when it is not."""
    try:
        run()
    except UnsupportedError as error:
        return error
    return None
