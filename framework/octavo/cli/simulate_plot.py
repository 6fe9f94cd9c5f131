"""Draws runs over time and their distributions: in the terminal, or as an image.

Knows results of runs. Images need matplotlib (octavo[plot]); the terminal needs nothing.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from octavo.bench.simulation import Simulation

_BARS = " ▁▂▃▄▅▆▇█"
_NUM_BINS = 60
#: what is drawn over time: the list of a run, and its name
_OVER_TIME = {"num_waiting": "queue", "kv_usage": "blocks used"}
#: what is drawn as a distribution
_TIMES = {"ttft_ms": "time to first token, ms", "itl_ms": "time between tokens, ms"}


def draw(results: Mapping[str, Simulation], file: str) -> None:
    """Draw runs side by side: into an image file, or in the terminal where no file is named.

    Raises ConfigError for an image without matplotlib.
    """
    if file:
        _draw_image(results, Path(file))
    else:
        _print_lines(results)


# ---------------------------------------------------------------------- in the terminal


def _print_lines(results: Mapping[str, Simulation]) -> None:
    from rich.console import Console

    console = Console()
    width = max(map(len, results))
    end_s = max(result.virtual_s for result in results.values())
    for attribute, title in _OVER_TIME.items():
        lines = {
            name: over_time(result.times_s, getattr(result, attribute), end_s)
            for name, result in results.items()
        }
        highest = max((one for line in lines.values() for one in line if one), default=0.0)
        top = f"{highest:.0%}" if attribute == "kv_usage" else f"{highest:.3g}"
        console.print(f"\n[bold]{title}[/bold] over {end_s:.3g} s, up to {top}", highlight=False)
        for name, line in lines.items():
            console.print(f"{name:>{width}} ▕{bars(line, highest)}▏", highlight=False)
    for attribute, title in _TIMES.items():
        values = {name: getattr(result, attribute)() for name, result in results.items()}
        counts, (low, high) = histograms(values)
        console.print(
            f"\n[bold]{title}[/bold], from {low:.3g} to {high:.3g} (logarithmic)", highlight=False
        )
        for name, count in counts.items():
            console.print(f"{name:>{width}} ▕{bars(count, max(count))}▏", highlight=False)


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


def _draw_image(results: Mapping[str, Simulation], path: Path) -> None:
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ConfigError(
            f"an image ({path}) needs matplotlib, which is not installed",
            "install it: pip install 'octavo[plot]'",
            "or leave the file out: --plot draws in the terminal",
        ) from error
    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib import ticker

    figure, rows = plt.subplots(2, 2, figsize=(11, 7), layout="constrained")
    for axes, (attribute, title) in zip(rows[0], _TIMES.items(), strict=True):
        axes.set(title=title, xscale="log", ylabel="share of all", ylim=(0, 1))
        for name, result in results.items():
            values = sorted(getattr(result, attribute)())
            shares = [(place + 1) / len(values) for place in range(len(values))]
            axes.plot(values, shares, label=name, drawstyle="steps-post")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(ticker.LogFormatter(minor_thresholds=(1.5, 0.4)))
    for axes, (attribute, title) in zip(rows[1], _OVER_TIME.items(), strict=True):
        axes.set(title=f"{title} over time", xlabel="s")
        for name, result in results.items():
            axes.plot(result.times_s, getattr(result, attribute), label=name, linewidth=1)
        axes.set_ylim(bottom=0)
        if attribute == "kv_usage":
            axes.yaxis.set_major_formatter("{x:.0%}")
    for axes in rows.flat:
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(b=False)
    rows[0][0].legend()
    try:
        figure.savefig(path, dpi=130)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot write the plot '{path}'", str(error)) from error
    finally:
        plt.close(figure)
