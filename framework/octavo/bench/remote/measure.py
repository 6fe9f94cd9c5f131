"""One workload sent to a server at several rates, after it was asked what it calls its model.

Knows the order of things and the bodies of requests. Does not know flags or how to print.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from octavo.bench.arrivals import pause_s
from octavo.bench.remote.connection import Connections
from octavo.bench.remote.load import Load, play
from octavo.bench.remote.prompts import Prompt, TextMaker, TokensPerWord
from octavo.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from octavo.bench.remote.address import Address
    from octavo.bench.remote.load import LoadRun
    from octavo.bench.remote.outcome import Outcome

_OK = 200
#: words of the two prompts that show what the server counts
_SAMPLES = (16, 112)
_MODELS = "/v1/models"
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured. A rate in requests a second; None sends all at once."""

    prompts: Sequence[Prompt]
    rates: Sequence[float | None]
    model: str | None = None
    path: str = CHAT
    burstiness: float = 1.0
    max_concurrency: int | None = None
    num_warmups: int = 2
    seed: int = 0
    timeout_s: float = 600.0
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measured:
    """The runs of a plan, one for each rate, and what was learnt before them."""

    model: str
    tokens_per_word: TokensPerWord
    runs: Sequence[LoadRun]


class Measurement:
    """Carries out a plan. `watch` gets what runs, how many have ended, and how many failed."""

    def __init__(
        self, address: Address, plan: Plan, watch: Callable[[str, int, int], None]
    ) -> None:
        self._plan = plan
        self._connections = Connections(address, plan.timeout_s)
        self._place = f"{address.host}:{address.port}"
        self._watch = watch

    async def run(self) -> Measured:
        """Return what was measured. Raises EngineError when the server cannot be asked at all."""
        try:
            model = self._plan.model or await self._first_model()
            texts = TextMaker(self._plan.seed)
            per_word = await self._tokens_per_word(model, texts)
            runs = []
            for rate in self._plan.rates:
                bodies = [self._body(model, one, texts, per_word) for one in self._plan.prompts]
                runs.append(await self._play(rate, bodies))
        finally:
            self._connections.close()
        return Measured(model, per_word, runs)

    async def _first_model(self) -> str:
        exchange = await self._connections.send("GET", _MODELS)
        self._check(exchange.outcome)
        try:
            return str(json.loads(bytes(exchange.body))["data"][0]["id"])
        except (ValueError, LookupError, TypeError) as error:
            raise EngineError(
                f"{self._place} does not list its models", "name one: --model NAME"
            ) from error

    async def _tokens_per_word(self, model: str, texts: TextMaker) -> TokensPerWord:
        """Warm the server up, with prompts that show how many tokens it counts in them."""
        counts = []
        for at in range(max(len(_SAMPLES), self._plan.num_warmups)):
            num_words = _SAMPLES[at % len(_SAMPLES)]
            prompt = Prompt(texts.one(num_words), 4)
            outcome = await self._ask(self._body(model, prompt, texts, TokensPerWord()))
            counts.append((num_words, outcome.num_prompt_tokens))
        return TokensPerWord.seen(counts[: len(_SAMPLES)])

    async def _ask(self, body: bytes) -> Outcome:
        self._watch("warm-up", 0, 0)
        outcome = (await self._connections.send("POST", self._plan.path, body)).outcome
        self._check(outcome)
        return outcome

    def _check(self, outcome: Outcome) -> None:
        if outcome.error is not None and outcome.error != "no text":
            headline = f"{self._place} cannot be measured: {outcome.error}"
            raise EngineError(headline, outcome.detail)

    def _body(self, model: str, prompt: Prompt, texts: TextMaker, per_word: TokensPerWord) -> bytes:
        """Return a request. What is made up is another text each time."""
        text = prompt.text
        if text is None and prompt.messages is None:
            text = texts.one(per_word.words(prompt.prompt_tokens))
        body: dict[str, Any] = {"model": model}
        if self._plan.path.endswith("/chat/completions"):
            body["messages"] = prompt.messages or [{"role": "user", "content": text}]
        else:
            body["prompt"] = text or "\n".join(str(one["content"]) for one in prompt.messages or ())
        body |= {
            "max_tokens": prompt.output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._plan.fields,
        }
        return json.dumps(body).encode()

    async def _play(self, rate: float | None, bodies: Sequence[bytes]) -> LoadRun:
        plan = self._plan
        load = Load(plan.path, bodies, self._arrivals_s(rate), plan.max_concurrency)
        title = rate_name(rate)
        return await play(
            self._connections, load, lambda done, failed: self._watch(title, done, failed)
        )

    def _arrivals_s(self, rate: float | None) -> list[float]:
        """Return when requests are sent: as the file says, or at a rate."""
        plan = self._plan
        told = [one.arrival_s for one in plan.prompts]
        if rate is None and any(told):
            return sorted(one or 0.0 for one in told)
        draw = random.Random(plan.seed)  # noqa: S311 - a workload, not a secret
        times_s = [0.0]
        for _ in plan.prompts[1:]:
            times_s.append(times_s[-1] + pause_s(rate, plan.burstiness, draw))
        return times_s


def rate_name(rate: float | None) -> str:
    """Return a rate as it is shown."""
    return "inf" if rate is None else f"{rate:g}/s"


def with_lengths(lengths: Sequence[tuple[int, int]]) -> list[Prompt]:
    """Return prompts that are to be made up, of (prompt, output) tokens."""
    blank = Prompt(None, 1)
    return [replace(blank, prompt_tokens=one, output_tokens=other) for one, other in lengths]
