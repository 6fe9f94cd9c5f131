"""What a request may tell scheduling policies. Does not know the policies; the server reads it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from octavo.plugin.options import RequestParams


class ServiceParams(RequestParams):
    """Parameters of `qos`."""

    service_class: Literal["interactive", "standard", "batch"] = Field(
        "standard", description="how urgent the request is"
    )


class DeadlineParams(ServiceParams):
    """Parameters of `deadline`."""

    ttft_ms: float | None = Field(
        None, gt=0, le=1e9, description="when the first token is due after the request's arrival"
    )
