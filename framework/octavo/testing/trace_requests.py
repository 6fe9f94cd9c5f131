"""The requests of random traces, with wishes of all kinds, and what must come of each.

Knows requests and the stub executor's tokens. Does not know engines or schedules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from octavo.interfaces.grammar import GrammarSpec
from octavo.testing.engines import NUM_SEEDS, Outcome, request
from octavo.testing.stub_executor import expected_output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.engine.messages import EngineRequest

#: what a request may want beside its tokens; "" is the plain one
WISHES = ("", "", "", "", "stop", "late-end", "scored", "score-only", "grammar", "salt", "error")


class Event(NamedTuple):
    """One thing that happens. `which` is the request meant, or the tail and priority."""

    action: str
    stem: int
    num_tokens: int
    max_tokens: int
    which: int
    wish: str = ""


@dataclass
class Expected:
    """A request, what the engine must say of it in the end, and what it has said."""

    source: EngineRequest
    token_ids: list[int]
    finish_reason: str
    outcome: Outcome = field(default_factory=Outcome)

    def problems(self) -> Iterator[str]:
        """Yield where what came is not what should have come; for a request that has ended."""
        outcome, name = self.outcome, self.source.request_id
        is_aborted = outcome.finish_reason == "abort"
        wanted = self.token_ids[: len(outcome.token_ids)] if is_aborted else self.token_ids
        if outcome.token_ids != wanted:
            yield f"{name} got {outcome.token_ids}, and alone it gets {wanted}"
        if not is_aborted and outcome.finish_reason != self.finish_reason:
            yield f"{name} ended by {outcome.finish_reason}, not by {self.finish_reason}"
        if self.source.params.prompt_logprobs is not None and self.finish_reason != "error":
            yield from self._problems_of_scores(is_aborted=is_aborted)
        hits = {one.num_cached_tokens for one in outcome.outputs}
        if len(hits) > 1 and not is_aborted:
            yield f"{name} is said to have hit {hits} tokens"

    def _problems_of_scores(self, *, is_aborted: bool) -> Iterator[str]:
        wanted = [None, *self.source.prompt_token_ids[1:]]
        came = [
            [one and one.token_id for one in output.prompt_logprobs]
            for output in self.outcome.outputs
            if output.prompt_logprobs is not None
        ]
        if came != [wanted] and not is_aborted:
            yield f"the prompt of {self.source.request_id} is scored {came}, not once as {wanted}"


def expected_of(event: Event, number: int) -> Expected:
    """Return the request that an event brings as the one with this number."""
    prompt = [(event.stem * 101 + i) % 900 for i in range(event.num_tokens)]
    prompt.append(event.which // 3)  # so that some are the same to the last token
    seed, max_tokens = number % NUM_SEEDS, event.max_tokens
    tokens, reason = expected_output(prompt, max_tokens, seed), "length"
    more: dict[str, Any] = {}
    if event.wish == "stop":
        tokens, reason = tokens[: max_tokens // 2 + 1], "stop"
        more["stop_token_ids"] = tokens[-1:]
    elif event.wish == "late-end":
        least = max_tokens // 2
        at = next(i for i, one in enumerate(tokens) if one == tokens[least] and i + 1 >= least)
        more |= {"eos_token_ids": (tokens[least],), "min_tokens": least}
        tokens, reason = tokens[: at + 1], "stop"
    elif event.wish == "scored":
        more["prompt_logprobs"] = 1
    elif event.wish == "score-only":
        more["prompt_logprobs"] = 1
        tokens, max_tokens = [], 0
    elif event.wish == "grammar":
        more["grammar"] = GrammarSpec("regex", ".*")
    elif event.wish == "salt":
        more["cache_salt"] = f"salt {event.stem % 2}"
    elif event.wish == "error":
        tokens, reason = [], "error"
    source = request(
        f"r{number}", prompt, max_tokens, seed=seed, priority=event.which,
        arrival_s=float(number), metadata={"tenant": f"t{event.stem}"}, **more,
    )  # fmt: skip
    return Expected(source, tokens, reason)
