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


def require_plot(path: Path) -> None:
    """Raise ConfigError where no plot can be written: before hours of measuring, not after."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError(
            "--plot needs matplotlib, which is not installed",
            "pip install matplotlib",
            "or keep the results with --json, and plot them elsewhere with `report FILE --plot`",
        )
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {path.parent} (--plot {path})")


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
    figures = importlib.import_module("matplotlib.figure")
    prefix_tokens = results.cases[0].num_prefix_tokens
    shared = f"{prefix_tokens} shared + " if prefix_tokens else ""
    prompts = list(dict.fromkeys(case.num_prompt_tokens for case in results.cases))
    width, height = _INCHES
    figure = figures.Figure((width * len(PHASES), height * len(prompts) + 0.8))
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.1)
    grid = figure.subplots(len(prompts), len(PHASES), squeeze=False)
    for row, prompt_tokens in zip(grid, prompts, strict=True):
        for axes, phase in zip(row, PHASES, strict=True):
            _draw(axes, lines(results, prompt_tokens, phase))
            axes.set_title(f"{phase}, {shared}{prompt_tokens} tokens in", fontsize="medium")
            axes.set_xticks(*_ticks(results, prompt_tokens))
            axes.set_xlabel("sequences at once")
            axes.set_ylabel("tokens/s, all sequences")
    names = grid[0][0].get_legend_handles_labels()
    figure.legend(*names, loc="outside lower center", ncols=len(ENGINES), frameon=False)
    settings = results.settings
    model = Path(settings["contenders"][0]["model"]).name
    rounds = f"median and range of {settings['num_rounds']} rounds"
    threads = f"{settings['num_threads']} threads of {results.machine['cpu']}"
    figure.suptitle(f"{model}, {threads}\n{rounds}", fontsize="medium")
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
