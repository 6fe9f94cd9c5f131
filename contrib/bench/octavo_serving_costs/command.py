"""`python contrib/bench ACTION [MODEL]`: measure, and print figures beside their goals.

Knows flags, goals and how to print.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from octavo import LLM, SamplingParams
from octavo.bench.remote.prompts import TextMaker
from octavo_serving_costs import raw_reader, timed_steps
from octavo_serving_costs.mixed_load import hold_idle, send_mixed
from octavo_serving_costs.server import Server
from octavo_serving_costs.waits import waits_ms

if TYPE_CHECKING:
    from octavo_serving_costs.server import Usage

_CHUNK_GOAL_US = 100
_RATIO_GOAL = 0.92
_MEMORY_GOAL_MB = 20
_WAIT_GOAL_MS = 15
#: prefixes are not shared, and none may be found in a cache
_PLAIN = ("--no-enable-prefix-caching",)
_NUM_WARM = 600


def main() -> int:
    """Run one action. Exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(prog="python contrib/bench", description=__doc__)
    parser.add_argument("action", choices=_ACTIONS)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--input-len", type=int, default=32, help="words of a prompt")
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle-connections", type=int, default=512)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--idle-s", type=float, default=10.0)
    args = parser.parse_args()
    is_met = True
    for name, (value, goal, is_good) in _ACTIONS[args.action](args).items():
        verdict = "" if goal is None else f"  (goal: {goal}: {'met' if is_good else 'MISSED'})"
        is_met &= is_good
        print(f"{name}: {value}{verdict}")
    return 0 if is_met else 1


def _bodies(args: argparse.Namespace, first: int = 0) -> list[dict[str, Any]]:
    """Return requests of equal length that share no beginning, others for each `first`."""
    texts = TextMaker(first)
    return [
        {
            "prompt": texts.one(args.input_len),
            "max_tokens": args.output_len,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
        }
        for _ in range(args.streams)
    ]


def _read(port: int, bodies: list[dict[str, Any]], *flags: str) -> dict[str, Any]:
    """Return what the raw reader saw, in a process of its own."""
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, str(Path(raw_reader.__file__)), str(port), *flags],
        input=json.dumps([json.dumps(body) for body in bodies]),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _throughput(args: argparse.Namespace) -> dict[str, Any]:
    """Measure streams over HTTP and the same requests in `LLM`, by turns."""
    params = SamplingParams(temperature=0, max_tokens=args.output_len, ignore_eos=True)
    size = {"max_num_seqs": args.streams, "enable_prefix_caching": False}
    num_tokens = args.streams * args.output_len
    rounds: list[dict[str, float]] = []
    flags = (args.model, *_PLAIN, "--max-num-seqs", str(args.streams))
    with LLM(args.model, **size) as llm, Server(*flags) as server:
        for number in range(args.rounds + 1):  # the first is a warm-up
            bodies = _bodies(args, number * args.streams)
            before = server.usage()
            seen = _read(server.port, bodies)
            used = _since(before, server.usage())
            start_s = time.perf_counter()
            llm.generate([body["prompt"] for body in bodies], params, use_tqdm=False)
            llm_s = time.perf_counter() - start_s
            rounds.append({**seen, **used, "llm_s": llm_s})
    rounds = rounds[1:]
    ratio = median(one["llm_s"] / one["elapsed_s"] for one in rounds)
    chunk_us = median(one["http_cpu_s"] / one["events"] * 1e6 for one in rounds)
    reader_us = median(one["cpu_s"] / one["events"] * 1e6 for one in rounds)
    http_s, llm_s = (median(one[name] for one in rounds) for name in ("elapsed_s", "llm_s"))
    num_failed = sum(one["failed"] for one in rounds)
    return {
        "streams": (f"{args.streams} of {args.output_len} tokens", None, True),
        "failed": (num_failed, 0, not num_failed),
        "over HTTP": (f"{num_tokens / http_s:,.0f} tok/s", None, True),
        "LLM": (f"{num_tokens / llm_s:,.0f} tok/s", None, True),
        "ratio": (f"{ratio:.3f}", f"at least {_RATIO_GOAL}", ratio >= _RATIO_GOAL),
        "CPU of the HTTP process for a chunk": (
            f"{chunk_us:.1f} us", f"at most {_CHUNK_GOAL_US} us", chunk_us <= _CHUNK_GOAL_US,
        ),
        "CPU of the reader for a chunk": (f"{reader_us:.1f} us", None, True),
        "chunks": (f"{median(one['events'] for one in rounds):,.0f}", None, True),
    }  # fmt: skip


def _latency(args: argparse.Namespace) -> dict[str, Any]:
    """Measure how long tokens take from the end of their step to the client's socket."""
    waits: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "steps.jsonl"
        timed = ("--plugin", timed_steps.__file__, "--executor", "timed")
        flags = (*timed, "--executor.path", str(path), "--max-num-seqs", str(args.streams))
        rounds = []
        with Server(args.model, *_PLAIN, *flags) as server:
            for number in range(args.rounds + 1):  # the first is a warm-up
                bodies = _bodies(args, number * args.streams)
                for index, body in enumerate(bodies):
                    body |= {"request_id": f"{number}-{index}", "return_token_ids": True}
                rounds.append(_read(server.port, bodies, "--times"))
        steps = [json.loads(line) for line in path.read_text().splitlines()]
    for number, seen in enumerate(rounds[1:], 1):
        streams = {f"cmpl-{number}-{i}": one for i, one in enumerate(seen["arrivals"])}
        waits += waits_ms(streams, steps)
    waits.sort()
    p99 = waits[int(0.99 * len(waits))]
    return {
        "tokens": (f"{len(waits):,} in {args.streams} streams at once", None, True),
        "from the end of a step to the socket, median": (f"{median(waits):.1f} ms", None, True),
        "p99": (f"{p99:.1f} ms", f"at most {_WAIT_GOAL_MS} ms", p99 <= _WAIT_GOAL_MS),
        "longest": (f"{waits[-1]:.1f} ms", None, True),
    }


def _since(before: Usage, after: Usage) -> dict[str, float]:
    return {
        "http_cpu_s": after.http_cpu_s - before.http_cpu_s,
        "engine_cpu_s": after.engine_cpu_s - before.engine_cpu_s,
    }


def _connections(args: argparse.Namespace) -> dict[str, Any]:
    """Stream while many connections do nothing."""
    num = args.idle_connections
    with Server(args.model, *_PLAIN, "--max-num-seqs", str(args.streams)) as server:
        bodies = _bodies(args)
        seen, num_good = asyncio.run(hold_idle(server.url, num, lambda: _read(server.port, bodies)))
    assert isinstance(seen, dict)  # noqa: S101 - it is what `_read` returned
    return {
        "streams that failed": (f"{seen['failed']} of {args.streams}", 0, not seen["failed"]),
        "idle connections answered after": (f"{num_good} of {num}", num, num_good == num),
    }


def _memory(args: argparse.Namespace) -> dict[str, Any]:
    """Send many requests of all sorts, and compare memory and blocks with what was before."""
    with Server(args.model, "--max-num-seqs", str(args.streams)) as server:
        asyncio.run(send_mixed(server.url, range(_NUM_WARM), 32))
        before = _at_rest(server)
        numbers = range(_NUM_WARM, _NUM_WARM + args.requests)
        ends = asyncio.run(send_mixed(server.url, numbers, 32))
        after = _at_rest(server)
        gauges = server.gauges()
    http_mb, engine_mb, all_mb = (
        (getattr(after, name) - getattr(before, name)) / 1e6
        for name in ("http_bytes", "engine_bytes", "all_bytes")
    )
    is_free = not any(gauges.values())
    return {
        "requests": (args.requests, None, True),
        "how they ended": (dict(sorted(ends.items())), None, True),
        "memory before": (f"{before.all_bytes / 1e6:.0f} MB", None, True),
        "growth": (
            f"{all_mb:.1f} MB (HTTP {http_mb:.1f}, engine {engine_mb:.1f})",
            f"less than {_MEMORY_GOAL_MB} MB", all_mb < _MEMORY_GOAL_MB,
        ),
        "running, waiting, blocks in use": (list(gauges.values()), "0", is_free),
    }  # fmt: skip


def _at_rest(server: Server) -> Usage:
    """Return what is used when nothing runs any more."""
    end_s = time.monotonic() + 20
    while any(server.gauges().values()) and time.monotonic() < end_s:
        time.sleep(0.2)
    return server.usage()


def _idle(args: argparse.Namespace) -> dict[str, Any]:
    """Watch a server that nobody asks."""
    with Server(args.model) as server:
        _read(server.port, _bodies(args)[:4])
        time.sleep(2)
        before = server.usage()
        time.sleep(args.idle_s)
        used = _since(before, server.usage())
    return {
        f"{name} process, CPU while idle": (
            f"{used[key] / args.idle_s:.2%}", "0 %", used[key] / args.idle_s < 0.005,  # noqa: PLR2004 - rounds to 0 %
        )
        for name, key in (("HTTP", "http_cpu_s"), ("engine", "engine_cpu_s"))
    }  # fmt: skip


_ACTIONS = {
    "throughput": _throughput,
    "latency": _latency,
    "connections": _connections,
    "memory": _memory,
    "idle": _idle,
}
