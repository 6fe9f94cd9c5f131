"""What came of simulated workloads, as numbers, tables and drawings.

Knows results and how to print. Does not know engines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.bench.summaries import summary
from octavo.cli.plots import Distribution, OverTime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.bench.simulation import Simulation

#: times that are shown, in milliseconds
TIMES = ("ttft_ms", "itl_ms", "tpot_ms", "latency_ms")
_COLUMNS = ("mean", "p50", "p90", "p95", "p99", "max")


def report_of(result: Simulation) -> dict[str, Any]:
    """Return all numbers, milliseconds unless the name says otherwise."""
    from octavo.bench.simulation import rates

    stats = result.stats
    assert stats is not None  # noqa: S101 - a simulation that has ended has them
    ends: dict[str, int] = {}
    for fate in result.fates:
        ends[str(fate.finish_reason)] = ends.get(str(fate.finish_reason), 0) + 1
    queried = max(1, stats.prefix_queries_tokens)
    report = {
        "requests": len(result.fates) + len(result.refused),
        "refused": len(result.refused),
        "finished": ends,
        "virtual_s": round(result.virtual_s, 3),
        "real_s": round(result.real_s, 3),
        "times_faster": round(result.virtual_s / max(result.real_s, 1e-9), 1),
        "throughput": {name: round(rate, 3) for name, rate in rates(result)},
        **{name: _rounded(summary(getattr(result, name)())) for name in TIMES},
        "queue": _rounded(_with_max(result.num_waiting)),
        "running": _rounded(_with_max(result.num_running)),
        "kv_usage": _rounded(_with_max(result.kv_usage), digits=4),
        "steps": len(result.kv_usage),
        "preemptions": stats.preemptions,
        "prefix_hit_rate": round(stats.prefix_hits_tokens / queried, 4),
    }
    if result.users:
        report["ttft_ms_by_user"] = {
            user: _rounded(summary(result.ttft_ms(user))) for user in result.users
        }
    return report


def panels_of(results: Mapping[str, Simulation]) -> list[Distribution | OverTime]:
    """Return what is drawn of runs."""
    runs = results.items()
    return [
        Distribution("time to first token, ms", {name: one.ttft_ms() for name, one in runs}),
        Distribution("time between tokens, ms", {name: one.itl_ms() for name, one in runs}),
        OverTime("queue", {name: (one.times_s, one.num_waiting) for name, one in runs}),
        OverTime(
            "blocks used", {name: (one.times_s, one.kv_usage) for name, one in runs}, is_share=True
        ),
    ]


def _with_max(values: list[int] | list[float]) -> dict[str, float]:
    return {**summary(values), "max": max(values, default=0.0)}


def _rounded(values: dict[str, float], digits: int = 2) -> dict[str, float]:
    return {name: round(value, digits) for name, value in values.items()}


def print_report(report: Mapping[str, Any]) -> None:
    """Print the numbers of one run."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    ends = ", ".join(f"{count} by {reason}" for reason, count in report["finished"].items())
    lines = {
        "requests": f"{report['requests']}; ended: {ends or 'none'}; refused: {report['refused']}",
        "time": f"{report['virtual_s']} s in {report['real_s']} s "
        f"({report['times_faster']} times faster)",
        **report["throughput"],
        "steps": report["steps"],
        "preemptions": report["preemptions"],
        "prefix hits": f"{report['prefix_hit_rate']:.1%} of the tokens looked up",
    }
    for name, value in lines.items():
        console.print(f"[dim]{name}:[/dim] {value}", highlight=False)
    table = Table("", *_COLUMNS)
    for column in table.columns[1:]:
        column.justify = "right"
    for name in (*TIMES, "queue", "running", "kv_usage"):
        table.add_row(name.replace("_", " "), *(str(report[name].get(key, "")) for key in _COLUMNS))
    console.print(table)


def print_comparison(reports: Mapping[str, Mapping[str, Any]]) -> None:
    """Print one line for each run."""
    from rich.console import Console

    from octavo.cli.tables import fitted_table

    rows = []
    for name, report in reports.items():
        row = {"": name}
        for metric in ("ttft_ms", "itl_ms", "latency_ms"):
            for statistic in ("mean", "p95"):
                title = f"{metric.removesuffix('_ms')} {statistic} ms"
                row[title] = _shown(report[metric].get(statistic))
        row["queue mean"] = _shown(report["queue"].get("mean"))
        row["blocks mean"] = f"{report['kv_usage'].get('mean', 0.0):.0%}"
        row["prefix hits"] = f"{report['prefix_hit_rate']:.0%}"
        row["preempted"] = str(report["preemptions"])
        row["output tok/s"] = _shown(report["throughput"]["output tok/s"])
        means = [one["mean"] for one in report.get("ttft_ms_by_user", {}).values() if one]
        if means:
            row["ttft mean ms by user"] = f"{_shown(min(means))}..{_shown(max(means))}"
        rows.append(row)
    console = Console()
    some = next(iter(reports.values()))
    title = f"{some['requests']} requests, the same for all"
    console.print(fitted_table(title, rows, console.width))


def print_errors(results: Mapping[str, Simulation]) -> None:
    """Print by how much the simulated run differs from the real one."""
    from rich.console import Console

    from octavo.bench.fidelity import errors

    console = Console()
    found = errors(results["real"], results["simulated"])
    for metric, by_name in found.items():
        shown = ", ".join(f"{name} {share:+.1%}" for name, share in by_name.items())
        console.print(f"[dim]error of {metric.replace('_', ' ')}:[/dim] {shown}", highlight=False)


def _shown(value: float | None) -> str:
    """Return three digits of a number."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits
