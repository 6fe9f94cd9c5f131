"""For which versions of an interface components are taken.

`docs/explanation/stability.md` says when a version changes. Knows numbers. Does not know what
changed between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.plugin.component import Component
    from octavo.plugin.kinds import Kind


def api_problem(kind: Kind, component: Component[Any]) -> str:
    """Return why a component cannot be used here for the version it is written for, or ""."""
    if kind.oldest_api <= component.api <= kind.api:
        return ""
    return f"written for {kind.name} api {component.api}, this is {kind.api}"


def api_deprecation(kind: Kind, component: Component[Any]) -> str:
    """Return what to tell of a component for an older version that is still taken, or ""."""
    if component.api >= kind.api:
        return ""
    return (
        f"{kind.name} '{component.name}' is written for api {component.api} of its kind, which is "
        f"deprecated: this is {kind.api}"
    )
