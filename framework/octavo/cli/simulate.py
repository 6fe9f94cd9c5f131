"""`octavo simulate`: a workload in virtual time, without a model, in a fraction of the real time.

Knows flags, and which engines play the workload. Playing it is in `octavo.bench.simulation`,
printing in `octavo.cli.simulate_report` and `octavo.cli.plots`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.config.flags import add_config_arguments, resolve_arguments_with_catalogue
from octavo.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from octavo.bench.arrivals import Arrival
    from octavo.bench.simulation import Simulation
    from octavo.config.resolve import Resolution
    from octavo.config.resolved import ResolvedConfig
    from octavo.engine.messages import EngineInfo
    from octavo.frontend.request_params import DeclaredParams
    from octavo.plugin.options import RequestParams

_EXAMPLE = "for example: --rate 4 --num-prompts 200"
#: kinds whose components read what a request says for policies
_POLICIES = ("scheduler", "allocator", "eviction")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the workload; the engine is configured as for `octavo serve`."""
    add = parser.add_argument
    add("--num-prompts", type=int, default=200, help="requests that arrive (default: 200)")
    add("--rate", type=float, help="arrivals a second, of a Poisson process; default: all at once")
    add("--burstiness", type=float, default=1.0, help="less than 1: arrivals in bursts")
    add("--input-len", type=int, help="prompt tokens; default: as in ShareGPT")
    add("--output-len", type=int, help="output tokens; default: as in ShareGPT")
    add("--shared-prefix-len", type=int, default=0, help="tokens that prompts begin with")
    add("--num-prefixes", type=int, default=1, help="so many different beginnings (default: 1)")
    add("--num-users", type=int, default=1, help="users; the second asks half as often, and so on")
    add("--workload-seed", type=int, default=0, help="seed of lengths and arrivals")
    add(
        "--trace",
        metavar="FILE",
        type=Path,
        help="requests from a JSONL file: arrival_s, prompt_tokens, output_tokens; if need be "
        "priority, user, session_id, extra_args",
    )
    add(
        "--compare",
        metavar="[KIND:]NAME,NAME",
        help="play the workload once with each scheduler, or component of another kind",
    )
    add(
        "--plot",
        metavar="FILE",
        nargs="?",
        const="",
        help="draw times, queue and blocks: in the terminal, or as an image with octavo[plot]",
    )
    add(
        "--against-real",
        action="store_true",
        help="play the workload with the model in real time as well, and show how far off this is",
    )
    add("--json", action="store_true", help="print JSON")
    add_config_arguments(parser, sections=("engine", "model", "plugins"))
    parser.set_defaults(**{"config.executor": "simulated"})


def run(args: argparse.Namespace) -> int:
    """Play the workload and print what came of it."""
    from octavo.bench.null_model import MAX_QUEUED
    from octavo.cli.plots import draw
    from octavo.cli.simulate_report import (
        panels_of,
        print_comparison,
        print_errors,
        print_report,
        report_of,
    )

    _check(args)
    resolution = resolve_arguments_with_catalogue(args, max_num_queued_reqs=MAX_QUEUED)
    config = resolution.config
    for note in config.notes:
        print(f"note: {note}", file=sys.stderr)
    if args.against_real:
        results = _against_real(args, config)
    else:
        configs = {config.chosen["scheduler"].name: config}
        if args.compare is not None:
            configs = _compared(args, resolution)
        params = _declared_params(configs.values())
        results = {name: _play(args, one, params) for name, one in configs.items()}
    reports = {name: report_of(result) for name, result in results.items()}
    is_alone = len(results) == 1
    if args.json:
        print(json.dumps(next(iter(reports.values())) if is_alone else reports, indent=2))
    elif is_alone:
        print_report(next(iter(reports.values())))
    else:
        print_comparison(reports)
    if args.against_real and not args.json:
        print_errors(results)
    if args.plot is not None:
        draw(panels_of(results), args.plot)
    return _say_what_was_not_played(results)


def _say_what_was_not_played(results: Mapping[str, Simulation]) -> int:
    """Say on stderr which runs answered nobody. Returns the exit code: 1 when there is one."""
    empty = {name: one for name, one in results.items() if not one.fates}
    for name, one in empty.items():
        what = f"all {len(one.refused)} were refused" if one.refused else "none came"
        why = f"\n  {one.refused[0]}" if one.refused else ""
        print(f"error: no request was answered ({name}): {what}{why}", file=sys.stderr)
    return 1 if empty else 0


def _check(args: argparse.Namespace) -> None:
    for name in ("num_prompts", "input_len", "output_len", "num_prefixes", "num_users"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{name.replace('_', '-')} must be at least 1", _EXAMPLE)
    for name in ("rate", "burstiness"):
        value = getattr(args, name)
        if value is not None and not 0 < value < float("inf"):
            what = "number of arrivals a second" if name == "rate" else "shape of a distribution"
            raise ConfigError(f"--{name} {value} is no {what}", _EXAMPLE)
    if args.shared_prefix_len < 0:
        raise ConfigError("--shared-prefix-len must be at least 0", _EXAMPLE)
    if args.plot:
        from octavo.cli.plots import check_image

        check_image(args.plot)
    if args.against_real and args.compare is not None:
        raise ConfigError("--compare and --against-real are two questions", "ask one at a time")


def _compared(args: argparse.Namespace, resolution: Resolution) -> dict[str, ResolvedConfig]:
    """Return a config for each component to be compared; the chosen one keeps its options."""
    from octavo.config.resolve import resolve_with_catalogue

    config = resolution.config
    kind, colon, names = args.compare.partition(":")
    kind, names = (kind, names) if colon else ("scheduler", args.compare)
    if kind not in config.chosen:
        raise ConfigError(
            f"--compare {args.compare}: there is no kind '{kind}' of which one is in use",
            f"kinds: {', '.join(config.chosen)}",
        )
    configs: dict[str, ResolvedConfig] = {}
    for name in (one.strip() for one in names.split(",")):
        if name in configs:
            raise ConfigError(f"--compare {args.compare}: '{name}' is named twice")
        chosen = config.chosen[kind]
        if name != chosen.name:
            uses = {one: component.name for one, component in config.chosen.items()} | {kind: name}
            again = resolve_with_catalogue(resolution.catalogue, overrides=uses, environ={})
            chosen = again.config.chosen[kind]
        configs[name] = config.model_copy(update={"chosen": {**config.chosen, kind: chosen}})
    return configs


def _declared_params(configs: Iterable[ResolvedConfig]) -> DeclaredParams:
    """Return what requests may say for any of the policies that are played."""
    from octavo.frontend.request_params import DeclaredParams
    from octavo.plugin.request_params import declared_params

    models: dict[str, type[RequestParams]] = {}
    for config in configs:
        models |= declared_params(config.chosen[kind] for kind in _POLICIES)
    return DeclaredParams(models)


def _play(args: argparse.Namespace, config: ResolvedConfig, params: DeclaredParams) -> Simulation:
    """Play the workload on an engine of virtual time."""
    from octavo.bench.simulation import simulate
    from octavo.engine.build import build_engine

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
        arrivals = _arrivals(args, engine.info, params)
        return simulate(engine, clock, arrivals)
    finally:
        engine.close()


def _against_real(args: argparse.Namespace, config: ResolvedConfig) -> dict[str, Simulation]:
    """Play the workload with the model, and then without, by costs that were measured between."""
    from octavo.bench.fidelity import RealRun

    with RealRun(config) as real:
        arrivals = _arrivals(args, real.info, _declared_params([config]))
        return {"real": real.play(arrivals), "simulated": real.play_simulated(arrivals)}


def _check_lengths(args: argparse.Namespace, half: int, max_model_len: int) -> None:
    """Raise ConfigError for lengths that were asked for and do not fit into the context."""
    num_shared, num_own = args.shared_prefix_len, args.input_len or 1
    flags = "--shared-prefix-len and --input-len" if num_shared else "--input-len"
    for name, num_tokens in ((flags, num_shared + num_own), ("--output-len", args.output_len or 1)):
        if num_tokens > half:
            raise ConfigError(
                f"{name}: {num_tokens} tokens are more than the {half} that fit",
                f"half of the context ({max_model_len} tokens) is for prompts, half for outputs",
                "lower it, or raise --max-model-len",
            )


def _arrivals(args: argparse.Namespace, info: EngineInfo, params: DeclaredParams) -> list[Arrival]:
    """Return the requests to come. Lengths drawn as in ShareGPT are cut to the context."""
    from octavo.bench.arrivals import Workload, make_arrivals, read_trace
    from octavo.bench.offline import PromptMaker

    if args.trace is not None:
        return read_trace(args.trace, info.vocab_size, params)
    drawn = PromptMaker(info.vocab_size, args.workload_seed).sharegpt_lengths(args.num_prompts)
    half = max(1, info.max_model_len // 2)
    _check_lengths(args, half, info.max_model_len)
    lengths = [
        (
            min(args.shared_prefix_len + (args.input_len or num_prompt), half),
            min(args.output_len or num_output, half),
        )
        for num_prompt, num_output in drawn
    ]
    return make_arrivals(
        Workload(
            lengths,
            args.rate,
            info.vocab_size,
            min(args.shared_prefix_len, half - 1),
            args.workload_seed,
            args.num_prefixes,
            args.burstiness,
            args.num_users,
        )
    )
