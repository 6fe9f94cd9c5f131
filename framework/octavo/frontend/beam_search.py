"""Beam search: the likeliest texts after a prompt, found by asking for one token at a time.

In each step every beam is a request of its own for one token, with the logprobs of the likeliest;
the prefix cache knows all of it but the last tokens. Of twice as many candidates as there are
beams the best go on; those that end are kept beside them. Order and scores are vLLM's.

Knows engine requests and their outputs. Does not know text, engines, threads or HTTP:
whoever runs the engine takes requests here and hands their outputs in, as with
`octavo.frontend.output_processor`.
"""

from __future__ import annotations

from dataclasses import replace
from heapq import merge
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

from octavo.engine.messages import EngineOutput
from octavo.frontend.beams import Beam, Candidate, stop_reader
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.engine.messages import EngineRequest, TokenLogprobs
    from octavo.frontend.beams import SearchRules
    from octavo.frontend.preprocess import PreparedCall
    from octavo.interfaces.tokenizer import Tokenizer


class BeamSearch:
    """One search. `call` has a request for each text that is to be found; none of them is run.

    `next_requests` are to be run and their outputs to be given to `absorb`, until `is_finished`;
    then `best` holds the texts, and `results` the same as outputs of the call's own requests.
    """

    def __init__(self, call: PreparedCall, tokenizer: Tokenizer) -> None:
        assert call.search is not None  # noqa: S101 - who calls has looked
        self.call = call
        self.best: list[Beam] = []
        self._rules = call.search
        self._base = call.requests[0]
        self._ends = self._base.stop_token_ids.union(self._base.eos_token_ids)
        self._params = _step_params(call.params, call.search)
        self._beams = [Beam([], [], 0.0, stop_reader(call, tokenizer))]
        self._ended: list[Beam] = []
        self._awaited: dict[str, int] = {}  # the beam's index, by the id of its request
        self._entries: dict[int, TokenLogprobs] = {}
        self._first: EngineOutput | None = None
        self._failure: EngineOutput | None = None
        self._num_sent = 0
        self._num_steps = 0
        self.is_finished = False

    def next_requests(self) -> list[EngineRequest]:
        """Return the requests of the next step, once; none while a step runs or when all is over.

        They stand in line where the call itself would: they have its time of arrival.
        """
        if self._awaited or self.is_finished:
            return []
        requests = [self._request(index, beam) for index, beam in enumerate(self._beams)]
        self._awaited = {request.request_id: i for i, request in enumerate(requests)}
        self._num_sent += 1
        return requests

    def refused(self) -> None:
        """The engine took none of the requests now: `next_requests` gives others like them."""
        self._awaited.clear()

    def abort(self) -> None:
        """End the search, between two steps or during one."""
        if not self.is_finished:
            self._fail(EngineOutput(self.call.request_id, [], finish_reason="abort"))

    def unfinished_ids(self) -> list[str]:
        """Return the engine requests that run: what to abort when the caller is gone."""
        return list(self._awaited)

    def absorb(self, output: EngineOutput, now_s: float = 0.0) -> list[str]:
        """Take one output. Returns the engine requests to abort: the others, when one has failed.

        The time does not matter here.
        """
        del now_s
        index = self._awaited.get(output.request_id)
        if index is None:
            return []
        if self._num_steps == 0:
            self._first = self._first or output
        if output.logprobs:
            self._entries[index] = output.logprobs[0]
        if output.finish_reason is None:
            return []
        del self._awaited[output.request_id]
        if output.finish_reason in {"error", "abort"}:
            return self._fail(output)
        if not self._awaited:
            self._advance()
        return []

    def results(self) -> list[EngineOutput]:
        """Return what the call's own requests would have come to, once the search is over."""
        requests = self.call.requests
        failure = self._failure
        if failure is not None:
            return [_renamed(failure, request.request_id) for request in requests]
        outputs = [
            EngineOutput(
                request.request_id,
                beam.token_ids,
                logprobs=_shown(beam.logprobs, request.params.logprobs),
                finish_reason=beam.finish_reason,
                stop_reason=beam.stop_reason,
            )
            for request, beam in zip(requests, self.best, strict=True)
        ]
        if self._first is not None:
            outputs[0].prompt_logprobs = self._first.prompt_logprobs
            outputs[0].num_cached_tokens = self._first.num_cached_tokens
        return outputs

    def _request(self, index: int, beam: Beam) -> EngineRequest:
        params = self._params
        if self._num_steps == 0 and self._base.params.prompt_logprobs is not None:
            params = replace(params, prompt_logprobs=self._base.params.prompt_logprobs)
        return replace(
            self._base,
            request_id=f"{self.call.request_id}.{self._num_sent}-{index}",
            prompt_token_ids=[*self._base.prompt_token_ids, *beam.token_ids],
            params=params,
            max_tokens=1,
            eos_token_ids=(),
            stop_token_ids=frozenset(),
            metadata=dict(self._base.metadata),
        )

    # ------------------------------------------------------------------ a step's end

    def _fail(self, output: EngineOutput) -> list[str]:
        aborted = list(self._awaited)
        self._awaited.clear()
        self._failure = output
        self.is_finished = True
        return aborted

    def _advance(self) -> None:
        """Replace the beams by the best of what may follow them."""
        width = len(self.call.requests)
        self._ended += map(self._ended_by, chain(*self._candidates(are_ends=True)))
        beams: list[Beam] = []
        best_first = attrgetter("cum_logprob")
        going_on = self._candidates(are_ends=False)
        for candidate in merge(*going_on, key=best_first, reverse=True):
            beam = self._extended(candidate)
            (self._ended if beam.finish_reason == "stop" else beams).append(beam)
            if len(beams) == width:
                break
        self._entries.clear()
        self._num_steps += 1
        self._beams = beams
        self._ended = self._ranked(self._ended)[:width]
        if not beams or self._num_steps >= self._base.max_tokens or self._is_decided(width):
            self.best = self._ranked([*self._ended, *beams])[:width]
            self.is_finished = True

    def _candidates(self, *, are_ends: bool) -> Iterator[Iterator[Candidate]]:
        """Yield, for each beam, the likeliest tokens after it that end it or do not, best first."""
        for index, beam in enumerate(self._beams):
            yield self._after(beam, self._entries[index], are_ends=are_ends)

    def _after(self, beam: Beam, entry: TokenLogprobs, *, are_ends: bool) -> Iterator[Candidate]:
        for position, token_id in enumerate(entry.top_ids[: self._rules.num_candidates]):
            if (token_id in self._ends) is are_ends:
                cum_logprob = beam.cum_logprob + entry.top_logprobs[position]
                yield Candidate(beam, entry, position, cum_logprob)

    def _ended_by(self, candidate: Candidate) -> Beam:
        """Return the text that ends with this token."""
        token_id = candidate.token_id
        is_stop = token_id in self._base.stop_token_ids
        beam = candidate.as_beam(None)
        return replace(beam, finish_reason="stop", stop_reason=token_id if is_stop else None)

    def _extended(self, candidate: Candidate) -> Beam:
        """Return the beam with one more token, which may complete a stop string."""
        reader = candidate.beam.reader
        if reader is None:
            return candidate.as_beam(None)
        reader = reader.fork()
        num_tokens = len(candidate.beam.token_ids) + 1
        beam = candidate.as_beam(reader)
        if reader.has_stopped_at(candidate.token_id, num_tokens):
            beam = replace(beam, finish_reason="stop")
        return beam

    def _ranked(self, beams: list[Beam]) -> list[Beam]:
        num_prompt_tokens = len(self._base.prompt_token_ids)
        return sorted(
            beams, key=lambda beam: self._rules.score(num_prompt_tokens, beam), reverse=True
        )

    def _is_decided(self, width: int) -> bool:
        """Return whether no beam can become better than the worst of those that have ended.

        Logprobs only fall, so that a beam is never better than it is now, at the length that suits
        it best.
        """
        if len(self._ended) < width:
            return False
        rules, num_prompt_tokens = self._rules, len(self._base.prompt_token_ids)
        more = self._base.max_tokens if rules.length_penalty > 0 else self._num_steps
        bound = rules.score_at(num_prompt_tokens + more, self._beams[0].cum_logprob)
        return bound <= rules.score(num_prompt_tokens, self._ended[-1])


def _step_params(params: SamplingParams, rules: SearchRules) -> SamplingParams:
    """Return the parameters of a step's requests: what is drawn from them is not looked at."""
    asked = params.logprobs or 0
    num_logprobs = -1 if asked == -1 else max(rules.num_candidates, asked)
    return SamplingParams(max_tokens=1, temperature=0.0, logprobs=num_logprobs, detokenize=False)


def _shown(entries: list[TokenLogprobs], num_asked: int | None) -> list[TokenLogprobs] | None:
    """Return entries with as many of the likeliest tokens as were asked for."""
    if num_asked is None:
        return None
    end = None if num_asked == -1 else num_asked
    return [
        replace(one, top_ids=one.top_ids[:end], top_logprobs=one.top_logprobs[:end])
        for one in entries
    ]


def _renamed(failure: EngineOutput, request_id: str) -> EngineOutput:
    """Return the same failure of another request."""
    return EngineOutput(
        request_id,
        [],
        finish_reason=failure.finish_reason,
        error=failure.error,
        is_refused=failure.is_refused,
        param=failure.param,
    )
