"""The `torch` attention: keys and values in plain tensors, the reference kernels over them.

Knows the attention interface and the reference kernels. Does not know layers, models or requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo_kernels.reference.attention import paged_attention
from octavo_kernels.reference.attention_plan import AttentionPlan
from octavo_kernels.reference.kv_cache import write_kv
from octavo_plugins.attention.paged_tensors import PagedTensorAttention

if TYPE_CHECKING:
    from octavo_kernels.reference.attention_plan import RaggedBatch

_DTYPES = ("float32", "float64", "float16", "bfloat16")


class TorchAttention(PagedTensorAttention):
    """Attention by torch operations."""

    name = "torch"
    write_kv = staticmethod(write_kv)
    paged_attention = staticmethod(paged_attention)

    def dtypes(self) -> tuple[str, ...]:
        """Return what torch multiplies."""
        return _DTYPES

    def plan(self, batch: RaggedBatch) -> AttentionPlan:
        """Note who reads which slots; worked out once for each window that layers use."""
        return AttentionPlan(batch, self.workspace)
