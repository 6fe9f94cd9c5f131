"""What a caller gets back of vectors: vLLM's output classes, field by field.

Knows names and meanings, and how each is made of a vector. Does not know where vectors come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.frontend.vectors import similarity, vector_of

if TYPE_CHECKING:
    from octavo.frontend.outputs import RequestOutput
    from octavo.frontend.pooling import PoolingPlan

__all__ = [
    "EmbeddingOutput",
    "EmbeddingRequestOutput",
    "PoolingOutput",
    "PoolingRequestOutput",
    "ScoringOutput",
    "ScoringRequestOutput",
]


@dataclass(slots=True)
class PoolingOutput:
    """A vector as an array: numpy float32 [dimensions]."""

    data: Any


@dataclass(slots=True)
class EmbeddingOutput:
    """A vector as a list of numbers."""

    embedding: list[float]

    @property
    def hidden_size(self) -> int:
        """Return how many numbers the vector has."""
        return len(self.embedding)


@dataclass(slots=True)
class ScoringOutput:
    """How alike two texts are: the cosine of their vectors, -1 to 1."""

    score: float


@dataclass(slots=True)
class PoolingRequestOutput:
    """One prompt's vector. `num_cached_tokens`: how many of its tokens a cache already had."""

    request_id: str
    outputs: PoolingOutput
    prompt_token_ids: list[int]
    num_cached_tokens: int = 0
    finished: bool = True

    @classmethod
    def of(cls, output: RequestOutput, plan: PoolingPlan) -> PoolingRequestOutput:
        """Return the vector of a prompt that has ended. Raises as `vector_of` does."""
        data = PoolingOutput(vector_of(output, plan))
        ids = output.prompt_token_ids
        return cls(output.request_id, data, ids, output.num_cached_tokens)


@dataclass(slots=True)
class EmbeddingRequestOutput:
    """One prompt's vector; fields as in `PoolingRequestOutput`."""

    request_id: str
    outputs: EmbeddingOutput
    prompt_token_ids: list[int]
    num_cached_tokens: int = 0
    finished: bool = True

    @classmethod
    def of(cls, pooled: PoolingRequestOutput) -> EmbeddingRequestOutput:
        """Return a vector as a list of numbers."""
        data = EmbeddingOutput(pooled.outputs.data.tolist())
        return cls(pooled.request_id, data, pooled.prompt_token_ids, pooled.num_cached_tokens)


@dataclass(slots=True)
class ScoringRequestOutput:
    """How alike two texts are; `prompt_token_ids` are those of both, one after the other."""

    request_id: str
    outputs: ScoringOutput
    prompt_token_ids: list[int]
    num_cached_tokens: int = 0
    finished: bool = True

    @classmethod
    def of(cls, one: PoolingRequestOutput, other: PoolingRequestOutput) -> ScoringRequestOutput:
        """Return how alike two prompts are, by their vectors."""
        score = similarity(one.outputs.data, other.outputs.data)
        return cls(
            f"{one.request_id}_{other.request_id}",
            ScoringOutput(score),
            one.prompt_token_ids + other.prompt_token_ids,
            one.num_cached_tokens + other.num_cached_tokens,
        )
