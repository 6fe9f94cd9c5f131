"""The stock sampler stages: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.sampler import SamplerStage


class Plugin(OctavoSpecs):
    """Declares the stock sampler stages."""

    def octavo_sampler_stages(self) -> Iterator[Component[SamplerStage]]:
        """Yield one stage for each step, in the order in which they run."""
        yield Component(
            name="allowed-ids",
            target="octavo_plugins.samplers.stages:AllowedIds",
            summary="only these token ids may be drawn",
        )
        yield Component(
            name="bad-words",
            target="octavo_plugins.samplers.stages:BadWords",
            summary="these sequences of tokens may not be completed",
        )
        yield Component(
            name="min-tokens",
            target="octavo_plugins.samplers.stages:MinTokens",
            summary="no end of sequence before so many tokens",
        )
        yield Component(
            name="logit-bias",
            target="octavo_plugins.samplers.stages:LogitBias",
            summary="adds a bias to the logits of single tokens",
        )
        yield Component(
            name="penalties",
            target="octavo_plugins.samplers.stages:Penalties",
            summary="repetition, presence and frequency penalties",
        )
        yield Component(
            name="temperature",
            target="octavo_plugins.samplers.stages:Temperature",
            summary="divides logits by the temperature; 0 is greedy",
        )
        yield Component(
            name="min-p",
            target="octavo_plugins.samplers.stages:MinP",
            summary="drops tokens less likely than a share of the likeliest's",
        )
        yield Component(
            name="top-k",
            target="octavo_plugins.samplers.stages:TopK",
            summary="keeps the k likeliest tokens",
        )
        yield Component(
            name="top-p",
            target="octavo_plugins.samplers.stages:TopP",
            summary="keeps the smallest set of tokens that holds probability p",
        )


plugin = Plugin()
