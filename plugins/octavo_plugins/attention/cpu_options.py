"""The options of the `cpu` attention."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from octavo.plugin.options import ComponentOptions


class CpuAttentionOptions(ComponentOptions):
    """How the `cpu` attention keeps keys and values."""

    cache_dtype: Literal["auto", "float32", "float16", "int8", "int4"] = Field(
        "auto",
        description="what keys and values are kept as; int8: codes of 8 bits, with a scale for "
        "each token and head; int4: the same for keys, 4 bits for values; auto: int8 for "
        "quantised weights, float32 otherwise and where the ops are exact",
    )
