"""Many measured values in a few numbers.

Knows numbers. Does not know what they measure.
"""

from __future__ import annotations

from statistics import fmean, quantiles
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

PERCENTILES: Final = (50, 90, 95, 99)


def summary(values: Sequence[float]) -> dict[str, float]:
    """Return the mean and the percentiles of some values; empty for none."""
    if not values:
        return {}
    cuts = quantiles(values, n=100, method="inclusive") if len(values) > 1 else [values[0]] * 99
    return {"mean": fmean(values), **{f"p{one}": cuts[one - 1] for one in PERCENTILES}}
