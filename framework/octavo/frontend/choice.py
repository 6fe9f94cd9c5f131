"""One choice of a call: ids come in, text, logprobs and an end come out.

Knows detokenising, stop strings, circles and where a choice ends. Does not know calls, streams or
engines.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Final

from octavo.frontend.detokenizer import detokenizer_of
from octavo.frontend.outputs import CompletionOutput, Logprob
from octavo.frontend.repetition import RepetitionChecker
from octavo.frontend.stop import StopChecker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.engine.messages import EngineOutput, EngineRequest, TokenLogprobs
    from octavo.frontend.detokenizer import Detokenizer
    from octavo.interfaces.tokenizer import Tokenizer

_CIRCLES: Final = "repetition"


class Choice:
    """Follows one engine request to its end.

    What came since `clear` was last called is in `text_parts`, `token_ids` and `logprobs`. Tokens
    after the one that completed a stop string, or a circle, leave no trace.
    """

    def __init__(
        self,
        request: EngineRequest,
        tokenizer: Tokenizer,
        visible_ids: frozenset[int] = frozenset(),
    ) -> None:
        params = request.params
        self.request = request
        self.tokenizer = tokenizer
        self.text_parts: list[str] = []
        self.token_ids: list[int] = []
        self.logprobs: list[dict[int, Logprob]] | None = None if params.logprobs is None else []
        self.cumulative_logprob = 0.0
        self.num_tokens = 0
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self.error: str | None = None
        self._detokenizer = _detokenizer(request, tokenizer, visible_ids)
        self._stop_checker = _stop_checker(request)
        self._repetition_checker = _repetition_checker(request)

    def absorb(self, output: EngineOutput) -> bool:
        """Take one output of the engine. Returns whether the engine must be told to stop.

        Outputs after the end are ignored.
        """
        if self.finish_reason is not None:
            return False
        is_running = output.finish_reason is None
        output = self._until_repetition(output)
        num_kept, stop = self._take_text(output)
        self.num_tokens += num_kept
        self.token_ids.extend(output.token_ids[:num_kept])
        if self.logprobs is not None and output.logprobs is not None:
            self._take_logprobs(output.logprobs[:num_kept])
        if stop is not None:
            self.finish_reason, self.stop_reason = "stop", stop
            return is_running
        if output.finish_reason is not None:
            self.finish_reason, self.stop_reason = output.finish_reason, output.stop_reason
            self.error = output.error
        if self.finish_reason == _CIRCLES:
            self.stop_reason = "repetition_detected"
            return is_running
        return False

    def snapshot(self) -> CompletionOutput:
        """Return what came since `clear`, as the caller sees it. The lists are copies."""
        has_logprobs = self.logprobs is not None
        return CompletionOutput(
            index=self.request.choice,
            text="".join(self.text_parts),
            token_ids=list(self.token_ids),
            cumulative_logprob=self.cumulative_logprob if has_logprobs else None,
            logprobs=None if self.logprobs is None else list(self.logprobs),
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            error=self.error,
            num_tokens=self.num_tokens,
        )

    def clear(self) -> None:
        """Forget what was handed on."""
        self.text_parts = []
        self.token_ids = []
        if self.logprobs is not None:
            self.logprobs = []

    def _until_repetition(self, output: EngineOutput) -> EngineOutput:
        """Return an output up to the token that makes the text go round in circles, if one does.

        An end that the engine has found with that very token wins.
        """
        if self._repetition_checker is None:
            return output
        token_ids, num_before = output.token_ids, self.num_tokens
        for number, token_id in enumerate(token_ids, 1):
            is_repeated = self._repetition_checker.push(token_id)
            is_end = number == len(token_ids) and output.finish_reason is not None
            is_early = num_before + number < self.request.params.min_tokens
            if is_repeated and not is_end and not is_early:
                cut = copy.copy(output)
                cut.token_ids, cut.finish_reason = token_ids[:number], _CIRCLES
                return cut
        return output

    def _take_text(self, output: EngineOutput) -> tuple[int, str | None]:
        """Return how many of the tokens count, and the stop string that ended the choice."""
        token_ids = output.token_ids
        if self._detokenizer is None:
            return len(token_ids), None
        num_shown = len(token_ids) - self._is_stop_token_hidden(output)
        if self._stop_checker is None:
            self._show(self._detokenizer.push(token_ids[:num_shown]))
            if output.finish_reason is not None:
                self._show(self._detokenizer.finish())
            return len(token_ids), None
        for position in range(num_shown):
            text = self._detokenizer.push(token_ids[position : position + 1])
            stop = self._check(self._stop_checker, text, self.num_tokens + position + 1)
            if stop is not None:
                return position + 1, stop
        stop = None
        if output.finish_reason is not None:
            text = self._detokenizer.finish()
            stop = self._check(self._stop_checker, text, self.num_tokens + len(token_ids))
            self._show(self._stop_checker.finish())
        return len(token_ids), stop

    def _check(self, checker: StopChecker, text: str, num_tokens: int) -> str | None:
        shown, stop = checker.push(text, num_tokens)
        self._show(shown)
        return stop

    def _show(self, text: str) -> None:
        if text:
            self.text_parts.append(text)

    def _is_stop_token_hidden(self, output: EngineOutput) -> bool:
        """Return whether the last token only ended the text and is no part of it (B28)."""
        if output.finish_reason != "stop" or not output.token_ids:
            return False
        request, last = self.request, output.token_ids[-1]
        is_end = last in request.eos_token_ids or last in request.stop_token_ids
        return is_end and not request.params.include_stop_str_in_output

    def _take_logprobs(self, entries: Sequence[TokenLogprobs]) -> None:
        for entry in entries:
            self.cumulative_logprob += entry.logprob
            if self.logprobs is not None:
                self.logprobs.append(logprobs_dict(entry, self.tokenizer))


def logprobs_dict(entry: TokenLogprobs, tokenizer: Tokenizer) -> dict[int, Logprob]:
    """Return vLLM's shape: the token itself first, then the others that were asked for."""
    text = tokenizer.token_text
    found = {entry.token_id: Logprob(entry.logprob, entry.rank, text(entry.token_id))}
    ranks = entry.top_ranks or range(1, len(entry.top_ids) + 1)
    for token_id, logprob, rank in zip(entry.top_ids, entry.top_logprobs, ranks, strict=True):
        if token_id != entry.token_id:
            found[token_id] = Logprob(logprob, rank, text(token_id))
    return found


def _detokenizer(
    request: EngineRequest, tokenizer: Tokenizer, visible_ids: frozenset[int]
) -> Detokenizer | None:
    params = request.params
    if not params.detokenize:
        return None
    return detokenizer_of(
        tokenizer,
        request.prompt_token_ids,
        skip_special_tokens=params.skip_special_tokens,
        visible_ids=visible_ids,
    )


def _repetition_checker(request: EngineRequest) -> RepetitionChecker | None:
    params = request.params.repetition_detection
    if params is None or params.max_pattern_size == 0:
        return None
    return RepetitionChecker(params)


def _stop_checker(request: EngineRequest) -> StopChecker | None:
    params = request.params
    if not params.stop_strings:
        return None
    return StopChecker(
        params.stop_strings,
        min_tokens=params.min_tokens,
        include_in_output=params.include_stop_str_in_output,
    )
