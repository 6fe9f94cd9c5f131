"""Pages on settings: sections of the config, flags of vLLM's, and commands.

Knows the schema, vLLM's names and the commands' parsers. Does not know components' options.
"""

from __future__ import annotations

import argparse
import importlib
from typing import TYPE_CHECKING, Any

from octavo.cli.main import COMMANDS, module_of
from octavo.config.fields import KIND_FLAGS, SETTINGS
from octavo.config.flags import Parser
from octavo.config.schema import SECTIONS
from octavo.config.vllm import FOREIGN, OWN_FLAGS
from octavo.plugin.kinds import KINDS
from octavo.reference.fields import field_rows
from octavo.reference.markdown import anchor, code, codes, first_line, inline, page, table

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONFIG = """\
A setting is a key of a TOML (or YAML, or JSON) file that `--config FILE` or `OCTAVO_CONFIG` names,
a flag, or a keyword of `LLM`: `max-num-seqs` in a file is `--max-num-seqs` and `max_num_seqs=`.
Flags win over the file, keywords over both. An unknown key is an error. Amounts take `8k` for 8000
and `8K` for 8192. `octavo explain` shows what a command line and a file come to."""
_KIND_SECTIONS = """\
Each kind has a section: `use` names the component (for a set: a list of names), all other keys are
[its options](components.md)."""
_FLAGS = """\
What becomes of vLLM's flags. One that is not listed here is unknown, which is an error with the
nearest name: nothing is accepted in silence."""
_COMMANDS = """\
`octavo COMMAND --help` shows the flags of a command. Exit codes: 0 done, 1 failed, 2 wrong
settings, 130 interrupted."""
_VERDICTS = {
    "renamed": ("Under another name", "flag here"),
    "read": ("Read", "as what"),
    "accepted": ("Accepted with a warning", "why it has no effect"),
    "refused": ("Refused", "why"),
}


def config_page() -> str:
    """Return the page of all sections."""
    body = []
    for section, model in SECTIONS.items():
        flags = {one.key: one.flag for one in SETTINGS.values() if one.section == section}
        rows = [
            (code(row.key), code(f"--{flags[row.key]}"), row.values, row.default, row.description)
            for row in field_rows(model)
        ]
        body += [f"## `[{section}]`", first_line(model.__doc__)]
        body.append(table(("key", "flag", "values", "default", "what"), rows))
    body += ["## Components", _KIND_SECTIONS, _table_of_kinds()]
    return page("Config", _CONFIG, body)


def _table_of_kinds() -> str:
    rows = [
        (
            code(f"[{kind.name}]"),
            code(f"--{kind.name}") if kind.name in KIND_FLAGS else "",
            code(kind.default),
            f"[{inline(kind.decides)}](components.md#{anchor(kind.name)})",
        )
        for kind in KINDS.values()
    ]
    return table(("section", "flag", "default", "what"), rows)


def vllm_page() -> str:
    """Return the page on vLLM's flags."""
    same = codes(f"--{flag}" for flag in sorted(SETTINGS) if flag not in OWN_FLAGS)
    body = ["## Honoured under the same name", f"{same}."]
    for verdict, (title, header) in _VERDICTS.items():
        rows = [
            (
                code(f"--{name}"),
                code(f"--{one.text}") if verdict == "renamed" else inline(one.text),
                "" if one.harmless is None else code(one.harmless),
            )
            for name, one in sorted(FOREIGN.items())
            if one.verdict == verdict
        ]
        body += [f"## {title}", table(("flag", header, "let through"), rows)]
    own = codes(f"--{flag}" for flag in sorted(OWN_FLAGS))
    body += ["## Octavo's own", f"vLLM does not have {own}, nor the flags of kinds."]
    return page("vLLM's flags", _FLAGS, body)


def commands_page() -> str:
    """Return the page of all commands with their flags."""
    body = []
    for name, about in COMMANDS.items():
        body += [f"## `octavo {name}`", f"{inline(about[:1].upper() + about[1:])}."]
        actions = vars(_module(name)).get("ACTIONS")
        if actions:
            body.append(
                table(("action", "what"), [(code(a), inline(t)) for a, t in actions.items()])
            )
        rows = [
            (code(_spelling(one)), inline(_help(one)), _default(one)) for one in own_flags(name)
        ]
        if rows:
            body.append(table(("argument", "what", "default"), rows))
        body.append(f"Settings: {', '.join(_config_groups(name))}." if _config_groups(name) else "")
    return page("Commands", _COMMANDS, [block for block in body if block])


def _module(command: str) -> Any:
    return importlib.import_module(module_of(command))


def _parser(command: str) -> Parser:
    parser = Parser(prog=f"octavo {command}")
    _module(command).add_arguments(parser)
    return parser


def own_flags(command: str) -> list[argparse.Action]:
    """Return what a command takes beside the settings of the config."""
    groups = [one for one in _parser(command)._action_groups if one.title not in _SHARED]  # noqa: SLF001
    return [
        action
        for group in groups
        for action in group._group_actions  # noqa: SLF001
        if action.dest != "help" and action.help != argparse.SUPPRESS
    ]


def _config_groups(command: str) -> list[str]:
    titles = [one.title for one in _parser(command)._action_groups]  # noqa: SLF001
    return [f"[{title}](config.md#{anchor(str(title))})" for title in titles if title in _SHARED]


_SHARED = (*SECTIONS, "components")


def _spelling(action: argparse.Action) -> str:
    if not action.option_strings:
        return str(action.metavar or action.dest.upper())
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    return ", ".join(action.option_strings) + value


def _help(action: argparse.Action) -> str:
    return (action.help or "").replace("%%", "%")


def _default(action: argparse.Action) -> str:
    value = action.default
    is_said = value in (None, False, argparse.SUPPRESS) or value == [] or "default" in _help(action)
    return "" if is_said else code(str(value))


def problems() -> Iterator[str]:
    """Yield each setting, flag and command that nothing is said of, and each stale name."""
    for section, model in SECTIONS.items():
        if not first_line(model.__doc__):
            yield f"section [{section}]: no docstring"
        for row in field_rows(model):
            if not row.description:
                yield f"setting [{section}] {row.key}: no description"
    yield from (f"vLLM's flag --{name}: no reason" for name, one in FOREIGN.items() if not one.text)
    yield from (f"--{one}: no such setting" for one in sorted(OWN_FLAGS - set(SETTINGS)))
    for command, about in COMMANDS.items():
        if not about:
            yield f"command {command}: no text"
        for action in own_flags(command):
            if not action.help and not isinstance(action.choices, dict):
                yield f"command {command}: {_spelling(action)} has no help"
