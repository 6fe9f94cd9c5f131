"""The table of a comparison, no wider than 80 columns for all five engines.

Knows how to print. Does not know how anything was measured.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from octavo_peers.engines import OCTAVO
from octavo_peers.results import PHASES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo_peers.results import Results
    from octavo_peers.work import Case

_WIDTH: Final = 80
_NOTHING: Final = "-"
_LEGEND: Final = (
    "Tokens/s of all sequences together, medians of the rounds; in brackets octavo / peer. "
    "prefill: prompt tokens over the time of a call for one token each. decode: the tokens after "
    "the first, over what a call for all of them takes longer. start: from the process's start to "
    "a first token. band: greatest less least round over the median, of the engine's least steady "
    "row. same: sequences whose first token is octavo's."
)


def render(results: Results) -> str:
    """Return title, table, legend and failures as lines."""
    rows: list[list[str]] = [["", *results.engines]]
    headings: dict[int, str] = {}
    for prompt_tokens in dict.fromkeys(case.num_prompt_tokens for case in results.cases):
        cases = [case for case in results.cases if case.num_prompt_tokens == prompt_tokens]
        headings[len(rows)] = _heading(cases[0])
        rows += [
            [f"{phase} x{case.num_seqs}", *_cells(results, case, phase)]
            for phase in PHASES
            for case in cases
        ]
    headings[len(rows)] = ""
    rows += _closing_rows(results)
    parts = [_title(results), "", *_lines(rows, headings), "", *_wrapped(_LEGEND)]
    notes = [*_left_out(results), *results.errors()]
    if notes:
        parts += ["", *(line for note in notes for line in _wrapped(note))]
    return "\n".join(parts)


def rate_text(rate: float) -> str:
    """Return a rate with as many digits as it may deserve."""
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.1f}"  # noqa: PLR2004 - three digits


def ratio_text(ratio: float) -> str:
    """Return a ratio with three digits."""
    decimals = 2 if ratio < 10 else 1 if ratio < 100 else 0  # noqa: PLR2004 - powers of ten
    return f"{ratio:.{decimals}f}"


def _cells(results: Results, case: Case, phase: str) -> list[str]:
    cells = []
    for engine in results.engines:
        spread = results.rate(engine, case, phase)
        ratio = None if engine == OCTAVO else results.ratio(engine, case, phase)
        text = rate_text(spread.median) if spread else _NOTHING
        cells.append(text if ratio is None else f"{text} ({ratio_text(ratio)})")
    return cells


def _closing_rows(results: Results) -> list[list[str]]:
    starts = [results.start_s(engine) for engine in results.engines]
    bands = [results.widest_band(engine) for engine in results.engines]
    same = [
        None if engine == OCTAVO else results.same_first_ids(engine) for engine in results.engines
    ]
    return [
        ["start", *(f"{start.median:.1f} s" if start else _NOTHING for start in starts)],
        ["band", *(_NOTHING if band is None else f"{band:.0%}" for band in bands)],
        ["same", *(_NOTHING if share is None else f"{share:.0%}" for share in same)],
    ]


def _lines(rows: Sequence[Sequence[str]], headings: dict[int, str]) -> list[str]:
    """Return rows in columns, each heading above the row of its number."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for number, row in enumerate(rows):
        if number in headings:
            lines.append(headings[number])
        first = row[0].ljust(widths[0])
        rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([first, *rest]).rstrip())
    return lines


def _title(results: Results) -> str:
    settings, machine = results.settings, results.machine
    model = Path(settings["contenders"][0]["model"]).name
    rounds = settings["num_rounds"]
    return "\n".join(
        [
            f"{model}, {settings['num_threads']} threads, {rounds} round{'s' * (rounds != 1)}",
            f"{machine['cpu']}, {machine['cores']} cores, load {machine['load_average']:.1f}",
        ]
    )


def _heading(case: Case) -> str:
    shared = f"{case.num_prefix_tokens} shared + " if case.num_prefix_tokens else ""
    return f"{shared}{case.num_prompt_tokens} tokens in, {case.num_output_tokens} out"


def _left_out(results: Results) -> list[str]:
    return [
        f"left out: {case['num_prompt_tokens']} in x{case['num_seqs']}, too many tokens in all"
        for case in results.settings["left_out"]
    ]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
