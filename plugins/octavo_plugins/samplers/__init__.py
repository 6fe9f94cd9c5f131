"""The stock sampler stages: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.sampler import SamplerStage

_PACKAGE = "octavo_plugins.samplers"

#: name, module and class, what it does; in the order in which they run. Native stages have the
#: fields of `SamplingParams`, all others a model in `parameters`: their class's name and "Params"
_STAGES = (
    ("allowed-ids", "stages:AllowedIds", "only these token ids may be drawn"),
    ("bad-words", "stages:BadWords", "these sequences of tokens may not be completed"),
    ("min-tokens", "stages:MinTokens", "no end of sequence before so many tokens"),
    ("logit-bias", "stages:LogitBias", "adds a bias to the logits of single tokens"),
    ("penalties", "stages:Penalties", "repetition, presence and frequency penalties"),
    ("dry", "dry:Dry", "penalises tokens that go on with a repetition"),
    ("top-n-sigma", "truncation:TopNSigma", "drops logits far below the largest, by deviations"),
    ("min-k", "truncation:MinK", "cuts where sorted logits fall off the steepest"),
    ("temperature", "stages:Temperature", "divides logits by the temperature; 0 is greedy"),
    ("min-p", "stages:MinP", "drops tokens less likely than a share of the likeliest's"),
    ("top-k", "stages:TopK", "keeps the k likeliest tokens"),
    ("typical-p", "truncation:TypicalP", "keeps tokens of about the expected surprise"),
    ("top-p", "stages:TopP", "keeps the smallest set of tokens that holds probability p"),
    ("xtc", "truncation:Xtc", "now and then drops all but the least of the likely tokens"),
    ("dynatemp", "adaptive:DynamicTemperature", "a temperature that follows the entropy"),
    ("mirostat", "adaptive:Mirostat", "keeps the surprise of the text near a target"),
)


class Plugin(OctavoSpecs):
    """Declares the stock sampler stages."""

    def octavo_sampler_stages(self) -> Iterator[Component[SamplerStage]]:
        """Yield one stage for each step."""
        for name, place, summary in _STAGES:
            module, _, stage = place.partition(":")
            params = None if module == "stages" else f"{_PACKAGE}.parameters:{stage}Params"
            target = f"{_PACKAGE}.{place}"
            yield Component(name=name, target=target, params=params, summary=summary)


plugin = Plugin()
