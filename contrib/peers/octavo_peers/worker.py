"""The process of one engine: loads it, times the cases of a job, and writes JSON lines.

A job comes as JSON on standard input. Standard output carries one line for the start and one for
each case; whatever the engine prints goes to standard error instead.
Knows calls and clocks, the same for every engine. Does not know how an engine is called
(`engines`) or what becomes of the times (`results`).
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

from octavo_peers.engines import ENGINES
from octavo_peers.work import WARM_OUTPUT_TOKENS, Job

if TYPE_CHECKING:
    from collections.abc import Callable

    from octavo_peers.engines.engine import Engine
    from octavo_peers.work import Case


def main() -> None:
    """Do the job on standard input."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as lines:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

        def send(message: dict[str, Any]) -> None:
            lines.write(json.dumps(message) + "\n")
            lines.flush()

        try:
            work(Job.from_json(json.load(sys.stdin)), send)
        except Exception as error:
            send({"error": _in_one_line(error)})
            raise


def work(job: Job, send: Callable[[dict[str, Any]], None]) -> None:
    """Load the engine, and send its start and the times of every case.

    A case that fails is sent with its error, and the next one is tried: an engine may have too
    little memory for one of them.
    """
    engine = ENGINES[job.engine].load(job)
    try:
        _generate(engine, [job.first_prompt()], 1)
        start_s = time.monotonic() - job.spawned_s
        send({"version": engine.version(), "start_s": start_s})
        for case in job.cases:
            try:
                times = time_case(engine, job, case)
            except Exception as error:  # noqa: BLE001 - of any engine, each with its own errors
                traceback.print_exc()
                times = {"error": _in_one_line(error)}
            send({"case": vars(case), **times})
    finally:
        engine.close()


def time_case(engine: Engine, job: Job, case: Case) -> dict[str, Any]:
    """Return pairs of seconds, for first tokens and for all, and the first ids of call 0.

    A short call that is not timed goes first: what an engine sets up for a number of sequences,
    and the shared prefix, are there before the clock runs.
    """
    engine.prepare(case, job.prefix(case))
    _generate(engine, job.warm_prompts(case), WARM_OUTPUT_TOKENS)
    pairs: list[tuple[float, float]] = []
    first_ids: list[int] = []
    while not pairs or sum(map(sum, pairs)) < job.min_s:
        call = 2 * len(pairs)
        first_s, outputs = _generate(engine, job.prompts(case, call), 1)
        first_ids = first_ids or [output[0] for output in outputs]
        total_s, _ = _generate(engine, job.prompts(case, call + 1), case.num_output_tokens)
        pairs.append((first_s, total_s))
    return {"pairs": pairs, "first_ids": first_ids}


def _generate(
    engine: Engine, prompts: list[list[int]], num_tokens: int
) -> tuple[float, list[list[int]]]:
    """Return the seconds of a call, and its ids. Raises ValueError when these are too few."""
    start_s = time.perf_counter()
    outputs = engine.generate(prompts, num_tokens)
    elapsed_s = time.perf_counter() - start_s
    lengths = [len(output) for output in outputs]
    if lengths != [num_tokens] * len(prompts):
        raise ValueError(
            f"asked for {num_tokens} tokens of each of {len(prompts)} sequences, got {lengths}"
        )
    return elapsed_s, outputs


def _in_one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


if __name__ == "__main__":
    main()
