"""`octavo bench`: latency and throughput of a model here, next to this machine's limits.

Knows how to print. The measuring is in `octavo.bench`.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from octavo.config.flags import add_config_arguments, resolve_arguments
from octavo.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from octavo.bench.offline import LatencyRow
    from octavo.bench.roofline import Roofline
    from octavo.bench.speculation import Comparison
    from octavo.config.resolved import ResolvedConfig
    from octavo.engine.messages import EngineInfo

ACTIONS = {
    "latency": "prefill and decode rates by number of sequences",
    "step": "the parts of a decode step, and the share of the roofline of each kernel",
    "throughput": "a workload of many requests at once",
    "overhead": "what the engine costs beside the model, in microseconds a step",
    "speculation": "the same requests with and without drafts, by turns",
    "costs": "what steps cost here, as a table for the executor 'simulated'",
    "kv-waste": "the share of allocated KV slots that hold nothing, by allocator",
}
_OF_MODEL = ("latency", "step", "throughput", "speculation", "costs")
_FAR_OFF_MS = 1e6
#: what `speculation` compares, unless another proposer is chosen
_PROPOSERS = ("none", "ngram")
#: peers are measured without it, so that equal prompts do not help
_NO_CACHE = {"enable_prefix_caching": False}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action and the workload's sizes."""
    width = max(map(len, ACTIONS))
    parser.description = "actions: " + "; ".join(f"{a:{width}} {t}" for a, t in ACTIONS.items())
    parser.add_argument("action", choices=ACTIONS, metavar=f"{{{','.join(ACTIONS)}}}")
    parser.add_argument("--input-len", type=int, default=128, help="prompt tokens (default: 128)")
    parser.add_argument("--output-len", type=int, default=64, help="output tokens (default: 64)")
    parser.add_argument(
        "--batch-size", default="1,4,16", help="numbers of sequences, e.g. 1,4,16,64"
    )
    parser.add_argument("--context", type=int, default=128, help="step: tokens (default: 128)")
    parser.add_argument("--num-iters", type=int, default=3, help="runs, of which the median counts")
    parser.add_argument(
        "--num-prompts",
        type=int,
        default=64,
        help="requests of throughput; plain prompts of speculation, at most 20",
    )
    parser.add_argument(
        "--sharegpt-like", action="store_true", help="throughput: lengths with means 161 and 338"
    )
    parser.add_argument("--output", metavar="FILE", type=Path, help="where costs are written")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_config_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    for name in ("input_len", "output_len", "context", "num_iters", "num_prompts"):
        if getattr(args, name) < 1:
            raise ConfigError(f"--{name.replace('_', '-')} must be at least 1")
    overrides: dict[str, Any] = dict(_NO_CACHE) if args.action in _OF_MODEL else {}
    if args.action in {"latency", "step", "speculation"}:
        # steps are not bounded in time: nobody reads these tokens one by one
        overrides["max_step_ms"] = None
    elif args.action == "costs":  # bounded far off, as start-up measures less where nothing is
        overrides["max_step_ms"] = _FAR_OFF_MS
    if args.action in {"latency", "step"}:
        overrides["max_num_seqs"] = max(_sizes(args))
    report: dict[str, Any] = _MEASURES[args.action](args, resolve_arguments(args, **overrides))
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        _print_report(report)
    return 0


def _sizes(args: argparse.Namespace) -> list[int]:
    try:
        sizes = [int(size) for size in args.batch_size.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        headline = f"--batch-size {args.batch_size!r} is no list of numbers"
        raise ConfigError(headline, "for example: --batch-size 1,4,16,64")
    return sizes


def _machine(config: ResolvedConfig) -> dict[str, Any]:
    facts: dict[str, str] = config.build("platform").describe()
    return {**facts, "python": platform.python_version(), "load_average": os.getloadavg()[0]}


def _overhead(args: argparse.Namespace, config: ResolvedConfig) -> dict[str, Any]:
    from octavo.bench.overhead import time_overhead

    rows = [time_overhead(config, num_seqs) for num_seqs in _sizes(args)]
    return {
        "machine": _machine(config),
        "title": "engine beside the model, a decode step",
        "rows": [
            {
                "sequences": row.num_seqs,
                "us/step": round(row.step_us, 1),
                "goal us": row.goal_us,
                "share": f"{row.step_us / row.goal_us:.0%}",
            }
            for row in rows
        ],
    }


def _kv_waste(args: argparse.Namespace, config: ResolvedConfig) -> dict[str, Any]:
    from octavo.bench.overhead import kv_waste
    from octavo.config.resolve import resolve

    rows = []
    for name in dict.fromkeys([config.chosen["allocator"].name, "paged", "contiguous"]):
        allocator = resolve(overrides={"allocator": name}).chosen["allocator"]
        one = config.model_copy(update={"chosen": {**config.chosen, "allocator": allocator}})
        waste = kv_waste(one, args.num_prompts)
        rows.append({"allocator": name, "wasted": f"{waste:.2%}"})
    title = f"KV slots allocated and unused, block size {config.engine.block_size}"
    return {"machine": _machine(config), "title": title, "rows": rows}


def _throughput(args: argparse.Namespace, config: ResolvedConfig) -> dict[str, Any]:
    from octavo.bench.offline import PromptMaker, time_throughput
    from octavo.bench.roofline import measure_roofline
    from octavo.llm import LLM

    with LLM.from_config(config) as llm:
        prompts = PromptMaker(llm.engine_info.vocab_size)
        lengths = [(args.input_len, args.output_len)] * args.num_prompts
        if args.sharegpt_like:
            lengths = prompts.sharegpt_lengths(args.num_prompts)
        result = time_throughput(llm, prompts, lengths)
    return {
        "machine": {**_machine(config), **asdict(measure_roofline())},
        "model": config.model.name,
        "title": f"{args.num_prompts} requests at once",
        "rows": [
            {
                "seconds": round(result.elapsed_s, 2),
                "requests/s": round(result.num_requests / result.elapsed_s, 2),
                "output tok/s": round(result.output_rate, 1),
                "total tok/s": round(result.total_rate, 1),
            }
        ],
    }


def _latency(args: argparse.Namespace, config: ResolvedConfig) -> dict[str, Any]:
    from octavo.bench.offline import LatencyTimer, PromptMaker
    from octavo.bench.roofline import measure_roofline
    from octavo.local_model import open_model

    engine = open_model(config).engine
    try:
        limits = measure_roofline()
        timer = LatencyTimer(engine, PromptMaker(engine.info.vocab_size))
        timer.time(1, (8, 8), 1)  # first touch of everything
        lengths = (args.input_len, args.output_len)
        rows = [timer.time(size, lengths, args.num_iters) for size in _sizes(args)]
    finally:
        engine.close()
    return {
        "machine": {**_machine(config), **asdict(limits)},
        "model": config.model.name,
        "title": f"{args.input_len} tokens in, {args.output_len} decode steps",
        "rows": [_latency_row(row, engine.info, limits) for row in rows],
    }


def _latency_row(row: LatencyRow, facts: EngineInfo, limits: Roofline) -> dict[str, Any]:
    """Return rates, and the decode step's shares: bytes of the file read, multiplications done."""
    read_rate = facts.weight_bytes / (row.step_ms / 1000) / 1e9
    flops = 2 * facts.num_multiplied_weights
    return {
        "sequences": row.num_seqs,
        "prefill tok/s": round(row.prefill_rate, 1),
        "decode tok/s": round(row.decode_rate, 1),
        "ms/step": round(row.step_ms, 2),
        "of read bandwidth": f"{read_rate / limits.read_gb_per_s:.0%}",
        "of gemm, decode": f"{flops * row.decode_rate / 1e9 / limits.gemm_gflop_per_s:.0%}",
        "of gemm, prefill": f"{flops * row.prefill_rate / 1e9 / limits.gemm_gflop_per_s:.0%}",
    }


def _step(args: argparse.Namespace, config: ResolvedConfig) -> dict[str, Any]:
    from octavo.cli.bench_step import step_report

    limits, report = step_report(config, _sizes(args), args.context, args.output_len)
    machine = {**_machine(config), **asdict(limits)}
    return {"machine": machine, "model": config.model.name, **report}


def _speculation(args: argparse.Namespace, config: ResolvedConfig) -> dict[str, Any]:
    from octavo.bench.speculation import PLAIN, REPETITIVE, SideBySide
    from octavo.config.resolve import resolve
    from octavo.llm import LLM

    none, ngram = (resolve(overrides={"proposer": one}).chosen["proposer"] for one in _PROPOSERS)
    chosen = config.chosen["proposer"]
    proposer = ngram if chosen.name == none.name else chosen
    plain, drafting = (
        config.model_copy(update={"chosen": {**config.chosen, "proposer": one}})
        for one in (none, proposer)
    )
    sorts = {"repetitive": (REPETITIVE,), "plain": PLAIN[: args.num_prompts]}
    with LLM.from_config(plain) as one, LLM.from_config(drafting) as other:
        pair = SideBySide(one, other)
        rows = [
            _speculation_row(sort, pair.compare(prompts, args.output_len, args.num_iters))
            for sort, prompts in sorts.items()
        ]
    return {
        "machine": _machine(config),
        "model": config.model.name,
        "title": f"one request at a time, {args.output_len} tokens, proposer {proposer.name}",
        "rows": rows,
    }


def _speculation_row(sort: str, result: Comparison) -> dict[str, Any]:
    return {
        "prompts": f"{len(result.times)} {sort}",
        "plain tok/s": round(result.plain_rate, 1),
        "tok/s": round(result.drafted_rate, 1),
        "ratio": round(result.drafted_rate / result.plain_rate, 2),
        "least": round(result.speedups[0], 2),
        "median": round(median(result.speedups), 2),
        "tok/step": round(result.tokens_per_step, 2),
        "accepted": f"{result.acceptance:.0%}",
        "same text": "yes" if result.is_same else "no",
    }


def _costs(args: argparse.Namespace, config: ResolvedConfig) -> dict[str, Any]:
    from octavo.bench.costs import CostMeter
    from octavo.local_model import open_model

    engine = open_model(config).engine
    try:
        measured = CostMeter(engine).measure()
    finally:
        engine.close()
    table = replace(measured, machine=_machine(config), model=config.model.name)
    if args.output is not None:
        table.write(args.output)
    rows = [(f"{tokens} tokens of one", step_ms) for tokens, step_ms in table.costs.points]
    rows += [(f"{num} sequences: more", more_ms) for num, more_ms in table.sequence_points[1:]]
    rows.append(("one token after 1000: more", 1000 * (table.decode_context_ms or 0.0)))
    rows.append(("100 tokens after 1000: more", 1e5 * table.costs.per_context_ms))
    return {
        "machine": dict(table.machine),
        "model": table.model,
        "title": "what steps cost",
        "rows": [{"step": step, "ms": round(step_ms, 3)} for step, step_ms in rows],
    }


_MEASURES = {
    "latency": _latency,
    "step": _step,
    "throughput": _throughput,
    "speculation": _speculation,
    "costs": _costs,
    "overhead": _overhead,
    "kv-waste": _kv_waste,
}


def _print_report(report: dict[str, Any]) -> None:
    from rich.console import Console

    from octavo.cli.tables import fitted_table

    console = Console()
    for key, value in report["machine"].items():
        shown = round(value, 1) if isinstance(value, float) else value
        console.print(f"[dim]{key}:[/dim] {shown}", highlight=False)
    if "model" in report:
        console.print(f"[dim]model:[/dim] {report['model']}", highlight=False)
    for table in (report, *report.get("kernels", ())):
        console.print(fitted_table(table["title"], table["rows"], console.width))
