"""What `octavo bench serve` shows: progress, tables, drawings.

Knows results and terminals. Does not know flags or servers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from octavo.cli.plots import Distribution, OverTime
from octavo.frontend.progress import ProgressLine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.bench.remote.load import LoadRun

_TIMES = {
    "ttft_ms": "first text",
    "itl_ms": "between texts",
    "tpot_ms": "a token after it",
    "e2e_ms": "whole answer",
}
_COLUMNS = ("mean", "p50", "p90", "p99", "max")
#: above this share of a core the client's own work may be what was measured
_BUSY = 0.7
_THREE_DIGITS = 100


class Watch:
    """A line on stderr for each run, where somebody looks."""

    def __init__(self, num_requests: int) -> None:
        self._num_requests = num_requests
        self._line: ProgressLine | None = None
        self._title = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the last line."""
        if self._line is not None:
            self._line.__exit__()

    def show(self, title: str, num_done: int, num_failed: int) -> None:
        """Show how far a run is."""
        if title != self._title or self._line is None:
            self.__exit__()
            self._line = ProgressLine(title, self._num_requests)
            self._title = title
        self._line.show(num_done, f"{num_failed} failed" if num_failed else "")


def panels_of(runs: Mapping[str, LoadRun]) -> list[Distribution | OverTime]:
    """Return what is drawn of runs."""
    times = {name: run.times_ms() for name, run in runs.items()}
    return [
        Distribution("time to first text, ms", {n: one["ttft_ms"] for n, one in times.items()}),
        Distribution("time between texts, ms", {n: one["itl_ms"] for n, one in times.items()}),
        OverTime("requests on their way", {name: run.in_flight() for name, run in runs.items()}),
        OverTime("texts a second", {name: run.chunks_per_s() for name, run in runs.items()}),
    ]


def print_report(report: Mapping[str, Any]) -> None:
    """Print tables of all runs: what was done, how long it took, what failed, at which cost."""
    from rich.console import Console

    from octavo.cli.tables import fitted_table

    console = Console()
    for key in ("server", "model", "endpoint"):
        console.print(f"[dim]{key}:[/dim] {report[key]}", highlight=False)
    runs = report["runs"]
    work = [_work(name, run) for name, run in runs.items()]
    times = [row for name, run in runs.items() for row in _times(name, run)]
    for title, rows in (("throughput", work), ("times, in ms", times)):
        if rows:
            console.print()
            console.print(fitted_table(title, rows, console.width))
    console.print()
    if report["goodput"]:
        _print_goodput(console, report)
    for name, run in runs.items():
        for error, count in run["errors"].items():
            detail = run["error_examples"].get(error)
            text = f"[red]{name}: {count} failed: {error}[/red]"
            console.print(text + (f" ({detail})" if detail else ""), highlight=False, markup=True)
    _print_notes(console, runs)


def _work(name: str, run: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "rate": name,
        "answered": run["answered"],
        "failed": run["failed"],
        "seconds": _shown(run["elapsed_s"]),
        "requests/s": _shown(run["requests_per_s"]),
        "output tok/s": _shown(run["output_tokens_per_s"]),
        "total tok/s": _shown(run["total_tokens_per_s"]),
        "prompt tokens": _shown(run["prompt_tokens"] / max(1, run["answered"])),
        "output tokens": _shown(run["output_tokens"] / max(1, run["answered"])),
        "most at once": run["most_in_flight"],
    }


def _times(name: str, run: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for key, title in _TIMES.items():
        if run[key]:
            numbers = {column: _shown(run[key][column]) for column in _COLUMNS}
            rows.append({"rate": name, "time to": title, **numbers})
            name = ""  # once is enough
    return rows


def _print_goodput(console: Any, report: Mapping[str, Any]) -> None:
    promised = ", ".join(f"{name} {limit:g} ms" for name, limit in report["goodput"].items())
    for name, run in report["runs"].items():
        share = run["within_slo"] / max(1, run["requests"])
        console.print(
            f"[dim]goodput, {name}:[/dim] {run['goodput_per_s']:g} requests/s, "
            f"{share:.0%} of all within {promised}",
            highlight=False,
        )


def _print_notes(console: Any, runs: Mapping[str, Mapping[str, Any]]) -> None:
    busiest = max(run["client_cpu_share"] for run in runs.values())
    costs = [f"{run['client_us_per_chunk']:.0f}" for run in runs.values() if run["chunks"]]
    style = "yellow" if busiest > _BUSY else "dim"
    text = f"the client took {busiest:.0%} of a core"
    text += f", {', '.join(costs)} µs for each piece of text" if costs else ""
    if busiest > _BUSY:
        text += ": times may be its own"
    console.print(f"[{style}]{text}[/{style}]", highlight=False)
    if not all(run["has_usage"] for run in runs.values()):
        text = "the server counts no tokens: pieces of text are counted instead"
        console.print(f"[yellow]{text}[/yellow]", highlight=False)


def _shown(value: float) -> str:
    """Return three digits of a number, more of a large one."""
    return f"{value:,.0f}" if value >= _THREE_DIGITS else f"{value:.3g}"
