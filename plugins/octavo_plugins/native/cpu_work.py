"""What a call of the CPU kernels has to read and to multiply, told from its arguments.

Knows the arguments of linears, embeddings and attention, and how weights and pages lie in memory.
Other operations touch nothing but activations. Does not know what a call takes.
"""

from __future__ import annotations

from ctypes import c_int64
from typing import TYPE_CHECKING

from octavo.interfaces.native import Work
from octavo_kernels.cpu import calls
from octavo_kernels.cpu.attention import CACHE_DTYPES
from octavo_kernels.cpu.packing import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from octavo_kernels.cpu.library import Call, Library


def work_of(library: Library, made: Iterable[Call]) -> Work | None:
    """Return the work of calls together; None if one of them is of another operation."""
    works = []
    for call in made:
        work = _work_of_one(library, call.arguments)
        if work is None:
            return None
        works.append(work)
    if not works:
        return None
    return Work(
        sum(work.read_bytes for work in works),
        sum(work.num_products for work in works),
        " + ".join(dict.fromkeys(work.format for work in works)),
    )


def _work_of_one(library: Library, arguments: object) -> Work | None:
    if isinstance(arguments, calls.Linear):
        return _linear(library, arguments)
    if isinstance(arguments, calls.Embedding):
        return _embedding(library, arguments)
    if isinstance(arguments, calls.Attention):
        return _attention(library, arguments)
    return None


def _linear(library: Library, arguments: calls.Linear) -> Work:
    """Count each weight once as bytes, and once for each row as a product."""
    (rows,) = _numbers(arguments.rows, 1)
    outputs, columns, number = arguments.outputs, arguments.columns, arguments.format
    num_panels = -(-outputs // library.lanes) if rows else 0
    num_bytes = num_panels * _panel_bytes(library, number, columns)
    return Work(num_bytes, rows * outputs * columns, FORMATS[number])


def _embedding(library: Library, arguments: calls.Embedding) -> Work:
    (rows,) = _numbers(arguments.rows, 1)
    panel_bytes = _panel_bytes(library, arguments.format, arguments.columns)
    return Work(rows * panel_bytes // library.lanes, 0, FORMATS[arguments.format])


def _attention(library: Library, arguments: calls.Attention) -> Work:
    """Count the positions that a sequence's queries see: once as bytes, for each as products."""
    (num_seqs,) = _numbers(arguments.sequences, 1)
    starts = _numbers(arguments.query_start, num_seqs + 1)
    num_read = num_seen = 0
    for index, length in enumerate(_numbers(arguments.seq_lens, num_seqs)):
        first = length - (starts[index + 1] - starts[index])
        num_read += length - max(0, first + 1 - arguments.window)
        num_seen += sum(min(place + 1, arguments.window) for place in range(first, length))
    head_dim, block_size = arguments.head_dim, arguments.block_size
    page_bytes = library.function("octavo_page_bytes")(
        c_int64(head_dim), c_int64(block_size), c_int64(arguments.format)
    )
    return Work(
        num_read * arguments.kv_heads * page_bytes // block_size,
        # with a key, and with its value
        2 * num_seen * arguments.heads * head_dim,
        CACHE_DTYPES[arguments.format],
    )


def _panel_bytes(library: Library, number: int, columns: int) -> int:
    size: int = library.function("octavo_panel_bytes")(c_int64(number), c_int64(columns))
    return size


def _numbers(address: int, count: int) -> list[int]:
    """Return what lies at an address now: int64 [count]."""
    return list((c_int64 * count).from_address(address))
