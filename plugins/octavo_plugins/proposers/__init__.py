"""The stock proposers: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.proposer import Proposer


class Plugin(OctavoSpecs):
    """Declares the stock proposers."""

    def octavo_proposers(self) -> Iterator[Component[Proposer]]:
        """Yield none, ngram, draft-model."""
        yield Component(
            name="none",
            target="octavo_plugins.proposers.none:NoProposer",
            summary="guesses nothing: one token a step",
        )
        yield Component(
            name="ngram",
            target="octavo_plugins.proposers.ngram:Ngram",
            options="octavo_plugins.proposers.ngram:NgramOptions",
            summary="what followed the same tokens before, in the prompt or the output",
        )
        yield Component(
            name="draft-model",
            target="octavo_plugins.proposers.draft_model:DraftModel",
            options="octavo_plugins.proposers.options:DraftModelOptions",
            summary="a smaller model, or the first layers of the same one, writes ahead",
        )


plugin = Plugin()
