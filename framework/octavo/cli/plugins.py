"""`octavo plugins`: list what is there, show one component, say why something is not there.

Reads declarations only: no component is imported, except its models to show their fields, and the
one that `check` is to try.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from octavo.cli import plugins_check, plugins_list, plugins_new
from octavo.cli.columns import columns, printable, terminal_width
from octavo.cli.inspection import problems_in_use
from octavo.config.auto import AutoContext, table_of_reasons
from octavo.config.flags import add_config_arguments, flags_of
from octavo.config.resolve import catalogue_for, resolve
from octavo.config.schema import EngineConfig, ModelConfig
from octavo.errors import ConfigError, PluginError, UnknownComponentError, did_you_mean
from octavo.plugin.build import load_options, load_params, title
from octavo.plugin.kinds import KINDS
from octavo.plugin.options import INSTEAD

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pydantic import BaseModel

    from octavo.plugin.catalogue import Catalogue, Entry
    from octavo.plugin.discovery import PluginRecord
    from octavo.plugin.kinds import Kind

ACTIONS = {
    "list": "every component, and the state of every plugin",
    "info": "one component: who provides it, its target, its options and parameters",
    "why": "why a component or a plugin is there or not, and how `auto` chooses",
    "check": "whether a component keeps the promises of its kind: KIND:NAME, or FILE.py:Class",
    "new": "write a plugin to start from: KIND NAME",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action, what it is about, and the flags that say which plugins to load."""
    width = max(map(len, ACTIONS))
    parser.epilog = "actions:\n" + "\n".join(f"  {a:{width}}  {t}" for a, t in ACTIONS.items())
    parser.formatter_class = _raw_epilog()
    parser.add_argument("action", choices=ACTIONS, metavar=f"{{{','.join(ACTIONS)}}}")
    parser.add_argument("name", nargs="?", help="KIND, NAME or KIND:NAME")
    parser.add_argument("new_name", nargs="?", metavar="NAME", help="after `new KIND`")
    parser.add_argument("--json", action="store_true", help="print JSON")
    plugins_check.add_arguments(parser)
    plugins_new.add_arguments(parser)
    add_config_arguments(parser, sections=("plugins",), models=None)


def run(args: argparse.Namespace) -> int:
    """Do the action. Exit code 1 when two plugins conflict, or a promise is broken."""
    catalogue = catalogue_for(file=vars(args).get("config.config"), flags=flags_of(args))
    if args.action == "new":
        return plugins_new.run(catalogue, args)
    if args.new_name is not None:
        raise ConfigError(f"octavo plugins {args.action}: unexpected argument '{args.new_name}'")
    if args.action == "list":
        return plugins_list.run(catalogue, args.name, as_json=args.json)
    if args.name is None:
        headline = f"octavo plugins {args.action}: of what?"
        raise ConfigError(headline, "give KIND, NAME or KIND:NAME; `octavo plugins list` has them")
    if args.action == "check":
        return plugins_check.run(catalogue, args)
    if args.action == "info":
        return _info(catalogue, args.name, as_json=args.json)
    return _why(catalogue, args)


def _info(catalogue: Catalogue, name: str, *, as_json: bool) -> int:
    if name in KINDS and not any(name in table for table in catalogue.entries.values()):
        return _info_kind(catalogue, KINDS[name], as_json=as_json)
    found = _find(catalogue, name)
    if as_json:
        print(
            json.dumps(
                [{**plugins_list.component_data(entry), **_schemas(entry)} for entry in found],
                indent=2,
            )
        )
        return 0
    print("\n\n".join("\n".join(_describe(entry)) for entry in found))
    return 0


def _info_kind(catalogue: Catalogue, kind: Kind, *, as_json: bool) -> int:
    """Say what a kind decides, and which components of it there are."""
    entries = catalogue.all(kind.name)
    if as_json:
        components = [plugins_list.component_data(entry) for entry in entries]
        facts = {"kind": kind.name, "decides": kind.decides, "default": kind.default}
        print(json.dumps({**facts, "components": components}, indent=2))
        return 0
    print(f"'{kind.name}' is a kind of component: {kind.decides} (default: {kind.default})")
    rows = [(f"  {one.name}", one.provider, one.component.summary) for one in entries]
    print("\n".join(columns(rows, terminal_width())))
    print(f"octavo plugins info {kind.name}:NAME shows one of them")
    return 0


def _describe(entry: Entry) -> Iterator[str]:
    component = entry.component
    yield f"{entry.kind} '{entry.name}': {printable(component.summary) or '(no summary)'}"
    facts = [
        ("provider", entry.provider),
        ("target", entry.target),
        ("offers", ", ".join(sorted(component.offers))),
        ("requires", ", ".join(component.requires)),
        ("replaces", component.replaces or ""),
    ]
    yield from (f"  {row}" for row in columns([fact for fact in facts if fact[1]]))
    options, params = load_options(entry), load_params(entry)
    yield "  options" if options.model_fields else "  no options"
    yield from (f"    {row}" for row in _rows_of(options))
    if params is not None:
        yield "  parameters of a request"
        yield from (f"    {row}" for row in _rows_of(params))


def _rows_of(model: type[BaseModel]) -> list[str]:
    rows = []
    for key, field in model.model_fields.items():
        default = "required" if field.is_required() else f"default {field.default!r}"
        about = [field.description or ""]
        if isinstance(field.json_schema_extra, dict) and INSTEAD in field.json_schema_extra:
            about.append(f"deprecated: {field.json_schema_extra[INSTEAD]}")
        rows.append((f"{field.alias or key}", default, "; ".join(about)))
    return columns(rows)


def _schemas(entry: Entry) -> dict[str, Any]:
    params = load_params(entry)
    return {
        "options-schema": load_options(entry).model_json_schema(),
        "params-schema": None if params is None else params.model_json_schema(),
    }


def _why(catalogue: Catalogue, args: argparse.Namespace) -> int:
    name: str = args.name
    if name in KINDS:
        return _why_kind(catalogue, args)
    records = [one for one in catalogue.plugins if name in {one.distribution, one.name, one.key}]
    if records:
        lines = {f"{one.provider} ({one.name}): {_state(one)}" for one in records}
        declared = {(kind, one.name) for record in records for kind, one in record.components}
        tables = catalogue.entries
        entries = [tables[kind][one] for kind, one in sorted(declared) if one in tables[kind]]
        return _say([*sorted(lines), *_broken(entries)], as_json=args.json)
    catalogue.check()
    found = _find(catalogue, name)
    lines_of = []
    for entry in found:
        there = f"{entry.kind} '{entry.name}' is there: {entry.provider} provides it"
        lines_of += _broken([entry]) or [there]
    return _say(lines_of, as_json=args.json)


def _broken(entries: list[Entry]) -> list[str]:
    """Return what is known to be wrong with components, one sentence each."""
    return [
        f"{title(entry)} is broken: {problem}"
        for entry in entries
        for problem in problems_in_use(entry)
    ]


def _why_kind(catalogue: Catalogue, args: argparse.Namespace) -> int:
    """Say what is chosen of a kind with these settings, and what `auto` thinks of each."""
    kind = args.name
    try:
        config = resolve(catalogue, file=vars(args).get("config.config"), flags=flags_of(args))
    except PluginError as error:
        chosen, context = None, AutoContext(engine=EngineConfig(), model=ModelConfig(), chosen={})
        lines = [*str(error).splitlines()]
    else:
        chosen = config.chosen.get(kind)
        context = AutoContext(engine=config.engine, model=config.model, chosen=config.chosen)
        every = [chosen] if chosen else config.active[kind]
        lines = [f"{kind} '{one.name}' is in use: {one.why}" for one in every]
    for name, reasons in table_of_reasons(catalogue, kind, context).items():
        lines.append(f"{name}: {'; '.join(reasons) if reasons else 'nothing speaks against it'}")
    return _say(lines, as_json=args.json)


def _say(lines: list[str], *, as_json: bool) -> int:
    print(json.dumps({"why": lines}, indent=2) if as_json else "\n".join(lines))
    return 0


def _state(record: PluginRecord) -> str:
    if record.state != "active":
        return f"{record.state}: {record.reason}"
    names = ", ".join(f"{kind} '{component.name}'" for kind, component in record.components)
    return f"active: declares {names}" if names else "active: declares nothing"


def _find(catalogue: Catalogue, name: str) -> list[Entry]:
    """Return the components meant by NAME or KIND:NAME. Raises UnknownComponentError."""
    kind, _, rest = name.rpartition(":")
    if kind:
        return [catalogue.get(kind, rest, "octavo plugins")]
    found = [table[rest] for table in catalogue.entries.values() if rest in table]
    for (_, conflicting), conflict in catalogue.conflicts.items():
        if conflicting == rest:
            raise conflict
    if found:
        return found
    names = {one for table in catalogue.entries.values() for one in table}
    broken = [
        f"not loaded: {one.provider}: {one.reason}"
        for one in sorted(catalogue.broken, key=lambda one: one.has_to_do_with(rest), reverse=True)
    ]
    headline = f"no component is called '{rest}'"
    raise UnknownComponentError(
        headline, did_you_mean(rest, names), *broken, "octavo plugins list shows all"
    )


def _raw_epilog() -> type[argparse.HelpFormatter]:
    import argparse

    return argparse.RawDescriptionHelpFormatter
