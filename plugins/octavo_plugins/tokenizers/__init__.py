"""The stock tokenizers: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.tokenizer import TokenizerFormat


class Plugin(OctavoSpecs):
    """Declares the stock tokenizers."""

    def octavo_tokenizers(self) -> Iterator[Component[TokenizerFormat]]:
        """Yield hf, gguf."""
        yield Component(
            name="hf",
            target="octavo_plugins.tokenizers.hf:HfTokenizer",
            summary="tokenizer.json and its chat template, from a model folder",
        )
        yield Component(
            name="gguf",
            target="octavo_plugins.tokenizers.gguf:GgufTokenizer",
            summary="vocabulary, merges and chat template inside a GGUF file",
        )


plugin = Plugin()
