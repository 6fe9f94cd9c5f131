"""Tables of numbers that stay readable on a narrow terminal.

Knows rows and widths. Does not know what they mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: spaces after each cell: one of its own, one between columns
_GAP = 2


def fitted_table(title: str, rows: Sequence[Mapping[str, Any]], max_width: int) -> Table:
    """Return rows, which have the same keys, as a table in which no word is cut.

    One that would be wider than `max_width` is turned on its side: a line for each key.
    """
    lines = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)]
    if sum(_widths(lines)) + _GAP * len(lines[0]) > max_width:
        lines = [list(line) for line in zip(*lines, strict=True)]
    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, _GAP - 1, 0, 0),
    )
    for index, (name, width) in enumerate(zip(lines[0], _widths(lines), strict=True)):
        table.add_column(name, justify="right" if index else "left", width=width)
    for line in lines[1:]:
        table.add_row(*line)
    return table


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    """Return what each column needs: a name may be broken between words, a value may not."""
    return [max(map(len, [*column[0].split(), *column[1:]])) for column in zip(*lines, strict=True)]
