"""`auto`: ask each candidate why it cannot run here, and take the first that has no reason.

Knows ranks and reasons. Does not know what any reason means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from octavo.errors import NoCandidateError, UnknownComponentError
from octavo.faults import describe
from octavo.plugin.files import import_target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.config.resolved import ResolvedComponent
    from octavo.config.schema import EngineConfig, ModelConfig
    from octavo.plugin.catalogue import Catalogue, Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoContext:
    """What a component's `why_not` may look at: settings, and the kinds resolved before its own.

    Those that were chosen by name are resolved first.
    """

    engine: EngineConfig
    model: ModelConfig
    chosen: Mapping[str, ResolvedComponent]

    def is_offered(self, kind: str, fact: str) -> bool:
        """Return whether the chosen component of an earlier kind offers a fact."""
        return kind in self.chosen and fact in self.chosen[kind].offers


def reasons_against(entry: Entry, context: AutoContext) -> list[str]:
    """Return why a component cannot run here; empty when it can.

    A requirement that is not installed is a reason, and so is a `why_not` that raises.
    """
    reasons = [f"{one} is not installed" for one in entry.component.requires if not _has(one)]
    if entry.component.why_not and not reasons:
        try:
            reasons += import_target(entry.component.why_not)(context)
        except Exception as error:  # noqa: BLE001 - shown as the reason
            reasons.append(f"its why_not failed: {describe(error)}")
    return reasons


def table_of_reasons(catalogue: Catalogue, kind: str, context: AutoContext) -> dict[str, list[str]]:
    """Return the reasons of every candidate of a kind, in the order in which `auto` asks."""
    return {entry.name: reasons_against(entry, context) for entry in catalogue.all(kind)}


def choose(catalogue: Catalogue, kind: str, context: AutoContext, where: str) -> tuple[Entry, str]:
    """Return the first candidate without a reason, and why it was taken.

    Raises NoCandidateError with the whole table when each has one, ComponentConflictError when
    two provide one of the candidates.
    """
    catalogue.require_whole(kind)  # else what is installed beside would decide without a word
    table = table_of_reasons(catalogue, kind, context)
    refused: list[str] = []
    for name, reasons in table.items():
        if not reasons:
            why = f"auto: first of {', '.join(table)}"
            return catalogue.get(kind, name), "; ".join([why, *refused])
        refused.append(f"not {name}: {', '.join(reasons)}")
    if not table:
        headline = f"no {kind} is loaded"
        broken = [f"not loaded: {one.provider}: {one.reason}" for one in catalogue.broken]
        raise UnknownComponentError(headline, *broken)
    headline = f"no {kind} can run here ({where})"
    lines = [f"{name}: {', '.join(reasons)}" for name, reasons in table.items()]
    raise NoCandidateError(headline, *lines)


def _has(requirement: str) -> bool:
    """Return whether a requirement's distribution is installed; extras are not looked into."""
    try:
        version(re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0])
    except PackageNotFoundError:
        return False
    return True
