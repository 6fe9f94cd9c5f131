"""The logits of a tiny model as transformers computes them, where it is installed.

Knows transformers' automatic classes. Does not know any family.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

import torch

from octavo.testing.invariants import PromiseBroken

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.testing.tensors.model_cases import Case


class NotComparable(Exception):  # noqa: N818 - it is no fault of anybody
    """There is nothing to compare with; the message says why."""


@torch.no_grad()
def transformers_logits(case: Case, prompt: list[int]) -> tuple[dict[str, Tensor], Tensor]:
    """Return the weights that a model of this config has, and its logits [tokens, vocab].

    Optional tensors that transformers' model lacks are left out of the weights. Raises
    NotComparable without transformers, or when it has no such model type, and PromiseBroken when
    its model has other tensors than the family names.
    """
    twin = _twin(case)
    kept, wanted = twin.state_dict(), dict(case.tensors)
    optional = {s for spec in case.empty().parameters() if spec.is_optional for s in spec.sources}
    tensors = {n: t for n, t in wanted.items() if n in kept or n not in optional}
    done = twin.load_state_dict(tensors, strict=False)
    tied = set(getattr(twin, "all_tied_weights_keys", None) or twin._tied_weights_keys or ())  # noqa: SLF001 - the older name
    missing = [name for name in done.missing_keys if name not in tied]
    if missing or done.unexpected_keys:
        wrong = [*missing, *done.unexpected_keys][0]
        side = "is not named by the family" if missing else "is unknown to transformers"
        raise PromiseBroken(f"{case}: the tensor {wrong} {side}")
    twin.tie_weights()
    logits: Tensor = twin(torch.tensor([prompt])).logits[0]
    return tensors, logits


def _twin(case: Case) -> Any:
    """Return transformers' model of a config, with weights of its own."""
    if importlib.util.find_spec("transformers") is None:
        raise NotComparable("transformers is not installed")
    transformers = importlib.import_module("transformers")
    model_type = case.config.get("model_type")
    known = transformers.CONFIG_MAPPING
    if model_type not in known:
        raise NotComparable(f"transformers has no model type {model_type!r}")
    config = known[model_type].from_dict(dict(case.config))
    with torch.random.fork_rng(devices=[]):
        made = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    return made.eval()
