"""Fields within fields: which of them nobody reads.

Knows how shapes of objects are written down. Does not know any API's shapes, or what is done about
fields that nobody reads (`exchange`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Kinds:
    """The shapes of objects that say by their `type` what they are. `default`: without one."""

    of: Mapping[str, Mapping[str, Any]]
    default: str = ""


#: what an object may hold; None: what is in there is not looked at. Of a list it is that of each
Shape: TypeAlias = Mapping[str, Any] | Kinds | None


def anything(*names: str) -> dict[str, Shape]:
    """Return the shape of an object that has these fields, whatever is in them."""
    return dict.fromkeys(names)


def unread_parts(body: Any, shapes: Mapping[str, Shape], template_text: str = "") -> list[str]:
    """Return what objects within a body hold that nobody reads, as `tools[].function.nmae`.

    With `template_text` they reach the template as they are, but for the parts of contents: what
    it names it may read. Of one kind of place each name is told once, in the order they come.
    """
    found: dict[str, None] = {}
    for field, shape in shapes.items():
        found.update(dict.fromkeys(_unknown(field, getattr(body, field), shape)))
    return [path for path in found if not _may_be_read(path, template_text)]


def top_field(path: str) -> str:
    """Return the field of the body that such a path begins with."""
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def _unknown(path: str, given: Any, shape: Shape) -> Iterator[str]:
    """Yield the paths; what is of a wrong type or kind is refused elsewhere."""
    if isinstance(given, list):
        for one in given:
            yield from _unknown(f"{path}[]", one, shape)
        return
    if isinstance(shape, Kinds):
        kind = given.get("type", shape.default) if isinstance(given, dict) else None
        shape = shape.of.get(kind) if isinstance(kind, str) else None
    if shape is None or not isinstance(given, dict):
        return
    for name, value in given.items():
        if name in shape:
            yield from _unknown(f"{path}.{name}", value, shape[name])
        elif value is not None:
            yield f"{path}.{name}"


def _may_be_read(path: str, template_text: str) -> bool:
    if not template_text or ".content[]" in path:
        return False
    name = path.rpartition(".")[2]
    return re.search(rf"\b{re.escape(name)}\b", template_text) is not None
