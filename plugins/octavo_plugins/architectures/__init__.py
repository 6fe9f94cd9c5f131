"""The stock model families: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.architecture import Architecture


class Plugin(OctavoSpecs):
    """Declares the stock model families."""

    def octavo_architectures(self) -> Iterator[Component[Architecture]]:
        """Yield llama, gemma, linear-hybrid."""
        yield Component(
            name="llama",
            target="octavo_plugins.architectures.llama:Llama",
            summary="Llama 2 and 3, Mistral, Qwen 2, 2.5 and 3, SmolLM 2 and 3",
            offers=frozenset(
                {
                    "LlamaForCausalLM",
                    "MistralForCausalLM",
                    "Qwen2ForCausalLM",
                    "Qwen3ForCausalLM",
                    "SmolLM3ForCausalLM",
                }
            ),
        )
        yield Component(
            name="gemma",
            target="octavo_plugins.architectures.gemma:Gemma",
            summary="Gemma 2 and 3, their text models",
            offers=frozenset({"Gemma2ForCausalLM", "Gemma3ForCausalLM"}),
        )
        yield Component(
            name="linear-hybrid",
            target="octavo_plugins.architectures.linear_hybrid:LinearHybrid",
            summary="attention mixed with linear attention: a model whose layers keep states",
            offers=frozenset({"OctavoLinearHybridForCausalLM"}),
        )


plugin = Plugin()
