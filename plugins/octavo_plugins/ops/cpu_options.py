"""The options of the `cpu` op set."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from octavo.plugin.options import ComponentOptions


class CpuOpsOptions(ComponentOptions):
    """How the `cpu` op set multiplies quantised weights."""

    mode: Literal["fast", "exact"] = Field(
        "fast",
        description="fast: activations are rounded to 8 bits, with a scale for each 32; "
        "exact: they stay float32",
    )
