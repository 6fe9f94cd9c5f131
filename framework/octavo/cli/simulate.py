"""`octavo simulate`: a workload in virtual time, without a model, in a fraction of the real time.

Knows flags and how to print. Playing the workload is in `octavo.bench.simulation`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.config.flags import add_config_arguments, resolve_arguments
from octavo.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from octavo.bench.simulation import Arrival, Simulation

_EXAMPLE = "for example: --rate 4 --num-prompts 200"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the workload; the engine is configured as for `octavo serve`."""
    parser.add_argument(
        "--num-prompts", type=int, default=200, help="requests that arrive (default: 200)"
    )
    parser.add_argument(
        "--rate", type=float, help="arrivals a second, of a Poisson process; default: all at once"
    )
    parser.add_argument("--input-len", type=int, help="prompt tokens; default: as in ShareGPT")
    parser.add_argument("--output-len", type=int, help="output tokens; default: as in ShareGPT")
    parser.add_argument(
        "--shared-prefix-len", type=int, default=0, help="tokens that all prompts begin with"
    )
    parser.add_argument("--workload-seed", type=int, default=0, help="seed of lengths and arrivals")
    parser.add_argument(
        "--trace",
        metavar="FILE",
        type=Path,
        help="requests from a JSONL file: arrival_s, prompt_tokens, output_tokens, priority",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_config_arguments(parser, sections=("engine", "model", "plugins"))
    parser.set_defaults(**{"config.executor": "simulated"})


def run(args: argparse.Namespace) -> int:
    """Play the workload and print what came of it."""
    from octavo.bench.null_model import MAX_QUEUED
    from octavo.bench.simulation import simulate
    from octavo.engine.build import build_engine

    _check(args)
    config = resolve_arguments(args, max_num_queued_reqs=MAX_QUEUED)
    executor = config.build("executor")
    clock = executor.clock()
    if clock is None:
        name = config.chosen["executor"].name
        raise ConfigError(
            f"the executor '{name}' has no time of its own (--executor)",
            "leave it out: 'simulated' has",
        )
    engine = build_engine(config, executor)
    try:
        info = engine.info
        arrivals = _arrivals(args, info.vocab_size, info.max_model_len)
        result = simulate(engine, clock, arrivals)
    finally:
        engine.close()
    report = _report(result)
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        _print_report(report)
    return 0


def _check(args: argparse.Namespace) -> None:
    for name in ("num_prompts", "input_len", "output_len"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{name.replace('_', '-')} must be at least 1", _EXAMPLE)
    if args.rate is not None and not 0 < args.rate < float("inf"):
        raise ConfigError(f"--rate {args.rate} is no number of arrivals a second", _EXAMPLE)
    if args.shared_prefix_len < 0:
        raise ConfigError("--shared-prefix-len must be at least 0", _EXAMPLE)


def _arrivals(args: argparse.Namespace, vocab_size: int, max_model_len: int) -> Sequence[Arrival]:
    """Return the requests to come. Made-up lengths are cut to what the context holds."""
    from octavo.bench.offline import PromptMaker
    from octavo.bench.simulation import Workload, make_arrivals, read_trace

    if args.trace is not None:
        return read_trace(args.trace, vocab_size)
    drawn = PromptMaker(vocab_size, args.workload_seed).sharegpt_lengths(args.num_prompts)
    half = max(1, max_model_len // 2)
    lengths = [
        (
            min(args.shared_prefix_len + (args.input_len or num_prompt), half),
            min(args.output_len or num_output, half),
        )
        for num_prompt, num_output in drawn
    ]
    num_shared = min(args.shared_prefix_len, half - 1)
    return make_arrivals(Workload(lengths, args.rate, vocab_size, num_shared, args.workload_seed))


def _report(result: Simulation) -> dict[str, Any]:
    """Return all numbers, milliseconds unless the name says otherwise."""
    from octavo.bench.simulation import rates, summary

    stats = result.stats
    assert stats is not None  # noqa: S101 - a simulation that has ended has them
    ends: dict[str, int] = {}
    for fate in result.fates:
        ends[str(fate.finish_reason)] = ends.get(str(fate.finish_reason), 0) + 1
    queried = max(1, stats.prefix_queries_tokens)
    return {
        "requests": len(result.fates) + len(result.refused),
        "refused": len(result.refused),
        "finished": ends,
        "virtual_s": round(result.virtual_s, 3),
        "real_s": round(result.real_s, 3),
        "times_faster": round(result.virtual_s / max(result.real_s, 1e-9), 1),
        "throughput": {name: round(rate, 3) for name, rate in rates(result)},
        "ttft_ms": _rounded(summary(result.ttft_ms())),
        "tpot_ms": _rounded(summary(result.tpot_ms())),
        "latency_ms": _rounded(summary(result.latency_ms())),
        "kv_usage": _rounded(
            {**summary(result.kv_usage), "max": max(result.kv_usage, default=0.0)}, digits=4
        ),
        "steps": len(result.kv_usage),
        "preemptions": stats.preemptions,
        "prefix_hit_rate": round(stats.prefix_hits_tokens / queried, 4),
    }


def _rounded(values: dict[str, float], digits: int = 2) -> dict[str, float]:
    return {name: round(value, digits) for name, value in values.items()}


def _print_report(report: dict[str, Any]) -> None:
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
    table = Table("", "mean", "p50", "p90", "p99", "max")
    for column in table.columns[1:]:
        column.justify = "right"
    for name in ("ttft_ms", "tpot_ms", "latency_ms", "kv_usage"):
        shown = [report[name].get(key, "") for key in ("mean", "p50", "p90", "p99", "max")]
        table.add_row(name.replace("_", " "), *map(str, shown))
    console.print(table)
