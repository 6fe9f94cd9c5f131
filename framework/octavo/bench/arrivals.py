"""Requests to come: made up, or read from a trace.

Made up are ShareGPT-like lengths, arrivals by a Poisson process or in bursts, beginnings that
prompts share, and users of whom some ask more than others. Knows requests before an engine has
them. Does not know engines, nor what becomes of the requests.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from octavo.bench.offline import PromptMaker
from octavo.errors import ConfigError, RequestError
from octavo.frontend.request_params import DeclaredParams

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_TRACE_KEYS: Final = (
    "arrival_s", "prompt_tokens", "prompt_token_ids", "output_tokens", "priority", "user",
    "session_id", "extra_args",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request to come: when, with which prompt, and how many tokens it generates.

    `metadata` and `extra_args` are for policies: whose it is, and what components declare.
    """

    arrival_s: float
    prompt_token_ids: list[int]
    output_tokens: int
    priority: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)
    extra_args: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload to be made up. `rate` in requests a second, None for all at once.

    Lengths are (prompt, output), one pair for each request. `num_shared` tokens at the beginning
    are one of `num_prefixes` texts. `burstiness` is the shape of a gamma distribution of the
    times between arrivals: 1 makes a Poisson process, less makes bursts. Of `num_users` the
    second asks half as often as the first, the third a third as often, and so on.
    """

    lengths: Sequence[tuple[int, int]]
    rate: float | None
    vocab_size: int
    num_shared: int = 0
    seed: int = 0
    num_prefixes: int = 1
    burstiness: float = 1.0
    num_users: int = 1


def make_arrivals(workload: Workload) -> list[Arrival]:
    """Return random prompts and when they arrive; the same every time."""
    prompts = PromptMaker(workload.vocab_size, workload.seed)
    prefixes = [
        prompts.one(workload.num_shared)["prompt_token_ids"] for _ in range(workload.num_prefixes)
    ]
    draw = random.Random(workload.seed)  # noqa: S311 - a workload, not a secret
    users = range(1, workload.num_users + 1)
    arrivals, now_s = [], 0.0
    for num_prompt, num_output in workload.lengths:
        shared = prefixes[0] if len(prefixes) == 1 else draw.choice(prefixes)
        own = prompts.one(max(1, num_prompt - len(shared)))["prompt_token_ids"]
        metadata = {}
        if workload.num_users > 1:
            (user,) = draw.choices(users, [1 / rank for rank in users])
            metadata["user"] = f"user-{user}"
        arrivals.append(Arrival(now_s, shared + own, num_output, metadata=metadata))
        now_s += pause_s(workload.rate, workload.burstiness, draw)
    return arrivals


def pause_s(rate: float | None, burstiness: float, draw: random.Random) -> float:
    """Return the time to the next arrival; the parameters are those of `Workload`."""
    if rate is None:
        return 0.0
    if burstiness == 1:
        return draw.expovariate(rate)
    return draw.gammavariate(burstiness, 1 / (rate * burstiness))


def read_trace(path: Path, vocab_size: int, params: DeclaredParams | None = None) -> list[Arrival]:
    """Read arrivals, one JSON object a line. Raises ConfigError naming the line.

    `arrival_s`, `output_tokens`, and either `prompt_tokens` (their number) or `prompt_token_ids`;
    if need be `priority`, `user`, `session_id`, and `extra_args`, which `params` checks.
    """
    params = params or DeclaredParams()
    prompts = PromptMaker(vocab_size)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the trace '{path}'", str(error)) from error
    arrivals = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            arrivals.append(_arrival_of(json.loads(line), prompts))
            params.check(arrivals[-1].extra_args)
        except (ValueError, RequestError) as error:
            raise ConfigError(
                f"line {number} of the trace '{path}' is no request",
                str(error),
                f"keys: {', '.join(_TRACE_KEYS)}",
            ) from error
    return sorted(arrivals, key=lambda one: one.arrival_s)


def _arrival_of(values: Any, prompts: PromptMaker) -> Arrival:
    """Return a line as a request. Raises ValueError that says which key is wrong."""
    if not isinstance(values, dict):
        raise ValueError(f"a line is an object of JSON, not {values!r:.60}")  # noqa: TRY004 - a fault of the file
    unknown = sorted(set(values) - set(_TRACE_KEYS))
    if unknown:
        raise ValueError(f"unknown keys {', '.join(unknown)}")
    ids = values.get("prompt_token_ids")
    if ids is None:
        ids = prompts.one(_whole(values, "prompt_tokens"))["prompt_token_ids"]
    elif not isinstance(ids, list) or not all(type(one) is int for one in ids):
        raise ValueError(f"prompt_token_ids: a list of whole numbers, not {ids!r:.60}")
    arrival_s = _number(values, "arrival_s")
    num_output = _whole(values, "output_tokens")
    extra_args = values.get("extra_args")
    if not isinstance(extra_args, dict | None):
        raise ValueError(f"extra_args: an object of JSON, not {extra_args!r:.60}")  # noqa: TRY004 - as above
    if not ids or num_output < 1 or not 0 <= arrival_s < float("inf"):
        raise ValueError("a request has at least one token each way, and arrives at 0 s or later")
    return Arrival(
        arrival_s,
        list(ids),
        num_output,
        _whole({"priority": 0, **values}, "priority"),
        {key: str(values[key]) for key in ("user", "session_id") if key in values},
        extra_args,
    )


def _number(values: Mapping[str, Any], key: str) -> float:
    """Return the number under a key. Raises ValueError that names the key."""
    if key not in values:
        raise ValueError(f"{key} is missing")
    value = values[key]
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{key}: a number, not {value!r:.60}")  # noqa: TRY004 - as above
    return float(value)


def _whole(values: Mapping[str, Any], key: str) -> int:
    """Return the whole number under a key. Raises ValueError that names the key."""
    number = _number(values, key)
    if not number.is_integer():
        raise ValueError(f"{key}: a whole number, not {values[key]!r:.60}")
    return int(number)
