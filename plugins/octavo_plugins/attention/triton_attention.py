"""The `triton` attention: keys and values in plain tensors, Triton kernels over them.

Knows the attention interface and the Triton kernels. Does not know layers, models or requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from octavo.errors import UnsupportedError
from octavo_kernels.triton.attention import num_programs_for, paged_attention, write_kv
from octavo_kernels.triton.attention_plan import TritonPlan
from octavo_kernels.triton.devices import (
    HOW_TO_INTERPRET,
    device_name,
    is_interpreted,
    why_not,
)
from octavo_plugins.attention.paged_tensors import PagedTensorAttention

if TYPE_CHECKING:
    from octavo.interfaces.attention import CacheSpec
    from octavo_kernels.reference.attention_plan import RaggedBatch

_DTYPES: Final = ("float32", "float16", "bfloat16")
# The interpreter's products of bfloat16 are wrong (Triton 3.9).
_INTERPRETED_DTYPES: Final = ("float32", "float16")


class TritonAttention(PagedTensorAttention):
    """Attention by Triton.

    A token's bits depend on its sequence alone: not on the batch, the chunk or prefix hits.
    Raises UnsupportedError where Triton can run nothing.
    """

    write_kv = staticmethod(write_kv)
    paged_attention = staticmethod(paged_attention)

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        if reasons := why_not():
            raise UnsupportedError(
                "the attention 'triton' cannot run here", *reasons, HOW_TO_INTERPRET
            )
        self.device = torch.device(device_name())
        self._num_programs = num_programs_for(self.device)

    def cache_dtype(self, spec: CacheSpec) -> torch.dtype:
        """Return the dtype of a layer's cache. Raises UnsupportedError for one it cannot have."""
        known = _INTERPRETED_DTYPES if is_interpreted() else _DTYPES
        if spec.dtype not in known:
            raise UnsupportedError(
                f"the triton attention cannot keep a cache of dtype '{spec.dtype}'",
                f"dtypes it takes: {', '.join(known)}",
                "the interpreter's products of bfloat16 are wrong" if is_interpreted() else "",
            )
        dtype: torch.dtype = getattr(torch, spec.dtype)
        return dtype

    def plan(self, batch: RaggedBatch) -> TritonPlan:
        """Note the lengths; the work is dealt out once for each window that layers use."""
        return TritonPlan(batch, self._num_programs, self.workspace)
