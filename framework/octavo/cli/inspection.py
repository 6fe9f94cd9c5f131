"""What is wrong with a declared component, found without importing it.

A target is looked for in its source, since importing it may take seconds and need a device; the
models of options and parameters are imported, as every command that is given some does.

Knows declarations and source text. Does not know what any component does.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from contextlib import redirect_stdout
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import PluginError
from octavo.faults import FAULTS, describe, raise_if_signalled
from octavo.plugin.build import load, load_options, load_params, require_interface, title
from octavo.plugin.discovery import STOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from octavo.plugin.catalogue import Entry


def problems_in_use(entry: Entry) -> list[str]:
    """Return why a component that somebody asks for cannot be used; empty when nothing is known.

    The target is imported, unless it is one of the stock: those are tested where they are made,
    and many of them import torch.
    """
    problems = problems_of(entry)
    if not problems and not entry.provider.startswith(f"{STOCK} "):
        problems += _raised(lambda: require_interface(entry, load(entry)), entry)
    return problems


def problems_of(entry: Entry) -> list[str]:
    """Return why a component cannot be used as it is declared; empty when nothing is to be seen.

    What is missing because a requirement is not installed is no fault of the declaration. Whether
    a target that is only named has the methods of its kind shows when it is used.
    """
    problems = []
    for field, target in (("target", entry.target), ("why_not", entry.component.why_not)):
        reason = "" if target is None else _why_not_there(target)
        if reason:
            problems.append(f"{field} {target}: {reason}")
    if entry.cls is not None and not problems:
        problems += _raised(lambda: require_interface(entry, entry.cls), entry)
    for read in (load_options, load_params):
        problems += _raised(lambda read=read: read(entry), entry)  # type: ignore[misc]
    return problems


def _raised(call: Callable[[], object], entry: Entry) -> list[str]:
    """Return what is wrong by an error that a call raises, on one line, or nothing."""
    try:
        call()
    except PluginError as error:
        what = error.headline.removeprefix(f"{title(entry)} ")
        is_said = what != error.headline and not what.startswith("has invalid")
        return ["; ".join([what] * is_said + [one for one in error.facts if one])]
    return []


def _why_not_there(target: str) -> str:
    """Return why there is nothing at `package.module:Name`, or "" if there is or may be."""
    module, _, attribute = target.rpartition(":")
    try:
        with redirect_stdout(sys.stderr):
            file = _source_of(module)
        names = None if file is None else _names_in(file)
    except FAULTS as error:  # a package may raise anything when it is imported
        raise_if_signalled(error)
        return describe(error)
    first = attribute.partition(".")[0]
    return "" if names is None or first in names else f"module '{module}' has no '{attribute}'"


def _source_of(module: str) -> Path | None:
    """Return the file of a module; None where it is no Python source.

    Raises ModuleNotFoundError when there is none, and what its packages raise when imported.
    """
    if module.endswith(".py"):
        return Path(module)
    spec = importlib.util.find_spec(module)
    if spec is None:
        message = f"No module named '{module}'"
        raise ModuleNotFoundError(message, name=module)
    return Path(spec.loader.path) if isinstance(spec.loader, SourceFileLoader) else None


@cache
def _names_in(file: Path) -> frozenset[str] | None:
    """Return the names that a module binds; None when its source does not say all of them."""
    names = frozenset(_bound_by(ast.parse(file.read_bytes()).body))
    return None if names & {"*", "__getattr__"} else names


def _bound_by(statements: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield every name that these statements bind, and "*" for `import *`.

    Those inside branches count, and with them the locals of functions there: rather a name too
    many than a component called broken that is not.
    """
    for one in statements:
        is_scope = isinstance(one, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for node in [one] if is_scope else ast.walk(one):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name
            elif isinstance(node, ast.Import | ast.ImportFrom):
                yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
