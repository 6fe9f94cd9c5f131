"""Costs of steps: linear between what was measured, and the inverse of that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.engine.budget import Limits, StepBudget
from octavo.interfaces.executor import StepCosts

COSTS = StepCosts(((1, 50.0), (16, 110.0), (128, 222.0)))


@pytest.mark.parametrize(
    ("num_tokens", "expected_ms"),
    [(0, 46.0), (1, 50.0), (6, 70.0), (16, 110.0), (72, 166.0), (128, 222.0), (228, 322.0)],
)
def test_cost_is_linear_between_the_points_and_beyond(num_tokens: int, expected_ms: float) -> None:
    assert COSTS.predict_ms(num_tokens) == pytest.approx(expected_ms)


def test_context_comes_on_top_by_pairs() -> None:
    costs = StepCosts(COSTS.points, per_context_ms=0.001)
    assert costs.predict_ms(16, num_pairs=16 * 1000) == pytest.approx(110 + 16)


def budget(costs: StepCosts, limit_ms: float) -> StepBudget:
    return StepBudget(Limits(8, 4096, limit_ms, 16, 9000, 10), costs)


@given(
    steps=st.lists(st.tuples(st.integers(1, 50), st.floats(0.01, 9)), min_size=1, max_size=4),
    limit_ms=st.floats(20, 500),
    used=st.integers(2, 40),
    context=st.integers(0, 8000),
)
def test_what_fits_fits_and_one_more_does_not(
    steps: list[tuple[int, float]], limit_ms: float, used: int, context: int
) -> None:
    points = [(1, 5.0)]
    for tokens, ms in steps:
        points.append((points[-1][0] + tokens, points[-1][1] + ms))
    costs = StepCosts(tuple(points), per_context_ms=1e-4)
    one = budget(costs, limit_ms)
    one.take(used, 100)
    room = one.room_for_chunk(context)
    assert 0 <= room <= 4096 - used

    def predict(num_tokens: int) -> float:
        return costs.predict_ms(used + num_tokens, used * 100 + num_tokens * context)

    assert room == 0 or predict(room) <= limit_ms + 1e-3
    assert room == 4096 - used or predict(room + 1) > limit_ms - 1e-3
    one.give_back(used, 100)
    assert (one.used_pairs, one.used_tokens, one.num_seqs) == (0, 0, 0)


def test_chunks_shrink_as_the_context_grows() -> None:
    costs = StepCosts(COSTS.points, per_context_ms=0.0002)
    rooms = [budget(costs, 250.0).room_for_chunk(context) for context in (0, 1000, 4000, 8000)]
    assert rooms == sorted(rooms, reverse=True)
    assert rooms[0] > 1.5 * rooms[-1]
