"""The `triton` attention: keys and values in plain tensors, Triton kernels over them.

Knows the attention interface and the Triton kernels. Does not know layers, models or requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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
    from octavo_kernels.reference.attention_plan import RaggedBatch
    from octavo_plugins.attention.cache_options import TensorAttentionOptions

_DTYPES: Final = ("float32", "float16", "bfloat16")
# The interpreter's products of bfloat16 are wrong (Triton 3.9).
_INTERPRETED_DTYPES: Final = ("float32", "float16")


class TritonAttention(PagedTensorAttention):
    """Attention by Triton.

    A token's bits depend on its sequence alone: not on the batch, the chunk or prefix hits.
    Raises UnsupportedError where Triton can run nothing.
    """

    name = "triton"
    write_kv = staticmethod(write_kv)
    paged_attention = staticmethod(paged_attention)

    def __init__(self, options: TensorAttentionOptions | None = None) -> None:
        super().__init__(options)
        if reasons := why_not():
            raise UnsupportedError(
                "the attention 'triton' cannot run here", *reasons, HOW_TO_INTERPRET
            )
        self.device = torch.device(device_name())
        self._num_programs = num_programs_for(self.device)

    def dtypes(self) -> tuple[str, ...]:
        """Return what the kernels take here."""
        return _INTERPRETED_DTYPES if is_interpreted() else _DTYPES

    def why_not_others(self) -> str:
        """Return why bfloat16 is missing where it is."""
        return "the interpreter's products of bfloat16 are wrong" if is_interpreted() else ""

    def plan(self, batch: RaggedBatch) -> TritonPlan:
        """Note the lengths; the work is dealt out once for each window that layers use."""
        return TritonPlan(batch, self._num_programs, self.workspace)
