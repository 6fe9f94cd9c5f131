"""What is wrong with a declared component, found without importing it.

A target is looked for in its source, since importing it may take seconds and need a device; the
models of options and parameters are imported, as every command that is given some does.

Knows declarations and source text. Does not know what any component does.
"""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import PluginError
from octavo.faults import describe
from octavo.plugin.build import load_options, load_params

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from octavo.plugin.catalogue import Entry


def problems_of(entry: Entry) -> list[str]:
    """Return why a component cannot be used as it is declared; empty when nothing is to be seen.

    What is missing because a requirement is not installed is no fault of the declaration.
    """
    problems = []
    for field, target in (("target", entry.target), ("why_not", entry.component.why_not)):
        reason = "" if target is None else _why_not_there(target)
        if reason:
            problems.append(f"{field} {target}: {reason}")
    for load in (load_options, load_params):
        try:
            load(entry)
        except PluginError as error:
            problems.append("; ".join(error.facts))
    return problems


def _why_not_there(target: str) -> str:
    """Return why there is nothing at `package.module:Name`, or "" if there is or may be."""
    module, _, attribute = target.rpartition(":")
    try:
        file = _source_of(module)
        names = None if file is None else _names_in(file)
    except Exception as error:  # noqa: BLE001 - a package may raise anything when it is imported
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
