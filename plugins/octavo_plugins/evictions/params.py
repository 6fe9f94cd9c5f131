"""What a request may tell eviction orders. Does not know the orders; the server reads it."""

from __future__ import annotations

from pydantic import Field

from octavo.plugin.options import RequestParams


class RetentionParams(RequestParams):
    """Parameters of `retention`: how dear the blocks are that the request computes or hits."""

    retention_priority: int | None = Field(
        None, ge=0, le=100, description="blocks of lower priority go first; others have 35"
    )
    retention_s: float | None = Field(
        None, gt=0, le=1e7, description="seconds after which the blocks are like all others"
    )
