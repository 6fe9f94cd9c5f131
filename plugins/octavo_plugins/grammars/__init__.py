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
        """Yield llguidance."""
        yield Component(
            name="llguidance",
            target="octavo_plugins.grammars.llguidance_grammar:LLGuidance",
            options="octavo_plugins.grammars.options:LLGuidanceOptions",
            summary="JSON schemas, regular expressions, choices and Lark grammars, by llguidance",
            requires=("llguidance>=1.9",),
        )


plugin = Plugin()
