"""`octavo bench serve`: what clients of a server get, by how many there are.

Any server with OpenAI's API may be measured. Knows flags and how to print. The measuring is in
`octavo.bench.remote`.
"""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    import argparse

    from octavo.bench.remote.measure import Plan
    from octavo.bench.remote.prompts import Prompt

_EXAMPLE = "for example: octavo bench serve --base-url http://localhost:8000 --request-rate inf,2,4"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the server, the workload, and what is shown."""
    add = parser.add_argument
    add("--base-url", default="http://localhost:8000", metavar="URL", help="where the server is")
    add("--model", metavar="NAME", help="what is asked; default: the first that the server lists")
    add("--api-key", metavar="KEY", help="key that the server wants")
    add(
        "--endpoint",
        default="/v1/chat/completions",
        choices=("/v1/chat/completions", "/v1/completions"),
        help="what is measured",
    )
    _add_workload(parser)
    add(
        "--goodput",
        nargs="+",
        metavar="NAME:MS",
        help="promises in milliseconds, as ttft:500 tpot:50 itl:200 e2e:5000; itl is the longest "
        "gap of a request",
    )
    add("--timeout-s", type=float, default=600.0, metavar="S", help="time of one request, at most")
    add("--plot", nargs="?", const="", metavar="FILE", help="draw: in the terminal, or as an image")
    add("--json", action="store_true", help="print all numbers as JSON")


def _add_workload(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--num-prompts", type=int, default=100, metavar="N", help="requests of each run")
    add("--input-len", type=int, metavar="N", help="prompt tokens (default: 128)")
    add("--output-len", type=int, metavar="N", help="output tokens, at most (default: 64)")
    add("--sharegpt-like", action="store_true", help="lengths with means 161 and 338")
    add(
        "--dataset-path",
        type=Path,
        metavar="FILE",
        help="prompts: ShareGPT's JSON, or a line each with prompt, messages or prompt_tokens, "
        "and output_tokens; arrival_s says when where no rate is given",
    )
    add(
        "--request-rate",
        action="append",
        metavar="R[,R...]",
        help="requests a second, a run for each; inf (the default) sends all at once",
    )
    add(
        "--burstiness",
        type=float,
        default=1.0,
        metavar="B",
        help="1 is a Poisson process; less than 1: bursts of the same rate",
    )
    add("--max-concurrency", type=int, metavar="N", help="requests on their way at once, at most")
    add("--num-warmups", type=int, default=2, metavar="N", help="requests before, at least 2")
    add("--ignore-eos", action="store_true", help="full-length answers, where the server can")
    add("--extra-body", default="{}", metavar="JSON", help="further fields of each request")
    add("--seed", type=int, default=0, help="seed of texts, lengths and arrivals")


def run(args: argparse.Namespace) -> int:
    """Measure and print. Exit code 1 when a request failed."""
    from octavo.bench.remote.address import Address
    from octavo.bench.remote.measure import Measurement, rate_name
    from octavo.cli.bench_serve_report import Watch, panels_of, print_report

    slos = _slos(args.goodput or ())
    address, plan = Address.of(args.base_url, args.api_key), _plan(args)
    with Watch(len(plan.prompts)) as watch:
        measured = asyncio.run(Measurement(address, plan, watch.show).run())
    runs = {rate_name(r): run for r, run in zip(plan.rates, measured.runs, strict=True)}
    reports = {name: run.report(slos) for name, run in runs.items()}
    report = {
        "server": f"{address.host}:{address.port}{address.prefix}",
        "model": measured.model,
        "endpoint": plan.path,
        "goodput": slos,
        "runs": reports,
    }
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        print_report(report)
    if args.plot is not None:
        from octavo.cli.plots import draw

        draw(panels_of(runs), args.plot)
    return 1 if any(one["failed"] for one in reports.values()) else 0


def _plan(args: argparse.Namespace) -> Plan:
    from octavo.bench.remote.measure import Plan

    for name in ("num_prompts", "input_len", "output_len", "max_concurrency"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{name.replace('_', '-')} must be at least 1", _EXAMPLE)
    for name in ("burstiness", "timeout_s"):
        if not 0 < getattr(args, name) < math.inf:
            raise ConfigError(f"--{name.replace('_', '-')} must be above 0", _EXAMPLE)
    return Plan(
        prompts=_prompts(args),
        rates=_rates(args.request_rate or ["inf"]),
        model=args.model,
        path=args.endpoint,
        burstiness=args.burstiness,
        max_concurrency=args.max_concurrency,
        num_warmups=args.num_warmups,
        seed=args.seed,
        timeout_s=args.timeout_s,
        fields=_fields(args),
    )


def _prompts(args: argparse.Namespace) -> list[Prompt]:
    from octavo.bench.offline import PromptMaker
    from octavo.bench.remote.measure import with_lengths
    from octavo.bench.remote.prompts import read_prompts

    if args.dataset_path is not None:
        if args.sharegpt_like or args.input_len is not None:
            headline = "--dataset-path has lengths of its own"
            raise ConfigError(headline, "leave out --sharegpt-like and --input-len")
        return read_prompts(args.dataset_path, args.num_prompts, args.output_len)
    lengths = [(args.input_len or 128, args.output_len or 64)] * args.num_prompts
    if args.sharegpt_like:
        drawn = PromptMaker(1, args.seed).sharegpt_lengths(args.num_prompts)
        lengths = [(args.input_len or one, args.output_len or other) for one, other in drawn]
    return with_lengths(lengths)


def _rates(texts: list[str]) -> list[float | None]:
    """Return the rates of all flags; None for inf."""
    rates: dict[float, None] = {}
    for text in (word for one in texts for word in one.split(",")):
        try:
            rate = float(text)
        except ValueError:
            rate = math.nan
        if not rate > 0:
            headline = f"--request-rate {text!r} is no number of requests a second"
            raise ConfigError(headline, _EXAMPLE)
        rates[rate] = None
    return [None if math.isinf(rate) else rate for rate in rates]


def _fields(args: argparse.Namespace) -> dict[str, Any]:
    try:
        fields = json.loads(args.extra_body)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise ConfigError("--extra-body is no JSON object", "for example: '{\"top_p\": 0.9}'")
    return {"ignore_eos": True, **fields} if args.ignore_eos else fields


def _slos(texts: tuple[str, ...] | list[str]) -> dict[str, float]:
    from octavo.bench.remote.load import SLOS

    slos = {}
    for text in texts:
        name, _, value = text.partition(":")
        name = {"e2el": "e2e"}.get(name, name)  # as vLLM calls it
        try:
            limit = float(value)
        except ValueError:
            limit = math.nan
        if name not in SLOS or not limit > 0:
            raise ConfigError(
                f"--goodput {text!r} is no promise",
                did_you_mean(name, SLOS) if name not in SLOS else "",
                f"names: {', '.join(SLOS)}; for example: --goodput ttft:500 itl:50",
            )
        slos[name] = limit
    return slos
