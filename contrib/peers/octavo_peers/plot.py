"""The plot of a comparison: sequences at once against tokens/s, a line and a band for each engine.

Knows matplotlib, which is optional and imported when a plot is asked for. Does not know how
anything was measured.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from octavo.errors import ConfigError
from octavo_peers.engines import ENGINES
from octavo_peers.results import PHASES

if TYPE_CHECKING:
    from octavo_peers.results import Results

_INCHES: Final = (5.0, 3.6)
#: Okabe and Ito's colours, which everybody can tell apart; an engine keeps its own
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
_MARKERS: Final = ("o", "s", "^", "D", "v")


@dataclass(frozen=True)
class Line:
    """An engine's rates in one panel, by number of sequences, where it has any."""

    engine: str
    num_seqs: list[int]
    medians: list[float]
    lows: list[float]
    highs: list[float]


def require_matplotlib() -> None:
    """Raise ConfigError where there is no matplotlib: before hours of measuring, not after."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError(
            "--plot needs matplotlib, which is not installed",
            "pip install matplotlib",
            "or keep the results with --json, and plot them elsewhere with `report FILE --plot`",
        )


def lines(results: Results, prompt_tokens: int, phase: str) -> list[Line]:
    """Return the lines of one panel."""
    found = []
    for engine in results.engines:
        points = [
            (case.num_seqs, spread)
            for case in results.cases
            if case.num_prompt_tokens == prompt_tokens
            and (spread := results.rate(engine, case, phase))
        ]
        found.append(
            Line(
                engine,
                [num_seqs for num_seqs, _ in points],
                [spread.median for _, spread in points],
                [spread.low for _, spread in points],
                [spread.high for _, spread in points],
            )
        )
    return found


def save_plot(results: Results, path: Path) -> None:
    """Write a PNG: a row for each length of prompts, prefill beside decode."""
    require_matplotlib()
    figures = importlib.import_module("matplotlib.figure")
    prompts = list(dict.fromkeys(case.num_prompt_tokens for case in results.cases))
    width, height = _INCHES
    figure = figures.Figure(
        figsize=(width * len(PHASES), height * len(prompts) + 0.4), layout="constrained"
    )
    grid = figure.subplots(len(prompts), len(PHASES), squeeze=False)
    for row, prompt_tokens in zip(grid, prompts, strict=True):
        for axes, phase in zip(row, PHASES, strict=True):
            _draw(axes, lines(results, prompt_tokens, phase))
            axes.set_title(f"{phase}, {prompt_tokens} tokens in", fontsize="medium")
            axes.set_xticks(*_ticks(results, prompt_tokens))
            axes.set_xlabel("sequences at once")
            axes.set_ylabel("tokens/s, all sequences")
    grid[0][0].legend(frameon=False)
    settings = results.settings
    model = Path(settings["contenders"][0]["model"]).name
    rounds = f"median and range of {settings['num_rounds']} rounds"
    figure.suptitle(f"{model}, {settings['num_threads']} threads; {rounds}", fontsize="medium")
    figure.savefig(path, format="png", dpi=150)


def _draw(axes: Any, panel: list[Line]) -> None:
    axes.set_xscale("log", base=2)
    for line in panel:
        index = list(ENGINES).index(line.engine)
        colour, marker = _COLOURS[index], _MARKERS[index]
        axes.fill_between(line.num_seqs, line.lows, line.highs, color=colour, alpha=0.2, lw=0)
        axes.plot(line.num_seqs, line.medians, marker, ls="-", color=colour, label=line.engine)
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)


def _ticks(results: Results, prompt_tokens: int) -> tuple[list[int], list[str]]:
    """Return the numbers of sequences that were measured, and their names on the axis."""
    ticks = sorted(
        {case.num_seqs for case in results.cases if case.num_prompt_tokens == prompt_tokens}
    )
    return ticks, [str(tick) for tick in ticks]
