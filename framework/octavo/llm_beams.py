"""`LLM.beam_search`: the likeliest texts after prompts.

Knows vLLM's names. Does not know how beams are searched (`octavo.frontend.beam_search`) or run.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from octavo.errors import RequestError
from octavo.frontend.beam_search import BeamSearch
from octavo.frontend.choice import logprobs_dict
from octavo.frontend.output_processor import OutputProcessor
from octavo.frontend.outputs import BeamSearchOutput, BeamSearchSequence
from octavo.frontend.preprocess import Call
from octavo.frontend.prompts import Prompt, is_single_prompt
from octavo.lora import adapters_of_each
from octavo.sampling_params import BeamSearchParams, RequestOutputKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from octavo.frontend.offline import Follower
    from octavo.frontend.outputs import CompletionOutput
    from octavo.frontend.preprocess import PreparedCall
    from octavo.interfaces.tokenizer import Tokenizer
    from octavo.local_model import LocalModel
    from octavo.lora import Adapters

F = TypeVar("F", bound="Follower")


class BeamMethods(ABC):
    """The method of an LLM that searches for texts, on top of one that runs calls."""

    _model: LocalModel

    def beam_search(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: BeamSearchParams,
        *,
        lora_request: Adapters | list[Adapters] = None,
        use_tqdm: bool = False,
        concurrency_limit: int | None = None,
    ) -> list[BeamSearchOutput]:
        """Return the likeliest texts after each prompt, in the order of the prompts, best first.

        Prompts and adapters are those of `generate`. All beams of all prompts run at once, or
        those of `concurrency_limit` prompts. With prefix caching, which is the default, a step
        computes the last tokens of each beam and no more.

        Raises as `generate` does. A prompt that fails while it runs has sequences whose
        `finish_reason` is "error"; the others are good.
        """
        is_one = is_single_prompt(prompts) or not hasattr(prompts, "__len__")
        many: Sequence[Any] = [prompts] if is_one else prompts  # type: ignore[assignment]
        adapters = adapters_of_each(lora_request, len(many))
        template = beam_search_call("", "", params)
        calls = [
            replace(template, request_id=self._next_id(), prompt=prompt, lora_request=adapters[i])
            for i, prompt in enumerate(many)
        ]
        at_once = _at_once(concurrency_limit, len(calls))
        tokenizer = self._model.tokenizer
        found: list[BeamSearchOutput] = []
        for start in range(0, len(calls), at_once):
            part = calls[start : start + at_once]
            follow = partial(BeamSearch, tokenizer=tokenizer)
            searches = self._follow(part, follow, use_tqdm=use_tqdm)
            found += [
                beam_search_output(search, call, tokenizer)
                for search, call in zip(searches, part, strict=True)
            ]
        return found

    @abstractmethod
    def _next_id(self) -> str:
        """Return an id for the next call."""

    @abstractmethod
    def _follow(
        self, asked: Sequence[Call], follow: Callable[[PreparedCall], F], *, use_tqdm: bool
    ) -> list[F]:
        """Run calls to their end, each with what follows it. Returns those in the same order."""


def beam_search_call(request_id: str, prompt: Prompt, params: BeamSearchParams) -> Call:
    """Return the call of one search. Raises RequestError for parameters of another kind.

    Special tokens are shown, as in vLLM.
    """
    if not isinstance(params, BeamSearchParams):
        raise RequestError(
            f"params must be a BeamSearchParams, not {type(params).__name__}", param="params"
        )
    return Call(
        request_id=request_id,
        prompt=prompt,
        params=params.sampling(skip_special_tokens=False),
        arrival_s=time.monotonic(),
        length_penalty=params.length_penalty,
    )


def beam_search_output(search: BeamSearch, call: Call, tokenizer: Tokenizer) -> BeamSearchOutput:
    """Return what a search that is over has found."""
    processor = OutputProcessor(search.call, tokenizer, kind=RequestOutputKind.FINAL_ONLY)
    for result in search.results():
        processor.absorb(result, time.monotonic())
    output = processor.take()
    assert output is not None  # noqa: S101 - every choice has ended
    prompt_ids = output.prompt_token_ids
    prompt = tokenizer.decode(prompt_ids, skip_special_tokens=False)
    sequences = [_sequence(one, prompt_ids, prompt, call) for one in output.outputs]
    for sequence, beam in zip(sequences, search.best, strict=False):  # none is best of a failure
        sequence.cum_logprob = beam.cum_logprob
        sequence.logprobs = [logprobs_dict(entry, tokenizer) for entry in beam.logprobs]
    return BeamSearchOutput(sequences)


def _sequence(
    one: CompletionOutput, prompt_ids: list[int], prompt: str, call: Call
) -> BeamSearchSequence:
    return BeamSearchSequence(
        tokens=[*prompt_ids, *one.token_ids],
        logprobs=[],
        text=prompt + one.text,
        finish_reason=one.finish_reason,
        stop_reason=one.stop_reason,
        error=one.error,
        lora_request=call.lora_request,
    )


def _at_once(limit: int | None, num_prompts: int) -> int:
    """Return how many prompts are searched at once."""
    if limit is not None and limit < 1:
        raise RequestError(
            f"concurrency_limit must be at least 1, not {limit}", param="concurrency_limit"
        )
    return max(1, num_prompts) if limit is None else limit
