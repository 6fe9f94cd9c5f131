"""Logits processors: a caller's own Python, run on its own row.

Knows callables and logits. Does not know rows or batches. What a processor raises is the error
of its request.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

_WITH_PROMPT = 3  # f(prompt_ids, output_ids, logits)


def apply_processors(
    processors: Sequence[Callable[..., Any]],
    logits: Tensor,  # [vocab], written in place
    prompt_ids: list[int],
    output_ids: list[int],
) -> None:
    """Run the processors in order. Each returns logits [vocab], or None after editing in place."""
    for processor in processors:
        if num_parameters(processor) >= _WITH_PROMPT:
            edited = processor(prompt_ids, output_ids, logits)
        else:
            edited = processor(output_ids, logits)
        if edited is None or edited is logits:
            continue
        if tuple(edited.shape) != tuple(logits.shape):
            raise ValueError(
                f"a logits processor returned shape {tuple(edited.shape)}, "
                f"not {tuple(logits.shape)}"
            )
        logits.copy_(edited)


def num_parameters(processor: Callable[..., Any]) -> int:
    """Return how many positional arguments a processor takes (2 when that cannot be told)."""
    try:
        parameters = inspect.signature(processor).parameters.values()
    except (TypeError, ValueError):
        return 2
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in kinds for parameter in parameters)
