"""Decodes blocks of quantised weights into float32, in plain torch.

Knows the layouts of ggml's block types (ggml-common.h and the `gguf` Python package, to whose
results these are bit for bit equal). Does not know files, tensors' names or what the weights are
for.

Within a chunk everything stays in cache: a few small integer operations write the quants as
floats straight into the result, which is then scaled in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

# About a megabyte of float32: temporaries of one chunk fit the second-level cache.
_CHUNK_ELEMENTS: Final = 1 << 18
_MATRIX: Final = 2
_HALF_EXPONENT: Final = 0x7C


@dataclass(frozen=True, slots=True)
class _Layout:
    """How one block type is decoded: `decode(blocks, out)` for uint8 [n, bytes], f32 [n, group].

    `halves` are where in a block its float16 numbers begin; all else in it are integers.
    """

    group: int
    bytes_per_block: int
    halves: tuple[int, ...]
    decode: Callable[[Tensor, Tensor], None]


def dequantize(block_type: str, data: Tensor, columns: int) -> Tensor:
    """Decode rows of blocks into a new float32 tensor.

    `data` is uint8 [rows, bytes per row]; the result is [rows, columns], on the same device.
    Raises ValueError if the block type is unknown or the shapes do not fit it.
    """
    if data.dtype != torch.uint8 or data.dim() != _MATRIX:
        raise ValueError(
            f"blocks must be uint8 [rows, bytes], not {data.dtype} {tuple(data.shape)}"
        )
    if block_type in _FLOATS:
        return _decode_floats(block_type, data, columns)
    layout = _LAYOUTS.get(block_type)
    if layout is None:
        raise ValueError(
            f"unknown block type '{block_type}'; known are {', '.join(dequantizable())}"
        )
    num_rows = data.shape[0]
    row_blocks, rest = divmod(columns, layout.group)
    if rest or row_blocks * layout.bytes_per_block != data.shape[1]:
        raise ValueError(
            f"{columns} columns of {block_type} take {layout.bytes_per_block} bytes for every "
            f"{layout.group}, which {data.shape[1]} bytes a row are not"
        )
    out = torch.empty((num_rows, columns), dtype=torch.float32, device=data.device)
    blocks = data.reshape(num_rows * row_blocks, layout.bytes_per_block)
    values = out.view(num_rows * row_blocks, layout.group)
    step = _CHUNK_ELEMENTS // layout.group
    for start in range(0, blocks.shape[0], step):
        layout.decode(blocks[start : start + step], values[start : start + step])
    return out


def is_finite(block_type: str, data: Tensor) -> bool:
    """Return whether no weight is NaN or infinite; of quantised ones, only the scales are read.

    `data` is uint8 [rows, bytes per row] of a block type that `dequantize` takes.
    """
    if block_type in _FLOATS:
        values = _reinterpret(data, _FLOATS[block_type]).view(-1)
        return all(bool(some.isfinite().all()) for some in values.split(_CHUNK_ELEMENTS))
    layout = _LAYOUTS[block_type]
    blocks = data.reshape(-1, layout.bytes_per_block)
    # the second byte of a half has all its exponent, which is all ones in what is no number
    exponents = (blocks[:, offset + 1] & _HALF_EXPONENT for offset in layout.halves)
    return not any(bool((one == _HALF_EXPONENT).any()) for one in exponents)


def dequantizable() -> list[str]:
    """Return the names of all block types that `dequantize` takes."""
    return [*_FLOATS, *_LAYOUTS]


def _decode_floats(block_type: str, data: Tensor, columns: int) -> Tensor:
    dtype = _FLOATS[block_type]
    if columns * dtype.itemsize != data.shape[1]:
        raise ValueError(
            f"{columns} columns of {block_type} take {columns * dtype.itemsize} bytes a row, "
            f"not {data.shape[1]}"
        )
    return _reinterpret(data, dtype).to(torch.float32, copy=True)


def _reinterpret(data: Tensor, dtype: torch.dtype) -> Tensor:
    """View bytes as another dtype, copying them first only when they lie askew."""
    data = data.contiguous()
    if data.storage_offset() % dtype.itemsize:
        data = data.clone()
    return data.view(dtype)


def _half(blocks: Tensor, offset: int) -> Tensor:
    """Return the float16 at byte `offset` of each block, as float32 [n, 1]."""
    return _reinterpret(blocks[:, offset : offset + 2], torch.float16).float()


def _nibbles_16(quants: Tensor, out: Tensor, high_bits: Tensor | None = None) -> None:
    """Write 32 quants held in 16 bytes: low nibbles first, then high ones, plus 16 times a bit.

    quants: uint8 [n, 16]; high_bits: uint8 [n, 4], bit j of the 32 belongs to quant j.
    """
    low, high = quants & 0x0F, quants >> 4  # [n, 16] each
    if high_bits is not None:
        bits = ((high_bits[:, :, None] >> _shifts(8, quants)) & 1) << 4  # [n, 4, 8]
        bits = bits.view(-1, 32)
        low, high = low | bits[:, :16], high | bits[:, 16:]
    out[:, :16] = low
    out[:, 16:] = high


def _shifts(count: int, like: Tensor, step: int = 1) -> Tensor:
    return torch.arange(0, count * step, step, dtype=torch.uint8, device=like.device)


def _decode_q8_0(blocks: Tensor, out: Tensor) -> None:
    out.copy_(blocks[:, 2:].view(torch.int8))
    out.mul_(_half(blocks, 0))


def _decode_q4_0(blocks: Tensor, out: Tensor) -> None:
    _nibbles_16(blocks[:, 2:], out)
    out.sub_(8.0).mul_(_half(blocks, 0))


def _decode_q4_1(blocks: Tensor, out: Tensor) -> None:
    _nibbles_16(blocks[:, 4:], out)
    out.mul_(_half(blocks, 0)).add_(_half(blocks, 2))


def _decode_q5_0(blocks: Tensor, out: Tensor) -> None:
    _nibbles_16(blocks[:, 6:], out, blocks[:, 2:6])
    out.sub_(16.0).mul_(_half(blocks, 0))


def _decode_q5_1(blocks: Tensor, out: Tensor) -> None:
    _nibbles_16(blocks[:, 8:], out, blocks[:, 4:8])
    out.mul_(_half(blocks, 0)).add_(_half(blocks, 2))


def _scales_and_mins(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the 8 scales and 8 minimums of Q4_K and Q5_K blocks, as float32 [n, 8, 1].

    Both are 6-bit numbers in the 12 bytes after the two halves: the first four have their own
    bytes; the last four take their low nibble from bytes 8-11 and their top bits from the spare
    bits of the first four.
    """
    first, second, nibbles = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]  # [n, 4] each
    scales = torch.cat((first & 0x3F, (nibbles & 0x0F) | ((first >> 2) & 0x30)), dim=1)
    mins = torch.cat((second & 0x3F, (nibbles >> 4) | ((second >> 2) & 0x30)), dim=1)
    scale = _half(blocks, 0) * scales.float()  # [n, 8]
    minimum = _half(blocks, 2) * mins.float()
    return scale[:, :, None], minimum[:, :, None]


def _decode_q4_k(blocks: Tensor, out: Tensor) -> None:
    scale, minimum = _scales_and_mins(blocks)
    quants = blocks[:, 16:].view(-1, 4, 32)  # 4 pairs of groups: low, then high nibbles
    values = out.view(-1, 4, 2, 32)
    values[:, :, 0] = quants & 0x0F
    values[:, :, 1] = quants >> 4
    out.view(-1, 8, 32).mul_(scale).sub_(minimum)


def _decode_q5_k(blocks: Tensor, out: Tensor) -> None:
    scale, minimum = _scales_and_mins(blocks)
    # bit g of the 32 bytes is the fifth bit of group g
    bits = ((blocks[:, None, 16:48] >> _shifts(8, blocks)[:, None]) & 1) << 4  # [n, 8, 32]
    bits = bits.view(-1, 4, 2, 32)
    quants = blocks[:, 48:].view(-1, 4, 32)
    values = out.view(-1, 4, 2, 32)
    values[:, :, 0] = (quants & 0x0F) | bits[:, :, 0]
    values[:, :, 1] = (quants >> 4) | bits[:, :, 1]
    out.view(-1, 8, 32).mul_(scale).sub_(minimum)


def _decode_q6_k(blocks: Tensor, out: Tensor) -> None:
    low = blocks[:, :128].view(-1, 2, 2, 32)  # two halves of 128 quants, nibbles of 64 bytes
    high = blocks[:, 128:192].view(-1, 2, 1, 32)  # two bits for each of four groups of 32
    bits = ((high >> _shifts(4, blocks, step=2)[:, None]) & 3) << 4  # [n, 2, 4, 32]
    values = out.view(-1, 2, 4, 32)
    values[:, :, :2] = (low & 0x0F) | bits[:, :, :2]
    values[:, :, 2:] = (low >> 4) | bits[:, :, 2:]
    scale = _half(blocks, 208) * blocks[:, 192:208].view(torch.int8).float()  # [n, 16]
    out.sub_(32.0)
    out.view(-1, 16, 16).mul_(scale[:, :, None])


def _decode_iq4_nl(blocks: Tensor, out: Tensor) -> None:
    _nibbles_16(blocks[:, 2:], out)
    values = torch.tensor(_IQ4_VALUES, dtype=torch.float32, device=blocks.device)
    torch.take(values, out.long(), out=out)
    out.mul_(_half(blocks, 0))


# What the codes of IQ4_NL stand for: ggml's `kvalues_iq4nl`.
_IQ4_VALUES: Final = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)

_FLOATS: Final[Mapping[str, torch.dtype]] = MappingProxyType(
    {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
)

_LAYOUTS: Final[Mapping[str, _Layout]] = MappingProxyType(
    {
        "Q8_0": _Layout(32, 34, (0,), _decode_q8_0),
        "Q4_0": _Layout(32, 18, (0,), _decode_q4_0),
        "Q4_1": _Layout(32, 20, (0, 2), _decode_q4_1),
        "Q5_0": _Layout(32, 22, (0,), _decode_q5_0),
        "Q5_1": _Layout(32, 24, (0, 2), _decode_q5_1),
        "Q4_K": _Layout(256, 144, (0, 2), _decode_q4_k),
        "Q5_K": _Layout(256, 176, (0, 2), _decode_q5_k),
        "Q6_K": _Layout(256, 210, (208,), _decode_q6_k),
        "IQ4_NL": _Layout(32, 18, (0,), _decode_iq4_nl),
    }
)
