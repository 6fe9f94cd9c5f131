"""The tokens of one answer, over all its prompts and choices.

Knows outputs. Does not know how an API writes its usage.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.frontend.outputs import RequestOutput
    from octavo.serving.generation import Generation


@dataclass(slots=True)
class TokenCounter:
    """Counts the tokens of one answer. A prompt counts once however many choices it has."""

    generation: Generation
    _completion: dict[tuple[int, int], int] = field(default_factory=dict)
    _cached: dict[int, int] = field(default_factory=dict)

    def take(self, index: int, output: RequestOutput) -> None:
        """Note what is new of prompt number `index`."""
        self._cached[index] = output.num_cached_tokens
        for one in output.outputs:
            self._completion[index, one.index] = one.num_tokens

    @property
    def num_prompt_tokens(self) -> int:
        """Return how many tokens all prompts have."""
        return sum(len(call.prompt_token_ids) for call in self.generation.calls)

    @property
    def num_completion_tokens(self) -> int:
        """Return how many tokens all choices have so far."""
        return sum(self._completion.values())

    @property
    def num_cached_tokens(self) -> int:
        """Return how many tokens of the prompts were found in the prefix cache."""
        return sum(self._cached.values())
