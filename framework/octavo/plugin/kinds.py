"""The table of kinds: what each decides, its hook, and how many of it are in use at once.

Knows names only. Does not know any interface or component. A kind has one row here, one hook
in `octavo.hookspecs` and one module in `octavo.interfaces`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of component.

    `mode` is "one" when exactly one is in use (a scheduler), "set" when all that are loaded may
    be (dialects), each picked by what it is asked for. `default` is what is used when nothing
    is configured: a name, "auto", or "all" for a set. `api` is the version of the interface, and
    `oldest_api` that of the oldest one for which components are still taken, with a warning.
    """

    name: str
    hook: str
    decides: str
    default: str
    mode: Literal["one", "set"] = "one"
    api: int = 1
    oldest_api: int = 1

    @property
    def interface(self) -> str:
        """The class whose methods a component of this kind has, as a target."""
        return f"octavo.interfaces.{_INTERFACES[self.name]}"

    @property
    def plural(self) -> str:
        """The kind's name for more than one, as its hook has it."""
        return self.hook.removeprefix("octavo_").replace("_", " ")


_INTERFACES: Mapping[str, str] = MappingProxyType(
    {
        "platform": "platform:Platform",
        "ops": "ops:OpSet",
        "attention": "attention:Attention",
        "executor": "executor:Executor",
        "scheduler": "scheduler:SchedulerPolicy",
        "allocator": "allocator:Allocator",
        "eviction": "eviction:Eviction",
        "sampler-stage": "sampler:SamplerStage",
        "proposer": "proposer:Proposer",
        "grammar": "grammar:GrammarBackend",
        "adapter": "adapter:AdapterFormat",
        "architecture": "architecture:Architecture",
        "weights": "weights:WeightsFormat",
        "source": "source:ModelSource",
        "tokenizer": "tokenizer:TokenizerFormat",
        "parser": "parser:Parser",
        "dialect": "dialect:Dialect",
    }
)

_ROWS = (
    # In the order of resolution: an `auto` choice may look at the choices above it.
    Kind("platform", "octavo_platforms", "device facts and memory budget", "auto"),
    Kind("ops", "octavo_ops", "which implementation computes", "auto"),
    Kind("attention", "octavo_attention", "attention over blocks of KV", "auto"),
    Kind("executor", "octavo_executors", "where the model runs", "auto"),
    Kind("scheduler", "octavo_schedulers", "whose turn it is", "fcfs"),
    Kind("allocator", "octavo_allocators", "where KV lives and what is shared", "paged"),
    Kind("eviction", "octavo_evictions", "the order in which cached blocks go", "lru"),
    Kind(
        "sampler-stage", "octavo_sampler_stages", "one step between logits and token", "all", "set"
    ),
    Kind("proposer", "octavo_proposers", "which tokens are guessed ahead", "none"),
    Kind("grammar", "octavo_grammars", "which tokens a required form allows", "llguidance"),
    Kind("adapter", "octavo_adapters", "how files of adapters are read", "all", "set"),
    Kind("architecture", "octavo_architectures", "a family of models", "all", "set"),
    Kind("weights", "octavo_weights", "how a file format is read", "all", "set"),
    Kind("source", "octavo_sources", "where a model's name leads", "all", "set"),
    Kind("tokenizer", "octavo_tokenizers", "text to ids and back, chat templates", "all", "set"),
    Kind("parser", "octavo_parsers", "how reasoning and calls of tools are written", "all", "set"),
    Kind("dialect", "octavo_dialects", "an HTTP API", "all", "set"),
)

KINDS: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in _ROWS})
