"""What is in use and will end: notes that name the component and its distribution.

Knows components in use and what was written. Does not know what replaces anything: the options
and the kinds say so themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.plugin.build import deprecations_of
from octavo.plugin.kinds import KINDS
from octavo.plugin.versions import api_deprecation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from octavo.config.load import Layer
    from octavo.config.resolved import ResolvedComponent
    from octavo.plugin.catalogue import Catalogue


def ageing_notes(
    catalogue: Catalogue, in_use: Iterable[ResolvedComponent], layer: Layer
) -> Iterator[str]:
    """Yield a sentence for each option that is set and deprecated, and for each older api.

    Imports the options models of those that were given options.
    """
    for one in in_use:
        component = catalogue.get(one.kind, one.name).component
        text = api_deprecation(KINDS[one.kind], component)
        if text:
            yield f"{one.provider}: {text}"
        given = _given(one, layer)
        if given:
            yield from deprecations_of(one, given)


def _given(one: ResolvedComponent, layer: Layer) -> set[str]:
    """Return the options that were written for a component."""
    own = (one.kind,) if KINDS[one.kind].mode == "one" else (one.kind, one.name)
    return {path[-1] for path in layer.values if path[:-1] == own and path != (one.kind, "use")}
