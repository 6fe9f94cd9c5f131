"""The options of the stock attention back ends: what keys and values are kept as.

Knows the names of number types, vLLM's among them. Does not know kernels.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from octavo.plugin.options import ComponentOptions


def _with_reason(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Validate; say more than what is valid when it is one of vLLM's names of 8-bit floats."""
    try:
        return validate(value)
    except ValidationError as error:
        if not str(value).startswith("fp8"):
            raise
        reason = "no kernel here reads floats of 8 bits; int8, by attention 'cpu', is as small"
        text = f"{error.errors()[0]['msg']}: {reason}"
        raise ValueError(text) from None


class CpuAttentionOptions(ComponentOptions):
    """How the `cpu` attention keeps keys and values."""

    cache_dtype: Annotated[
        Literal["auto", "float32", "float16", "int8", "int4"], WrapValidator(_with_reason)
    ] = Field(
        "auto",
        description="what keys and values are kept as; int8: codes of 8 bits, with a scale for "
        "each token and head; int4: the same for keys, 4 bits for values; auto: int8 for "
        "quantised weights, float32 otherwise and where the ops are exact",
    )


class TensorAttentionOptions(ComponentOptions):
    """How an attention over plain tensors keeps keys and values."""

    cache_dtype: Annotated[
        Literal["auto", "float32", "float16", "bfloat16"], WrapValidator(_with_reason)
    ] = Field(
        "auto",
        description="what keys and values are kept as: the dtype of the activations, which is "
        "what auto takes; another is refused",
    )
