"""Vectors of prompts: cut, brought to length 1, compared.

Knows numbers. Does not know which hidden states a vector was made of.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from octavo.errors import RequestError, RequestFailedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from octavo.frontend.outputs import RequestOutput
    from octavo.frontend.pooling import PoolingPlan


def vector_of(output: RequestOutput, plan: PoolingPlan) -> NDArray[np.float32]:
    """Return the vector of a prompt that has ended: little-endian float32 [dimensions].

    Raises RequestFailedError when the engine gave up on it, RequestError for more dimensions than
    the model has.
    """
    pooled = output.pooled
    if pooled is None:
        headline, *facts = (output.outputs[0].error or "the engine gave no vector").split("\n")
        raise RequestFailedError(headline, *(fact.strip() for fact in facts))
    vector = np.frombuffer(pooled, "<f4")
    if plan.dimensions is not None:
        if plan.dimensions > len(vector):
            raise RequestError(
                f"dimensions must be at most {len(vector)}, not {plan.dimensions}",
                param="dimensions",
            )
        vector = vector[: plan.dimensions]
    return _unit(vector) if plan.is_normalized else vector


def similarity(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """Return the cosine of the angle between two vectors; 0 where one is all zero."""
    return float(np.dot(_direction(a), _direction(b)))


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    return _direction(vector).astype("<f4")


def _direction(vector: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = vector.astype(np.float64)
    length = math.sqrt(float(np.dot(wide, wide)))
    return wide / length if length > 0 else wide
