"""`LoRARequest`: which adapter a request is to be run with, in vLLM's form; and adapters by name.

Knows names, paths and scales. Does not know files or how adapters are applied.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from octavo.errors import RequestError
from octavo.interfaces.adapter import AdapterSpec, AdapterUse

#: far above what any adapter is of use with, and far from what float32 cannot hold
MAX_SCALE: Final = 1000.0


@dataclass(frozen=True, slots=True)
class LoRARequest:
    """An adapter: a folder with its files, under a name of the caller's own.

    `scale` multiplies what the adapter changes, beside the factor in its own files: 0 is the model
    alone, and MAX_SCALE the most to either side. `lora_int_id` is taken for programs written for
    vLLM, where it tells adapters apart; here the content of their files does. Where there is a
    `root`, no file may lie outside of that folder.

    Raises RequestError, a ValueError, for values that can be none of these.
    """

    lora_name: str
    lora_int_id: int = 1
    lora_path: str = ""
    scale: float = 1.0
    root: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        name, number, path, scale = self._as_given()
        if not isinstance(name, str) or not name:
            raise _refused(f"lora_name must be a text, and not empty: {name!r:.80}")
        if not isinstance(number, int) or number < 1:
            raise _refused(f"lora_int_id must be a number above 0, not {number!r:.80}")
        if not isinstance(path, str | Path) or not str(path):
            raise _refused(f"lora_path must be the path of a folder, not {path!r:.80}")
        is_number = isinstance(scale, int | float) and not isinstance(scale, bool)
        if not is_number or not abs(scale) <= MAX_SCALE:  # NaN is not at most anything
            raise _refused(
                f"the scale of adapter '{name:.80}' must be a number from {-MAX_SCALE:g} to "
                f"{MAX_SCALE:g}, not {scale!r:.80}"
            )

    def _as_given(self) -> tuple[Any, ...]:
        """Return the values as what they may be: anything."""
        return self.lora_name, self.lora_int_id, self.lora_path, self.scale

    @property
    def use(self) -> AdapterUse:
        """Return what the engine is told: the path is made absolute here and now."""
        path = Path(self.lora_path).expanduser().absolute()
        return AdapterUse(AdapterSpec(self.lora_name, str(path), self.root), float(self.scale))


@dataclass(frozen=True, slots=True)
class LoraModule:
    """An adapter that is served under a name, as `--lora-modules` gives it.

    Where there is a `root`, no file may lie outside of that folder.
    """

    name: str
    path: str
    base_model_name: str | None = None
    root: str | None = None


def lora_module(text: str) -> LoraModule:
    """Return the adapter in `name=path`, or in a JSON object with `name` and `path`.

    Raises ValueError for anything else.
    """
    if not text.lstrip().startswith("{"):
        name, equals, path = text.partition("=")
        if not (name.strip() and equals and path.strip()):
            raise ValueError(f"an adapter is given as name=path, or as a JSON object: {text!r:.80}")
        return LoraModule(name.strip(), path.strip())
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{text!r:.80} is no valid JSON: {error}") from error
    known = {"name", "path", "base_model_name"}
    values = [fields.get("name"), fields.get("path"), fields.get("base_model_name") or "any"]
    if set(fields) - known or not all(isinstance(one, str) and one for one in values):
        raise ValueError(
            f"{text!r:.80} must hold the texts name and path, and may hold base_model_name"
        )
    return LoraModule(**fields)


def lora_modules(texts: Sequence[str]) -> tuple[LoraModule, ...]:
    """Return several adapters of different names. Raises ValueError."""
    modules = tuple(lora_module(text) for text in texts)
    names = [module.name for module in modules]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two adapters have the name '{twice}'")
    return modules


#: the adapters of one prompt: none, one, or several whose changes add up
Adapters: TypeAlias = LoRARequest | Sequence[LoRARequest] | None


def adapter_uses(adapters: Any) -> tuple[AdapterUse, ...]:
    """Return the uses of one prompt's adapters. Raises RequestError for anything else."""
    if adapters is None:
        return ()
    blend = (adapters,) if isinstance(adapters, LoRARequest) else adapters
    if not isinstance(blend, Sequence) or not all(isinstance(one, LoRARequest) for one in blend):
        raise _refused(
            f"lora_request must be a LoRARequest or a list of them, not {adapters!r:.80}"
        )
    names = [one.lora_name for one in blend]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise _refused(f"adapter '{twice}' is named twice: add up its scales")
    return tuple(one.use for one in blend)


def adapters_of_each(adapters: Any, num_prompts: int) -> list[Adapters]:
    """Return the adapters of each of several prompts.

    A list has one entry for each prompt; an entry, or a tuple for all of them, may be a blend.
    Raises RequestError when a list has another length.
    """
    if not isinstance(adapters, list):
        return [adapters] * num_prompts
    if len(adapters) != num_prompts:
        raise _refused(
            f"{num_prompts} prompts, but {len(adapters)} lora_request: "
            "give one, or one for each prompt; a tuple is a blend for all of them"
        )
    return adapters


def _refused(headline: str) -> RequestError:
    return RequestError(headline, param="lora_request")
