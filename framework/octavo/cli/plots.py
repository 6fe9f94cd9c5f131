"""Draws lines over time and distributions: in the terminal, or as an image.

Knows numbers and their names. Images need matplotlib (octavo[plot]); the terminal needs nothing.
Does not know what was measured.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

_BARS = " ▁▂▃▄▅▆▇█"
_NUM_BINS = 60
_NUM_COLUMNS = 2


@dataclass(frozen=True, slots=True)
class Distribution:
    """Values of each of some runs, on one logarithmic axis."""

    title: str
    values: Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class OverTime:
    """Times in seconds, and a value at each, for each of some runs."""

    title: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    is_share: bool = False


def draw(panels: Sequence[Distribution | OverTime], file: str) -> None:
    """Draw runs side by side: into an image file, or in the terminal where no file is named.

    Raises ConfigError for an image without matplotlib.
    """
    if file:
        _draw_image(panels, Path(file))
        return
    for panel in panels:
        if isinstance(panel, OverTime):
            _print_line(panel)
        else:
            _print_distribution(panel)


def check_image(file: str) -> None:
    """Raise ConfigError now for an image that could only fail once everything has run."""
    path = Path(file).absolute()
    if find_spec("matplotlib") is None:
        raise _without_matplotlib(file)
    if path.is_dir() or not path.parent.is_dir():
        what = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise ConfigError(f"cannot write the plot '{file}'", what)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(f"cannot write the plot '{file}'", "permission denied")


# ---------------------------------------------------------------------- in the terminal


def _print_line(panel: OverTime) -> None:
    end_s = max((times[-1] for times, _ in panel.lines.values() if times), default=0.0)
    lines = {name: over_time(*line, end_s) for name, line in panel.lines.items()}
    highest = max((one for line in lines.values() for one in line if one), default=0.0)
    top = f"{highest:.0%}" if panel.is_share else f"{highest:.3g}"
    drawn = {name: bars(line, highest) for name, line in lines.items()}
    _print_bars(f"[bold]{panel.title}[/bold] over {end_s:.3g} s, up to {top}", drawn)


def _print_distribution(panel: Distribution) -> None:
    counts, (low, high) = histograms(panel.values)
    drawn = {name: bars(count, max(count)) for name, count in counts.items()}
    _print_bars(f"[bold]{panel.title}[/bold], from {low:.3g} to {high:.3g} (logarithmic)", drawn)


def _print_bars(title: str, drawn: Mapping[str, str]) -> None:
    from rich.console import Console

    console = Console()
    width = max(map(len, drawn))
    console.print(f"\n{title}", highlight=False)
    for name, line in drawn.items():
        console.print(f"{name:>{width}} ▕{line}▏", highlight=False)


def bars(line: Sequence[float | None], highest: float) -> str:
    """Return a line of bars; what is above zero shows, None does not."""
    steps = len(_BARS) - 1
    return "".join(
        _BARS[0] if not one else _BARS[max(1, round(steps * one / highest))] for one in line
    )


def over_time(
    times_s: Sequence[float], values: Sequence[float], end_s: float
) -> list[float | None]:
    """Return the mean of each piece of the time up to `end_s`; None after the last value.

    A piece in which nothing happened has the value before it.
    """
    sums, counts = [0.0] * _NUM_BINS, [0] * _NUM_BINS
    for time_s, value in zip(times_s, values, strict=True):
        place = min(_NUM_BINS - 1, int(_NUM_BINS * time_s / end_s)) if end_s else 0
        sums[place] += value
        counts[place] += 1
    last = max((place for place, count in enumerate(counts) if count), default=-1)
    line: list[float | None] = []
    for place in range(_NUM_BINS):
        if place > last:
            line.append(None)
        elif counts[place]:
            line.append(sums[place] / counts[place])
        else:
            line.append(line[-1] if line else 0.0)
    return line


def histograms(
    values: Mapping[str, Sequence[float]],
) -> tuple[dict[str, list[float]], tuple[float, float]]:
    """Return how many values are in each of equal pieces of one logarithmic axis, and its ends."""
    every = [one for some in values.values() for one in some if one > 0]
    low, high = (min(every), max(every)) if every else (1.0, 1.0)
    span = math.log(high / low) or 1.0
    lines = {}
    for name, some in values.items():
        line = [0.0] * _NUM_BINS
        for one in some:
            place = int(_NUM_BINS * math.log(max(one, low) / low) / span)
            line[min(_NUM_BINS - 1, place)] += 1
        lines[name] = line
    return lines, (low, high)


# ---------------------------------------------------------------------- as an image


def _without_matplotlib(file: str) -> ConfigError:
    return ConfigError(
        f"an image ({file}) needs matplotlib, which is not installed",
        "install it: pip install 'octavo[plot]'",
        "or leave the file out: --plot draws in the terminal",
    )


def _draw_image(panels: Sequence[Distribution | OverTime], path: Path) -> None:
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise _without_matplotlib(str(path)) from error
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    num_rows = math.ceil(len(panels) / _NUM_COLUMNS)
    size = (11, 3.5 * num_rows)
    figure, rows = plt.subplots(
        num_rows, _NUM_COLUMNS, figsize=size, layout="constrained", squeeze=False
    )
    for axes, panel in zip(rows.flat, panels, strict=False):
        if isinstance(panel, OverTime):
            _draw_line(axes, panel)
        else:
            _draw_distribution(axes, panel)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(b=False)
    for axes in rows.flat[len(panels) :]:
        axes.set_axis_off()
    rows[0][0].legend()
    try:
        figure.savefig(path, dpi=130)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot write the plot '{path}'", str(error)) from error
    finally:
        plt.close(figure)


def _draw_distribution(axes: Axes, panel: Distribution) -> None:
    from matplotlib import ticker

    axes.set(title=panel.title, xscale="log", ylabel="share of all", ylim=(0, 1))
    for name, some in panel.values.items():
        values = sorted(some)
        shares = [(place + 1) / len(values) for place in range(len(values))]
        axes.plot(values, shares, label=name, drawstyle="steps-post")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(ticker.LogFormatter(minor_thresholds=(1.5, 0.4)))


def _draw_line(axes: Axes, panel: OverTime) -> None:
    axes.set(title=f"{panel.title} over time", xlabel="s")
    for name, (times_s, values) in panel.lines.items():
        axes.plot(times_s, values, label=name, linewidth=1)
    axes.set_ylim(bottom=0)
    if panel.is_share:
        axes.yaxis.set_major_formatter("{x:.0%}")
