"""`LLM.embed`, `LLM.encode` and `LLM.score`: vectors of prompts, and how alike they are.

Knows vLLM's names. Does not know how prompts are run, or which hidden states vectors are made of.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from octavo.errors import RequestError, UnsupportedError
from octavo.frontend.pooling import pooling_plan
from octavo.frontend.pooling_outputs import (
    EmbeddingRequestOutput,
    PoolingRequestOutput,
    ScoringRequestOutput,
)
from octavo.frontend.preprocess import Call
from octavo.frontend.prompts import Prompt, is_single_prompt
from octavo.lora import adapters_of_each
from octavo.pooling_params import PoolingParams

if TYPE_CHECKING:
    from octavo.frontend.outputs import RequestOutput
    from octavo.frontend.pooling import PoolingPlan
    from octavo.local_model import LocalModel
    from octavo.lora import Adapters

#: what `encode` can be asked for; the others need heads or whole matrices of hidden states
_TASKS: Final = frozenset({None, "embed"})


class PoolingMethods(ABC):
    """The methods of an LLM that return vectors, on top of one that runs calls."""

    _model: LocalModel

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        pooling_params: PoolingParams | Sequence[PoolingParams] | None = None,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: bool = True,
        lora_request: Adapters | list[Adapters] = None,
    ) -> list[EmbeddingRequestOutput]:
        """Return a vector for each prompt, in their order, as lists of numbers.

        Any model can be asked: a vector is made of its final hidden states, as the model's files
        say or `PoolingParams` do. Prompts are those of `generate`; what the tokenizer puts around
        a text, such as an end that the model was trained to sum up at, counts as its tokens.

        Raises RequestError for a bad prompt or parameter before anything runs, and
        RequestFailedError when the engine gives up on a prompt.
        """
        pooled = self.encode(
            prompts,
            pooling_params,
            truncate_prompt_tokens=truncate_prompt_tokens,
            use_tqdm=use_tqdm,
            lora_request=lora_request,
        )
        return [EmbeddingRequestOutput.of(one) for one in pooled]

    def encode(
        self,
        prompts: Prompt | Sequence[Prompt],
        pooling_params: PoolingParams | Sequence[PoolingParams] | None = None,
        *,
        pooling_task: str | None = None,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: bool = True,
        lora_request: Adapters | list[Adapters] = None,
    ) -> list[PoolingRequestOutput]:
        """Return a vector for each prompt as `embed` does, as numpy arrays (`outputs.data`).

        Raises UnsupportedError for a `pooling_task` other than "embed".
        """
        if pooling_task not in _TASKS:
            raise UnsupportedError(
                f"pooling_task {pooling_task!r:.80} is not done here",
                "leave it out, or say 'embed'",
            )
        is_one = is_single_prompt(prompts) or not hasattr(prompts, "__len__")
        many: Sequence[Any] = [prompts] if is_one else prompts  # type: ignore[assignment]
        adapters = adapters_of_each(lora_request, len(many))
        params = one_each("pooling_params", pooling_params, len(many))
        plans = self._plans(params, truncate_prompt_tokens)
        calls = [
            Call(
                request_id=self._next_id(),
                prompt=prompt,
                params=plans[i].sampling,
                arrival_s=time.monotonic(),
                lora_request=adapters[i],
                pooling=plans[i],
            )
            for i, prompt in enumerate(many)
        ]
        outputs = self._run_calls(calls, use_tqdm=use_tqdm)
        return [
            PoolingRequestOutput.of(output, plan)
            for output, plan in zip(outputs, plans, strict=True)
        ]

    def score(
        self,
        text_1: Prompt | Sequence[Prompt],
        text_2: Prompt | Sequence[Prompt],
        *,
        pooling_params: PoolingParams | None = None,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: bool = True,
        lora_request: Adapters = None,
    ) -> list[ScoringRequestOutput]:
        """Return how alike texts are, by the cosine of their vectors: -1 to 1.

        One `text_1` is compared with every `text_2`; of two lists of one length, each with its
        partner. Raises as `embed` does.
        """
        ones, others = _as_list(text_1), _as_list(text_2)
        if len(ones) not in {1, len(others)} or not others:
            raise RequestError(
                f"{len(ones)} texts cannot be compared with {len(others)}",
                "give one, or one for each",
                param="text_1",
            )
        pooled = self.encode(
            [*ones, *others],
            pooling_params,
            truncate_prompt_tokens=truncate_prompt_tokens,
            use_tqdm=use_tqdm,
            lora_request=lora_request,
        )
        first, second = pooled[: len(ones)], pooled[len(ones) :]
        pairs = zip(first * (len(second) // len(first)), second, strict=True)
        return [ScoringRequestOutput.of(one, other) for one, other in pairs]

    def _plans(
        self, params: Sequence[PoolingParams | None], num_kept: int | None
    ) -> list[PoolingPlan]:
        """Return a plan for each; those with the same parameters share it, and its checks."""
        checks = self._model.preprocessor
        made: dict[int, PoolingPlan] = {}
        for i, one in enumerate(params):
            if id(one) not in made:
                with naming(f"prompt {i}"):
                    asked = _truncated(one, num_kept)
                    made[id(one)] = pooling_plan(asked, checks.defaults.pooling, checks.info)
        return [made[id(one)] for one in params]

    @abstractmethod
    def _next_id(self) -> str:
        """Return an id for the next call."""

    @abstractmethod
    def _run_calls(self, asked: Sequence[Call], *, use_tqdm: bool) -> list[RequestOutput]:
        """Run calls to their end. Returns their outputs in the same order."""


def _as_list(texts: Any) -> list[Any]:
    return [texts] if is_single_prompt(texts) else list(texts)


def _truncated(params: PoolingParams | None, num_tokens: int | None) -> PoolingParams | None:
    """Return parameters with a truncation that was given beside them."""
    if num_tokens is None:
        return params
    return replace(params or PoolingParams(), truncate_prompt_tokens=num_tokens)


@contextmanager
def naming(which: str) -> Iterator[None]:
    """Say in a RequestError which of many it is about."""
    try:
        yield
    except RequestError as error:
        headline = f"{which}: {error.headline}"
        raise RequestError(headline, *error.facts, param=error.param) from error


def one_each(name: str, value: Any, num_prompts: int) -> Sequence[Any]:
    """Return one value for each prompt. Raises RequestError when a list has another length."""
    if not isinstance(value, Sequence):
        return [value] * num_prompts
    if len(value) != num_prompts:
        raise RequestError(
            f"{num_prompts} prompts, but {len(value)} {name}: give one, or one for each prompt",
            param=name,
        )
    return value
