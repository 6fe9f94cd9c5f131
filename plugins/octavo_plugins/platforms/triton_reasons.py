"""Why `auto` takes neither the op set nor the attention `triton` here.

Imports neither torch nor Triton.

Knows the platform that was chosen, and what the drivers leave on this machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo_kernels.triton.devices import why_no_gpu

if TYPE_CHECKING:
    from octavo.config.auto import AutoContext


def why_not(context: AutoContext) -> list[str]:
    """Return the reasons; empty when there is a GPU and the step's buffers are on it."""
    reasons = why_no_gpu()
    if not context.is_offered("platform", "cuda"):
        reasons.append("the platform keeps the buffers of a step in main memory")
    return reasons
