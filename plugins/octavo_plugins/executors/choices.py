"""Why `auto` does not choose an executor. Knows settings; imports nothing that runs a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.config.auto import AutoContext


def inline_why_not(context: AutoContext) -> list[str]:
    """One process is no place for several ranks."""
    size = context.engine.tensor_parallel_size
    return [] if size == 1 else [f"it is one process, and tensor-parallel-size is {size}"]


def ranks_why_not(context: AutoContext) -> list[str]:
    """A model that is not split needs no other processes."""
    is_split = context.engine.tensor_parallel_size > 1
    return [] if is_split else ["tensor-parallel-size is 1"]


def simulated_why_not(context: AutoContext) -> list[str]:
    """Nobody gets made-up text unasked."""
    del context
    return ["it makes up text, so that it must be asked for by name"]
