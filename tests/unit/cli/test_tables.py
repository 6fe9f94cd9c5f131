"""Tables fit the terminal, and no word of them is cut."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from octavo.bench.speculation import Comparison, PromptTimes
from octavo.cli import bench
from octavo.cli.tables import fitted_table


def printed(rows, width):
    console = Console(file=io.StringIO(), width=width)
    console.print(fitted_table("a title", rows, console.width))
    return console.file.getvalue()


@pytest.fixture
def speculation():
    """What `bench speculation` shows of a fast model: all numbers are long."""
    times = PromptTimes(64, 0.0512, 0.0256, 20, 100, 95, True)
    sorts = {"repetitive": 1, "plain": 20}
    return [bench._speculation_row(sort, Comparison((times,) * n)) for sort, n in sorts.items()]


@pytest.mark.parametrize("width", [80, 100, 60, 40])
def test_the_table_of_speculation_is_whole_at_any_width(speculation, width):
    text = printed(speculation, width)
    words = text.split()
    assert max(map(len, text.splitlines())) <= width
    assert "\u2026" not in text
    for row in speculation:
        for name, value in row.items():
            assert set(name.split()) <= set(words)
            assert set(str(value).split()) <= set(words)


def test_at_80_columns_each_row_is_one_line(speculation):
    lines = printed(speculation, 80).splitlines()
    (plain,) = (line for line in lines if "20 plain" in line)
    assert plain.split() == [
        "20",
        "plain",
        "1250.0",
        "2500.0",
        "2.0",
        "2.0",
        "2.0",
        "3.2",
        "95%",
        "yes",
    ]


def test_what_is_too_wide_is_turned_on_its_side(speculation):
    lines = [line.rstrip() for line in printed(speculation, 50).splitlines()]
    assert "plain tok/s      1250.0  1250.0" in lines
