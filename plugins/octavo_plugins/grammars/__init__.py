"""The stock grammar back ends: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.grammar import GrammarBackend


class Plugin(OctavoSpecs):
    """Declares the stock grammar back ends."""

    def octavo_grammars(self) -> Iterator[Component[GrammarBackend]]:
        """Yield llguidance and xgrammar."""
        yield Component(
            name="llguidance",
            target="octavo_plugins.grammars.llguidance_grammar:LLGuidance",
            options="octavo_plugins.grammars.options:LLGuidanceOptions",
            summary="JSON schemas, regular expressions, choices, Lark, GBNF, tags, by llguidance",
            requires=("llguidance>=1.9",),
        )
        yield Component(
            name="xgrammar",
            target="octavo_plugins.grammars.xgrammar_grammar:XGrammar",
            options="octavo_plugins.grammars.options:XGrammarOptions",
            summary="JSON schemas, regular expressions, choices, GBNF, tags, by xgrammar",
            requires=("xgrammar>=0.2.9",),
        )


plugin = Plugin()
