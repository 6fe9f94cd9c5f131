"""The stock sampler stages: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.sampler import SamplerStage

#: name, class in `stages`, what it does; in the order in which they run
_STAGES = (
    ("allowed-ids", "AllowedIds", "only these token ids may be drawn"),
    ("bad-words", "BadWords", "these sequences of tokens may not be completed"),
    ("min-tokens", "MinTokens", "no end of sequence before so many tokens"),
    ("logit-bias", "LogitBias", "adds a bias to the logits of single tokens"),
    ("penalties", "Penalties", "repetition, presence and frequency penalties"),
    ("temperature", "Temperature", "divides logits by the temperature; 0 is greedy"),
    ("min-p", "MinP", "drops tokens less likely than a share of the likeliest's"),
    ("top-k", "TopK", "keeps the k likeliest tokens"),
    ("top-p", "TopP", "keeps the smallest set of tokens that holds probability p"),
)


class Plugin(OctavoSpecs):
    """Declares the stock sampler stages."""

    def octavo_sampler_stages(self) -> Iterator[Component[SamplerStage]]:
        """Yield one stage for each step."""
        for name, stage, summary in _STAGES:
            target = f"octavo_plugins.samplers.stages:{stage}"
            yield Component(name=name, target=target, summary=summary)


plugin = Plugin()
