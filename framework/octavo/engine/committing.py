"""What a committed step does to its requests: advance, stop by id or length, hash blocks.

Knows token ids. Does not know text (stop strings are the front end's), tensors or HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.engine.messages import EngineOutput
from octavo.engine.plan import RowError
from octavo.engine.request import Request, RequestState

if TYPE_CHECKING:
    from octavo.engine.plan import RowAdvance, StepResult
    from octavo.engine.scheduled_step import ScheduledStep
    from octavo.engine.scheduling import SchedulingCore

_FINISHED = RequestState.FINISHED  # an enum's members are slow to look up


class Committer:
    """Applies results to requests, in the order of the plan."""

    def __init__(self, core: SchedulingCore) -> None:
        self._core = core
        self._block_size = core.limits.block_size
        self.finished_counts: dict[str, int] = {}
        self.num_prompt_tokens = 0
        self.num_generated_tokens = 0

    def commit(self, step: ScheduledStep, result: StepResult) -> list[EngineOutput]:
        """Return the news of the step's requests; those that have none are left out."""
        outputs, num_generated = [], 0
        errors, logprobs = result.errors, result.logprobs
        shares = zip(step.requests, step.epochs, step.plan.advances, strict=True)
        for index, (request, epoch, advance) in enumerate(shares):
            request.num_in_flight -= 1
            request.num_placeholders -= advance.is_sampling
            if request.state is _FINISHED:
                continue  # aborted or stopped while this step was in flight
            if errors and index in errors:
                outputs.append(self.fail(request, errors[index]))
                continue
            is_current = request.epoch == epoch
            if not request.is_scored and (is_current or not request.source.pooling):
                self._score(request, advance, result, index)
            token_ids, reason = self._append(request, result.token_ids[index])
            num_generated += len(token_ids)
            if is_current:
                self._advance(request, advance, result, index, len(token_ids))
            if advance.is_sampling:
                output = self._output(request, token_ids, reason)
                if logprobs and index in logprobs:
                    output.logprobs = logprobs[index][: len(token_ids)]
                outputs.append(output)
            elif request.max_tokens == 0 and request.num_computed == request.num_prompt_tokens:
                outputs.append(self.finish(request, "stop" if request.source.pooling else "length"))
                outputs[-1].pooled = result.pooled.get(index)
        self.num_generated_tokens += num_generated
        return outputs

    def _append(self, request: Request, token_ids: tuple[int, ...]) -> tuple[list[int], str | None]:
        """Append accepted ids up to the first that stops the request; return them, and why."""
        known, source = request.token_ids, request.source
        num_before, num_most = len(known), request.num_prompt_tokens + request.max_tokens
        reason = None
        for token_id in token_ids:
            known.append(token_id)
            is_end = token_id in source.eos_token_ids or token_id in source.stop_token_ids
            if is_end and self._may_end(request):
                reason = "stop"
                break
            if len(known) >= num_most:
                reason = "length"
                break
        return known[num_before:], reason

    @staticmethod
    def _may_end(request: Request) -> bool:
        """Return whether there are tokens enough for an end to count."""
        # a grammar lets an end be drawn too early only where there is nothing else to say
        source = request.source
        return request.num_output_tokens >= source.params.min_tokens or source.grammar is not None

    def refuse(self, request: Request, error: Exception) -> EngineOutput:
        """End a request for what was found wrong with it after it had been accepted."""
        return self.fail(request, RowError.of(error))

    def fail(self, request: Request, error: RowError) -> EngineOutput:
        """End a request that cannot go on."""
        output = self.finish(request, "error")
        output.error, output.is_refused, output.param = error.text, error.is_refused, error.param
        return output

    def finish(self, request: Request, reason: str) -> EngineOutput:
        """End a request now and free what it holds. Returns its last output, without tokens."""
        output = EngineOutput(
            request.request_id,
            [],
            prompt_logprobs=request.prompt_logprobs if request.num_output_tokens == 0 else None,
            num_cached_tokens=request.num_cached_tokens,
            finish_reason=reason,
        )
        self._end(request, reason)
        return output

    def _end(self, request: Request, reason: str) -> None:
        self._core.remove(request)
        request.finish_reason = reason
        self.finished_counts[reason] = self.finished_counts.get(reason, 0) + 1

    def _advance(
        self,
        request: Request,
        advance: RowAdvance,
        result: StepResult,
        index: int,
        num_accepted: int,
    ) -> None:
        """Move the committed mark, past drafts as far as they were right, and name full blocks."""
        before, num_drafts = request.num_computed, len(advance.drafts)
        end = advance.start + advance.num_tokens - num_drafts
        if num_accepted > 1:
            end += num_accepted - 1
        request.num_computed = end
        if num_drafts:
            request.num_scheduled = end  # nothing else of it is in flight while drafts are
            self._core.speculator.observe(request, num_drafts, num_accepted - 1)
        if index in result.drafts:
            request.drafts = result.drafts[index]
        if before < request.num_prompt_tokens:
            self.num_prompt_tokens += max(0, min(end, request.num_prompt_tokens) - before)
        core, table = self._core, request.table
        num_full = end // self._block_size
        if num_full > table.num_hashed_blocks:
            core.allocator.commit(table, request.token_ids, end)
        if num_full > before // self._block_size:
            core.allocator.trim(table, end)
        if core.policy.takes_notes:
            core.policy.on_tokens(request, end - advance.start, core.view)

    @staticmethod
    def _score(request: Request, advance: RowAdvance, result: StepResult, index: int) -> None:
        """Keep what was wanted of the prompt's positions.

        Log-probabilities hold when the request was preempted meanwhile: its first token may come
        with this step, and they come with that.
        """
        if request.source.pooling is None:
            known = request.prompt_logprobs = request.prompt_logprobs or [None]
            known[advance.start + 1 :] = result.prompt_logprobs.get(index, ())
        request.is_scored = advance.start + advance.num_tokens >= request.num_prompt_tokens

    def _output(self, request: Request, token_ids: list[int], reason: str | None) -> EngineOutput:
        """Return the news of newly sampled tokens, and end the request if there is a reason to."""
        output = EngineOutput(
            request.request_id, token_ids, None, None, request.num_cached_tokens, reason
        )
        if request.prompt_logprobs is not None and request.num_output_tokens == len(token_ids):
            output.prompt_logprobs = request.prompt_logprobs
        if reason is not None:
            if reason == "stop" and token_ids[-1] in request.source.stop_token_ids:
                output.stop_reason = token_ids[-1]
            self._end(request, reason)
        return output
