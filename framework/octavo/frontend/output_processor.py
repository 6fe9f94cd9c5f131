"""Engine outputs become a caller's outputs: all choices of one call, joined or piece by piece.

Knows what a caller wants to see and when. Does not know the engine, threads or HTTP: whoever
runs the engine hands its outputs in and aborts what this says is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.frontend.choice import Choice, logprobs_dict
from octavo.frontend.outputs import RequestMetrics, RequestOutput
from octavo.sampling_params import RequestOutputKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from octavo.engine.messages import EngineOutput, EngineRequest
    from octavo.frontend.outputs import CompletionOutput, Logprob
    from octavo.frontend.preprocess import PreparedCall
    from octavo.interfaces.tokenizer import Tokenizer


class OutputProcessor:
    """Follows one call.

    `absorb` each engine output when it comes; `take` what is to be shown when someone listens.
    A slow listener finds all that came since in one output: nothing queues up. `kind` is the
    form of the outputs where it is not the one that the parameters name.
    """

    def __init__(
        self, call: PreparedCall, tokenizer: Tokenizer, *, kind: RequestOutputKind | None = None
    ) -> None:
        self.call = call
        self.kind = kind or call.params.output_kind
        self.tokenizer = tokenizer
        self.metrics = RequestMetrics(arrival_time=call.arrival_s)
        self.num_cached_tokens = 0
        self._choices = {
            request.request_id: Choice(request, tokenizer, call.visible_ids)
            for request in call.requests
        }
        self._num_running = len(self._choices)
        self._prompt_logprobs: list[dict[int, Logprob] | None] | None = None
        self._pooled: bytes | None = None
        self._changed: set[str] = set()
        self._num_told: dict[str, int] = {}
        self._is_begun = False
        self._is_final_taken = False

    def next_requests(self) -> list[EngineRequest]:
        """Return the engine requests that are to be run, once."""
        if self._is_begun:
            return []
        self._is_begun = True
        return self.call.requests

    @property
    def is_finished(self) -> bool:
        """Return whether all choices have ended."""
        return self._num_running == 0

    def unfinished_ids(self) -> list[str]:
        """Return the engine requests that still run: what to abort when the caller is gone."""
        return [i for i, choice in self._choices.items() if choice.finish_reason is None]

    def absorb(self, output: EngineOutput, now_s: float) -> list[str]:
        """Take one output of an engine request of this call.

        Returns the engine requests to abort: those that a stop string ended just now.
        """
        choice = self._choices[output.request_id]
        if choice.finish_reason is not None:
            return []
        if output.token_ids and self.metrics.first_token_time is None:
            self.metrics.first_token_time = now_s
        if choice.request.choice == 0:
            self._take_prompt_facts(output)
        must_abort = choice.absorb(output)
        self._changed.add(output.request_id)
        self._num_running -= choice.finish_reason is not None
        if self.is_finished:
            self.metrics.finished_time = now_s
        return [output.request_id] if must_abort else []

    def take(self) -> RequestOutput | None:
        """Return what is new in the form that `output_kind` asks for; None if there is nothing.

        DELTA: the choices that have new text or have ended, with what is new of them; tokens
        whose text is held back come with the text. CUMULATIVE: all choices, with all so far.
        FINAL_ONLY: all choices, once, when all have ended. With a `stream_interval` the first two
        wait until a choice has so many new tokens, but for its first ones and its last.
        """
        if self._is_final_taken:
            return None
        if self.kind is RequestOutputKind.DELTA:
            outputs = self._deltas()
        elif self.is_finished or (
            self.kind is RequestOutputKind.CUMULATIVE and any(map(self._is_due, self._changed))
        ):
            outputs = [choice.snapshot() for choice in self._choices.values()]
            self._note_told(self._changed)
        else:
            outputs = []
        self._is_final_taken = bool(outputs) and self.is_finished
        return self._request_output(outputs) if outputs else None

    def _deltas(self) -> list[CompletionOutput]:
        outputs, told = [], []
        for request_id in sorted(self._changed, key=lambda i: self._choices[i].request.choice):
            choice = self._choices[request_id]
            is_shown = choice.text_parts or not choice.request.params.detokenize
            if choice.finish_reason is not None or (is_shown and self._is_due(request_id)):
                outputs.append(choice.snapshot())
                choice.clear()
                told.append(request_id)
        self._note_told(told)
        return outputs

    def _is_due(self, request_id: str) -> bool:
        """Return whether a choice has ended, or has as many new tokens as a listener waits for."""
        choice = self._choices[request_id]
        interval, num_told = choice.request.params.stream_interval, self._num_told.get(request_id)
        if interval is None or num_told is None or choice.finish_reason is not None:
            return True
        return choice.num_tokens - num_told >= interval

    def _note_told(self, request_ids: Iterable[str]) -> None:
        for request_id in list(request_ids):
            self._num_told[request_id] = self._choices[request_id].num_tokens
            self._changed.discard(request_id)

    def _request_output(self, outputs: list[CompletionOutput]) -> RequestOutput:
        prompt_logprobs = self._prompt_logprobs
        if self.kind is RequestOutputKind.DELTA:
            self._prompt_logprobs = None
        return RequestOutput(
            request_id=self.call.request_id,
            prompt=self.call.prompt,
            prompt_token_ids=self.call.prompt_token_ids,
            outputs=outputs,
            finished=self.is_finished,
            prompt_logprobs=prompt_logprobs,
            metrics=self.metrics,
            num_cached_tokens=self.num_cached_tokens,
            pooled=self._pooled,
        )

    def _take_prompt_facts(self, output: EngineOutput) -> None:
        self.num_cached_tokens = max(self.num_cached_tokens, output.num_cached_tokens)
        self._pooled = output.pooled
        if output.prompt_logprobs is not None:
            self._prompt_logprobs = [
                None if entry is None else logprobs_dict(entry, self.tokenizer)
                for entry in output.prompt_logprobs
            ]
