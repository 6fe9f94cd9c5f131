"""What a class offers, as signatures with their meaning.

Knows Python's classes and the comments in their source. Does not know kinds.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from octavo.reference.markdown import first_line, inline

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIELD = re.compile(r"    (\w+)\s*:\s*[^=#]+?(?:=[^#]*?)?(?:\s{2}#:? (.*))?")


class Member(NamedTuple):
    """One method, property or field: its signature, and what it is for as Markdown."""

    signature: str
    text: str


def members(cls: type) -> Iterator[Member]:
    """Yield the fields of a class, then its properties and methods, in the order of the source.

    Abstract methods say so. What a class inherits is not its own.
    """
    comments = comments_of(cls)
    defaults = dict(vars(cls))
    if dataclasses.is_dataclass(cls):
        defaults = {one.name: one.default for one in dataclasses.fields(cls)}
    for name, annotation in inspect.get_annotations(cls).items():
        if not name.startswith("_"):
            default = _default(defaults.get(name, dataclasses.MISSING))
            yield Member(f"{name}: {annotation}{default}", comments.get(name, ""))
    for name, value in vars(cls).items():
        if name.startswith("_") or getattr(cls, name, None) is None:
            continue
        if isinstance(value, property) and value.fget is not None:
            returns = inspect.get_annotations(value.fget).get("return", "")
            yield Member(f"{name}: {returns}", _text(value, value.__doc__))
        elif inspect.isfunction(getattr(value, "__func__", value)):
            function = getattr(value, "__func__", value)
            yield Member(signature(function), _text(function, function.__doc__))


def _default(value: Any) -> str:
    if value is dataclasses.MISSING or callable(value) or isinstance(value, property):
        return ""
    if isinstance(value, frozenset) and value:
        return f" = frozenset({sorted(value)})"  # in one order
    return f" = {value!r}"


def _text(member: Any, doc: str | None) -> str:
    is_abstract = getattr(member, "__isabstractmethod__", False)
    return first_line(doc) + (" **Abstract.**" if is_abstract and doc else "")


def signature(function: Any) -> str:
    """Return `name(request: RequestView, num_tokens: int) -> int`, as the source has it."""
    notes = inspect.get_annotations(function)
    shown: list[str] = []
    is_open = True
    for name, one in inspect.signature(function).parameters.items():
        if name in {"self", "cls"}:
            continue
        if one.kind is one.KEYWORD_ONLY and is_open:
            shown.append("*")
            is_open = False
        if one.kind is one.VAR_POSITIONAL:
            is_open = False
        star = "*" if one.kind is one.VAR_POSITIONAL else ""
        star = "**" if one.kind is one.VAR_KEYWORD else star
        text = f"{star}{name}" + (f": {notes[name]}" if name in notes else "")
        shown.append(text if one.default is one.empty else f"{text} = {one.default!r}")
    returns = notes.get("return")
    return f"{function.__name__}({', '.join(shown)})" + (f" -> {returns}" if returns else "")


def comments_of(cls: type) -> dict[str, str]:
    """Return what the source says of each field: above it, behind it, or in a string below it."""
    found: dict[str, str] = {}
    above: list[str] = []
    for line in inspect.getsource(cls).splitlines():
        text = line.strip()
        if text.startswith(("#: ", "# ")) and (above or text.startswith("#: ")):
            above.append(text.partition(" ")[2])
            continue
        match = _FIELD.fullmatch(line)
        if match and (above or match[2]):
            found[match[1]] = inline(" ".join(above) or match[2])
        above = []
    (tree,) = ast.parse(inspect.getsource(cls)).body
    for field, below in pairwise(getattr(tree, "body", ())):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            found[ast.unparse(field.target)] = inline(
                " ".join(ast.literal_eval(below.value).split())
            )
    return found
