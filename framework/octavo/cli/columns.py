"""Aligned columns of text that fit a terminal.

Knows rows and widths. Does not know what they mean.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: what a last column needs to be read in; with less room it gets lines of its own
_LEAST_CHARS = 32


def columns(rows: Iterable[tuple[str, ...]], width: int | None = None) -> list[str]:
    """Align rows of equal length into lines.

    With a `width`, the last column is wrapped between words; where too little is left for it, it
    goes below the others.
    """
    table = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    used = sum(widths[:-1]) + 2 * len(widths[:-1])
    if width is None or used + max(widths, default=0) <= width:
        return [_line(row, widths) for row in table]
    lines = []
    for *firsts, last in table:
        start = _line(firsts, widths[:-1])
        if width - used >= _LEAST_CHARS:
            pieces = textwrap.wrap(last, width - used) or [""]
            lines.append(f"{start:{used}}{pieces[0]}".rstrip())
            lines += [" " * used + piece for piece in pieces[1:]]
        else:
            lines += [start, *_wrapped(last, width, " " * 4, " " * 4)]
    return lines


def fitted(line: str, width: int | None, indent: int) -> list[str]:
    """Return a line as it is, or wrapped between words where it is wider than the terminal."""
    line = printable(line)
    if width is None or len(line) <= width:
        return [line]
    return _wrapped(line.lstrip(), width, line[: len(line) - len(line.lstrip())], " " * indent)


def terminal_width() -> int | None:
    """Return the columns of the terminal that is printed to; None where it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def printable(text: str) -> str:
    """Return a text with what would move the cursor or change colours escaped."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{one:{width}}" for one, width in zip(cells, widths, strict=True)).rstrip()


def _wrapped(text: str, width: int, first: str, later: str) -> list[str]:
    return textwrap.wrap(
        text,
        max(width, _LEAST_CHARS),
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )
