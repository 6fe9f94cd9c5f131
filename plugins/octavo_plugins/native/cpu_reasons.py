"""Why `auto` takes neither the op set nor the attention `cpu` here.

Asking for the op set compiles the kernels where no cache holds them, which is done once. Imports
no torch.

Knows how the kernels are made. Does not know what they compute.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from octavo_kernels.cpu.build import built
from octavo_kernels.cpu.toolchain import BuildError

if TYPE_CHECKING:
    from octavo.config.auto import AutoContext

logger = logging.getLogger(__name__)

#: what the op set offers, so that the attention beside it is the kernels' as well
OFFER: Final = "cpu-kernels"


def why_not_ops(context: AutoContext) -> list[str]:
    """Return the reasons against the op set; empty when its kernels are compiled."""
    if context.is_offered("platform", "cuda"):
        return ["the platform keeps the buffers of a step on a device"]
    try:
        with built(progress=_tell) as library:
            if library.note:
                logger.warning("%s", library.note)
            return []
    except BuildError as error:
        reasons = str(error).splitlines()
        facts = "; ".join(reason.strip() for reason in reasons)
        logger.warning("torch computes, slowly, without the CPU kernels: %s", facts)
        return reasons


def why_not_attention(context: AutoContext) -> list[str]:
    """Return the reason against the attention; empty when the op set is that of the kernels."""
    return [] if context.is_offered("ops", OFFER) else ["the op set is another"]


def _tell(done: int, total: int) -> None:
    if done == 0:
        logger.warning("compiling the CPU kernels for this machine, once: about 10 s")
    elif done == total:
        logger.warning("the CPU kernels are compiled")
