"""Which class serves a config, for tests that build models without an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.execution.loader import load_parameters
from octavo_plugins.architectures.gemma import Gemma
from octavo_plugins.architectures.linear_hybrid import LinearHybrid
from octavo_plugins.architectures.llama import Llama

if TYPE_CHECKING:
    from octavo.interfaces.attention import Attention
    from octavo.interfaces.ops import OpSet
    from octavo.interfaces.weights import Checkpoint

CLASSES = (Llama, Gemma, LinearHybrid)


def load_model(checkpoint: Checkpoint, ops: OpSet, attention: Attention) -> Any:
    """Return the model of a checkpoint, loaded."""
    (name,) = checkpoint.config["architectures"]
    family = next(one for one in CLASSES if name in one.served)
    model = family(checkpoint.config, ops, attention)
    load_parameters(model, checkpoint)
    return model
