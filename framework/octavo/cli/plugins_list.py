"""`octavo plugins list`: every component, and the state of every plugin.

Reads declarations only: no component is imported, except its models. Whether a target that is only
named fits its kind is not checked until it is used.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from octavo.cli.columns import columns, fitted, terminal_width
from octavo.cli.inspection import problems_of
from octavo.errors import UnknownComponentError, did_you_mean
from octavo.plugin.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from octavo.plugin.catalogue import Catalogue, Entry
    from octavo.plugin.discovery import PluginRecord

    #: by kind and name of a component, what is wrong with it
    Problems: TypeAlias = Mapping[tuple[str, str], list[str]]


def run(catalogue: Catalogue, kind: str | None, *, as_json: bool) -> int:
    """Print every component, or those of a kind. Exit code 1 when two plugins conflict."""
    if kind is not None and kind not in KINDS:
        headline = f"unknown kind '{kind}'"
        raise UnknownComponentError(
            headline, did_you_mean(kind, KINDS), f"kinds: {', '.join(KINDS)}"
        )
    entries = [entry for one in KINDS if kind in {None, one} for entry in catalogue.all(one)]
    conflicts = list(catalogue.conflicts.values())
    problems = {(one.kind, one.name): problems_of(one) for one in entries}
    if as_json:
        data = {
            "plugins": [_plugin_data(record, problems) for record in catalogue.plugins],
            "components": [
                {**component_data(one), "problems": problems[one.kind, one.name]} for one in entries
            ],
            "conflicts": [str(conflict) for conflict in conflicts],
        }
        print(json.dumps(data, indent=2))
    else:
        rows = [("KIND", "NAME", "PROVIDER", "SUMMARY")]
        for one in entries:
            summary = "(broken)" if problems[one.kind, one.name] else one.component.summary
            rows.append((one.kind, one.name, one.provider, summary))
        width = terminal_width()
        lines = [*columns(rows, width), ""]
        for line in _plugin_lines(catalogue, entries, problems):
            lines += fitted(line, width, indent=12)
        print("\n".join(lines))
        for conflict in conflicts:
            print(f"\n{conflict}")
    return 1 if conflicts else 0


def _plugin_lines(catalogue: Catalogue, entries: list[Entry], problems: Problems) -> Iterator[str]:
    """Yield a line for each distribution that is whole, and one for each thing that is not."""
    active: dict[str, int] = {}
    for record in catalogue.plugins:
        if _state(record, problems) == "active":
            active[record.provider] = active.get(record.provider, 0) + 1
    yield "plugins"
    for provider, count in active.items():
        yield f"  active    {provider}" + (f" ({count} entry points)" if count > 1 else "")
    for record in catalogue.plugins:
        if record.state != "active":
            yield f"  {record.state:8}  {record.provider} ({record.name}): {record.reason}"
        for text in record.deprecations:
            yield f"  ageing    {record.provider} ({record.name}): {text}"
    for entry in entries:
        for problem in problems[entry.kind, entry.name]:
            yield f"  broken    {entry.provider}: {entry.kind} '{entry.name}': {problem}"


def _state(record: PluginRecord, problems: Problems) -> str:
    """Return the state of a plugin, which is broken too when nothing that it has can be used."""
    found = [problems.get((kind, one.name)) for kind, one in record.components]
    return "broken" if found and all(found) else record.state


def _plugin_data(record: PluginRecord, problems: Problems) -> dict[str, Any]:
    keys = ("name", "distribution", "version", "value", "origin", "state", "reason")
    facts = {key: getattr(record, key) for key in keys}
    facts["state"] = _state(record, problems)
    return {**facts, "deprecations": list(record.deprecations)}


def component_data(entry: Entry) -> dict[str, Any]:
    """Return a component as plain data."""
    component = entry.component
    return {
        "kind": entry.kind,
        "name": entry.name,
        "provider": entry.provider,
        "target": entry.target,
        "options": entry.options_target,
        "params": entry.params_target,
        "summary": component.summary,
        "offers": sorted(component.offers),
        "requires": list(component.requires),
        "replaces": component.replaces,
        "api": component.api,
        "rank": component.rank,
    }
