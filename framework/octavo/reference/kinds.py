"""Pages on the contract: kinds, their interfaces, hooks and invariants.

Knows the table of kinds, interfaces and the conformance kit. Does not know any component.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from octavo.config.fields import KIND_FLAGS
from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component
from octavo.plugin.files import import_target
from octavo.plugin.kinds import KINDS
from octavo.reference.markdown import anchor, code, first_line, inline, page, prose, table
from octavo.reference.members import members
from octavo.testing import contract
from octavo.testing.invariants import titles_of
from octavo.testing.kits import promises_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.plugin.kinds import Kind

_HOOKS = """\
A plugin is an instance of a subclass of `octavo.OctavoSpecs` that overrides hooks. Each hook is
called once, when the catalogue is built, and returns an iterable of [`Component`](#component). It
does not import what it declares. A method named `octavo_...` that is none of these is an error of
that plugin, with the nearest name."""
_KINDS = """\
Everything that Octavo decides is decided by a component of one of these kinds. Of most kinds one
component is in use; of a *set*, all that are loaded are, each picked by what it is asked for."""
_INVARIANTS = """\
What each kind promises, by number. `octavo plugins check KIND:NAME` tries to break those that have
a check, and names the number with the counter-example; so do the classes of `octavo.testing`. The
sentences are those of the interfaces' docstrings."""


def hooks_page() -> str:
    """Return the page of all hooks."""
    by_hook = {kind.hook: kind for kind in KINDS.values()}
    body = []
    for name in hook_names():
        kind = by_hook[name]
        body += [f"## `{name}`", *prose(getattr(OctavoSpecs, name).__doc__)]
        body.append(f"Kind: [{kind.name}](kinds/{kind.name}.md), api {kind.api}.")
    rows = [(code(row.signature), row.text) for row in members(Component)]
    body += ["## `Component`", *prose(Component.__doc__), table(("field", "what"), rows)]
    return page("Hooks", _HOOKS, body)


def hook_names() -> list[str]:
    """Return all hooks, in the order in which the class has them."""
    return [name for name in vars(OctavoSpecs) if name.startswith("octavo_")]


def kinds_page() -> str:
    """Return the page that lists the kinds."""
    rows = [
        (
            f"[{kind.name}](kinds/{kind.name}.md)",
            inline(kind.decides),
            code(kind.default),
            kind.mode,
            _apis(kind),
        )
        for kind in KINDS.values()
    ]
    return page("Kinds", _KINDS, [table(("kind", "decides", "default", "in use", "api"), rows)])


def kind_page(kind: Kind) -> str:
    """Return the page of one kind: how it is chosen, and its interface."""
    interface = import_target(kind.interface)
    module = inspect.getmodule(interface)
    facts = [
        ("interface", code(kind.interface.replace(":", "."))),
        ("hook", f"[`{kind.hook}`](../hooks.md#{anchor(kind.hook)})"),
        ("config", _config_of(kind)),
        ("default", code(kind.default)),
        ("in use", "one" if kind.mode == "one" else "all that are loaded, or those listed"),
        ("api", _apis(kind)),
        ("components", f"[stock](../components.md#{anchor(kind.name)})"),
        ("promises", f"[invariants](../invariants.md#{anchor(kind.name)})"),
    ]
    body = [f"Decides {inline(kind.decides)}.", table(("", ""), facts)]
    for one in interface_classes(kind.name):
        body += [f"## `{one.__name__}`", *prose(one.__doc__)]
        rows = [(code(row.signature), row.text) for row in members(one)]
        if rows:
            body.append(table(("member", "what"), rows))
    return page(kind.name, "\n\n".join(prose(getattr(module, "__doc__", ""))), body)


def _apis(kind: Kind) -> str:
    first, last = kind.oldest_api, kind.api
    return str(last) if first == last else f"{first} to {last}"


def _config_of(kind: Kind) -> str:
    section = code(f"[{kind.name}] use")
    return f"{section}, {code('--' + kind.name)}" if kind.name in KIND_FLAGS else section


def invariants_page() -> str:
    """Return the page of all invariants, with the checks of those that have one."""
    rows = [(number, inline(title)) for number, title in titles_of(contract).items()]
    body = ["## All kinds", table(("number", "promise"), rows)]
    for name in KINDS:
        body += [f"## {name}", table(("number", "promise", "checks"), _promises(name))]
        link = f"[{KINDS[name].interface.partition(':')[2]}](kinds/{name}.md)"
        body.append(f"Of {link}.")
    return page("Invariants", _INVARIANTS, body)


def _promises(kind: str) -> Iterator[tuple[str, str, str]]:
    checks: dict[str, list[str]] = {}
    for one in promises_of(kind):
        checks.setdefault(one.number, []).append(one.name.replace("_", " "))
    for number, title in promises(kind).items():
        yield number, inline(title), "; ".join(checks.get(number, ()))


def promises(kind: str) -> dict[str, str]:
    """Return the numbered promises of a kind: of its interface, and of what that hands out."""
    titles: dict[str, str] = {}
    for one in interface_classes(kind):
        for number, title in titles_of(one).items():
            titles.setdefault(number, title)
    return titles


def interface_classes(kind: str) -> list[type]:
    """Return the classes of a kind's interface: the one to implement first."""
    interface = import_target(KINDS[kind].interface)
    module = inspect.getmodule(interface)
    others = [
        one
        for name, one in vars(module).items()
        if isinstance(one, type) and one.__module__ == interface.__module__ and name[0] != "_"
    ]
    return [interface, *(one for one in others if one is not interface)]


def problems() -> Iterator[str]:
    """Yield each hook, kind, interface and promise that nothing is said of."""
    for name in hook_names():
        if not first_line(getattr(OctavoSpecs, name).__doc__):
            yield f"hook {name}: no docstring"
    for kind in KINDS.values():
        if not kind.decides:
            yield f"kind {kind.name}: `decides` is empty"
        interface = import_target(kind.interface)
        if not promises(kind.name):
            yield f"kind {kind.name}: {kind.interface} promises nothing by number"
        for row in members(interface):
            if not row.text:
                yield f"kind {kind.name}: {interface.__name__}.{row.signature} has no docstring"
    yield from (
        f"Component: {row.signature} has no text" for row in members(Component) if not row.text
    )
