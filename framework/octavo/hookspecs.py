"""The hooks a plugin may implement: one for each kind of component.

A plugin subclasses `OctavoSpecs`, overrides the hooks it has something for, and exposes one
instance:

    from octavo.hookspecs import OctavoSpecs
    from octavo.plugin.component import Component

    class Plugin(OctavoSpecs):
        def octavo_schedulers(self):
            return [Component(name="sjf", target="my_package.sjf:ShortestJobFirst")]

    plugin = Plugin()

and names it in its pyproject.toml:

    [project.entry-points.octavo]
    my-plugin = "my_package:plugin"

Every hook is called once, when a catalogue is built, and returns any iterable of `Component`.
It must not import what it declares. A hook that raises makes its plugin `broken`: the plugin
then declares nothing, and whoever asks for one of its names is told why.

Knows signatures only. Does not know who implements them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from octavo.interfaces.adapter import AdapterFormat
    from octavo.interfaces.allocator import Allocator
    from octavo.interfaces.architecture import Architecture
    from octavo.interfaces.attention import Attention
    from octavo.interfaces.dialect import Dialect
    from octavo.interfaces.eviction import Eviction
    from octavo.interfaces.executor import Executor
    from octavo.interfaces.grammar import GrammarBackend
    from octavo.interfaces.ops import OpSet
    from octavo.interfaces.parser import Parser
    from octavo.interfaces.platform import Platform
    from octavo.interfaces.proposer import Proposer
    from octavo.interfaces.sampler import SamplerStage
    from octavo.interfaces.scheduler import SchedulerPolicy
    from octavo.interfaces.source import ModelSource
    from octavo.interfaces.tokenizer import TokenizerFormat
    from octavo.interfaces.weights import WeightsFormat
    from octavo.plugin.component import Component

__all__ = ["OctavoSpecs"]


class OctavoSpecs:
    """Base class of plugins. Every hook has an empty default."""

    def octavo_platforms(self) -> Iterable[Component[Platform]]:
        """Declare platforms: device facts and the memory budget."""
        return ()

    def octavo_ops(self) -> Iterable[Component[OpSet]]:
        """Declare op sets: which implementation computes norms, linears and sampling."""
        return ()

    def octavo_attention(self) -> Iterable[Component[Attention]]:
        """Declare attention back ends: attention over blocks of KV."""
        return ()

    def octavo_executors(self) -> Iterable[Component[Executor]]:
        """Declare executors: where the model runs."""
        return ()

    def octavo_schedulers(self) -> Iterable[Component[SchedulerPolicy]]:
        """Declare scheduling policies: whose turn it is.

        `offers` holds "priority" where a policy reads that of requests.
        """
        return ()

    def octavo_allocators(self) -> Iterable[Component[Allocator]]:
        """Declare allocators: where KV lives and what is shared."""
        return ()

    def octavo_evictions(self) -> Iterable[Component[Eviction]]:
        """Declare eviction orders: which unreferenced cached block goes first."""
        return ()

    def octavo_sampler_stages(self) -> Iterable[Component[SamplerStage]]:
        """Declare sampler stages: one small step each between logits and token."""
        return ()

    def octavo_proposers(self) -> Iterable[Component[Proposer]]:
        """Declare proposers: draft tokens, which the model then verifies all at once."""
        return ()

    def octavo_grammars(self) -> Iterable[Component[GrammarBackend]]:
        """Declare grammar back ends: which tokens may come next in a text of a given form."""
        return ()

    def octavo_adapters(self) -> Iterable[Component[AdapterFormat]]:
        """Declare file formats of adapters: small changes to weights, per request."""
        return ()

    def octavo_architectures(self) -> Iterable[Component[Architecture]]:
        """Declare model families. `offers` holds the architecture names of their configs."""
        return ()

    def octavo_weights(self) -> Iterable[Component[WeightsFormat]]:
        """Declare file formats of weights."""
        return ()

    def octavo_sources(self) -> Iterable[Component[ModelSource]]:
        """Declare sources: where a model's name leads."""
        return ()

    def octavo_tokenizers(self) -> Iterable[Component[TokenizerFormat]]:
        """Declare tokenizers: text to ids and back, and the chat template."""
        return ()

    def octavo_parsers(self) -> Iterable[Component[Parser]]:
        """Declare parsers: how families of models write reasoning and calls of tools.

        `offers` holds "tools", "reasoning" or both, and `alias:NAME` for other names.
        """
        return ()

    def octavo_dialects(self) -> Iterable[Component[Dialect]]:
        """Declare dialects: HTTP APIs."""
        return ()
