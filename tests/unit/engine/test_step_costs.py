"""Costs of steps: linear between what was measured, and the inverse of that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.interfaces.executor import StepCosts

COSTS = StepCosts(((1, 50.0), (16, 110.0), (128, 222.0)))


@pytest.mark.parametrize(
    ("num_tokens", "expected_ms"),
    [(0, 46.0), (1, 50.0), (6, 70.0), (16, 110.0), (72, 166.0), (128, 222.0), (228, 322.0)],
)
def test_cost_is_linear_between_the_points_and_beyond(num_tokens: int, expected_ms: float) -> None:
    assert COSTS.predict_ms(num_tokens) == pytest.approx(expected_ms)


@given(
    steps=st.lists(st.tuples(st.integers(1, 50), st.floats(0.01, 9)), min_size=1, max_size=4),
    limit_ms=st.floats(0, 500),
)
def test_what_fits_fits_and_one_more_does_not(
    steps: list[tuple[int, float]], limit_ms: float
) -> None:
    points = [(1, 5.0)]
    for tokens, ms in steps:
        points.append((points[-1][0] + tokens, points[-1][1] + ms))
    costs = StepCosts(tuple(points))
    num_tokens = costs.num_tokens_within(limit_ms)
    if num_tokens == 0:
        assert limit_ms < costs.predict_ms(1)
    else:
        assert costs.predict_ms(num_tokens) <= limit_ms + 1e-3
        assert costs.predict_ms(num_tokens + 1) > limit_ms - 1e-3
