"""What a committed step does to its requests: advance, stop by id or length, hash blocks.

Knows token ids. Does not know text (stop strings are the front end's), tensors or HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.engine.messages import EngineOutput
from octavo.engine.plan import RowError
from octavo.engine.request import Request, RequestState

if TYPE_CHECKING:
    from octavo.engine.messages import TokenLogprobs
    from octavo.engine.plan import RowAdvance, StepResult
    from octavo.engine.scheduled_step import ScheduledStep
    from octavo.engine.scheduling import SchedulingCore


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
        outputs = []
        shares = zip(step.requests, step.epochs, step.plan.advances, strict=True)
        for index, (request, epoch, advance) in enumerate(shares):
            request.num_in_flight -= 1
            request.num_placeholders -= advance.is_sampling
            if request.state is RequestState.FINISHED:
                continue  # aborted or stopped while this step was in flight
            if index in result.errors:
                outputs.append(self.fail(request, result.errors[index]))
                continue
            is_first = request.num_output_tokens == 0
            token_ids, reason = self._append(request, result.token_ids[index])
            if request.epoch == epoch:
                self._advance(request, advance, result, index, len(token_ids))
            if advance.is_sampling:
                output = self._output(request, token_ids, result.logprobs.get(index), reason)
                output.prompt_logprobs = request.prompt_logprobs if is_first else None
                outputs.append(output)
            elif request.max_tokens == 0 and request.num_computed == request.num_prompt_tokens:
                outputs.append(self.finish(request, "length"))
        return outputs

    def _append(self, request: Request, token_ids: tuple[int, ...]) -> tuple[list[int], str | None]:
        """Append accepted ids up to the first that stops the request; return them, and why."""
        accepted: list[int] = []
        reason = None
        for token_id in token_ids:
            accepted.append(token_id)
            request.token_ids.append(token_id)
            reason = self._stop_reason(request, token_id)
            if reason is not None:
                break
        self.num_generated_tokens += len(accepted)
        return accepted, reason

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
        end = advance.start + advance.num_tokens - num_drafts + max(0, num_accepted - 1)
        request.num_computed = end
        if num_drafts:
            request.num_scheduled = end  # nothing else of it is in flight while drafts are
            self._core.speculator.observe(request, num_drafts, num_accepted - 1)
        if index in result.drafts:
            request.drafts = result.drafts[index]
        self.num_prompt_tokens += max(0, min(end, request.num_prompt_tokens) - before)
        allocator, size = self._core.allocator, self._block_size
        if end // size > request.table.num_hashed_blocks:
            allocator.commit(request.table, request.token_ids, end)
        if end // size > before // size:
            allocator.trim(request.table, end)
        self._core.policy.on_tokens(request, end - advance.start, self._core.view)
        if advance.is_prompt_scored and not request.is_scored:
            if request.prompt_logprobs is None:
                request.prompt_logprobs = [None]
            request.prompt_logprobs.extend(result.prompt_logprobs.get(index, ()))
            request.is_scored = end >= request.num_prompt_tokens

    def _output(
        self,
        request: Request,
        token_ids: list[int],
        logprobs: list[TokenLogprobs] | None,
        reason: str | None,
    ) -> EngineOutput:
        """Return the news of newly sampled tokens, and end the request if there is a reason to."""
        output = EngineOutput(
            request.request_id,
            token_ids,
            logprobs=None if logprobs is None else logprobs[: len(token_ids)],
            num_cached_tokens=request.num_cached_tokens,
            finish_reason=reason,
        )
        if reason is not None:
            if reason == "stop" and token_ids[-1] in request.source.stop_token_ids:
                output.stop_reason = token_ids[-1]
            self._end(request, reason)
        return output

    @staticmethod
    def _stop_reason(request: Request, token_id: int) -> str | None:
        """Return why the request ends with this token, if it does."""
        source = request.source
        num_output = request.num_output_tokens
        # a grammar lets an end be drawn too early only where there is nothing else to say
        can_end = num_output >= source.params.min_tokens or source.grammar is not None
        if can_end and (token_id in source.eos_token_ids or token_id in source.stop_token_ids):
            return "stop"
        return "length" if num_output >= request.max_tokens else None
