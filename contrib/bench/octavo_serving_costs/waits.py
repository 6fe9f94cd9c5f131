"""From the end of a step to the client's socket: how long each token was on its way.

Knows what the reader saw and what the executor noted. Does not know servers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_EVENT = "data: {"


def token_times(arrivals: Iterable[tuple[float, str]]) -> list[float]:
    """Return when each token of a stream arrived, from times and the text read at each.

    A token has arrived when the last byte of its event has.
    """
    times: list[float] = []
    unread = ""
    for time_s, text in arrivals:
        *lines, unread = (unread + text).split("\n")
        for line in lines:
            if line.startswith(_EVENT):
                times += [time_s] * _num_tokens(json.loads(line.removeprefix("data: ")))
    return times


def _num_tokens(event: dict[str, Any]) -> int:
    return sum(len(choice.get("token_ids") or ()) for choice in event.get("choices", ()))


def step_times(steps: Iterable[tuple[float, dict[str, int]]]) -> dict[str, list[float]]:
    """Return the ends of the steps that gave each call its tokens, one for each token.

    The engine's names of requests begin with the name of the call, which has no dot here.
    """
    ends: dict[str, list[float]] = {}
    for end_s, counts in steps:
        for request_id, num_tokens in counts.items():
            ends.setdefault(request_id.partition(".")[0], []).extend([end_s] * num_tokens)
    return ends


def waits_ms(
    streams: dict[str, Sequence[tuple[float, str]]], steps: Sequence[tuple[float, dict[str, int]]]
) -> list[float]:
    """Return the milliseconds of each token of all streams (arrivals by the call's name)."""
    ends = step_times(steps)
    waits: list[float] = []
    for call, arrivals in streams.items():
        arrived, ended = token_times(arrivals), ends.get(call, [])
        if len(arrived) != len(ended):
            raise ValueError(f"{call}: {len(arrived)} tokens came, {len(ended)} were made")
        waits += [1000 * (to - since) for since, to in zip(ended, arrived, strict=True)]
    return waits
