"""`Component`: one named thing that a plugin offers, declared without importing it.

Knows names and dotted targets. Does not know kinds, plugins or pydantic, so that a module of
declarations costs nothing to import.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from octavo.errors import InvalidComponentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from octavo.plugin.options import RequestParams

T_co = TypeVar("T_co", covariant=True)

NAME = re.compile(r"[a-z][a-z0-9-]*")
#: `package.module:Class`, or `path/to/file.py:Class` for what `--plugin` loaded
TARGET = re.compile(r"(?:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*|.+\.py):[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Component(Generic[T_co]):
    """One implementation of an interface, by name.

    The target is built as `target(options, **context)`: `options` is the validated instance of
    the options model (`NoOptions` if none is declared), the context is the kind's own.

    Raises InvalidComponentError when a field is malformed. Nothing is imported.
    """

    name: str
    """Lower-case words joined by hyphens; what config files and flags use."""
    target: str | type[T_co]
    """`"package.module:Class"`, imported when chosen; or the class, in a one-file plugin."""
    options: str | type[BaseModel] | None = None
    """The options model, given like `target`: pydantic, frozen, no unknown keys."""
    params: str | type[RequestParams] | None = None
    """The model of what a single request may set for it, given like `target`: a subclass of
    `octavo.plugin.options.RequestParams`. The server process imports its module: no torch there."""
    summary: str = ""
    """One line for `octavo plugins list`."""
    offers: frozenset[str] = frozenset()
    """Flat facts that others may ask for, e.g. names of model architectures."""
    requires: tuple[str, ...] = ()
    """What pip must have installed for the target to import, e.g. `"xgrammar>=0.2"`."""
    replaces: str | None = None
    """Set to `name` to take over another distribution's component of that name."""
    api: int = 1
    """The version of the kind's interface that the target is written for."""
    why_not: str | None = None
    """`"package.module:function"` in a light module, called with an AutoContext for `auto`; it
    returns the reasons why the component cannot run here."""
    rank: int = 0
    """`auto` asks candidates of higher rank first."""
    defaults: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Settings of `[engine]`, by their keys, that suit it when it is chosen and nobody says."""

    def __post_init__(self) -> None:
        """Refuse what could only fail later, and further from its cause."""
        problem = _problem(self)
        if problem:
            headline = f"invalid component {self.name!r}"
            raise InvalidComponentError(headline, problem)

    @property
    def target_path(self) -> str:
        """The target as text, also when a class was given."""
        return path_of(self.target)

    @property
    def options_path(self) -> str | None:
        """The options model as text, also when a class was given."""
        return None if self.options is None else path_of(self.options)

    @property
    def params_path(self) -> str | None:
        """The model of a request's parameters as text, also when a class was given."""
        return None if self.params is None else path_of(self.params)


def path_of(target: str | type) -> str:
    """Return `module:qualified.name` of a class, or the text unchanged."""
    if isinstance(target, str):
        return target
    return f"{target.__module__}:{target.__qualname__}"


def kebab_name(cls: type) -> str:
    """Return the name of a class passed without one: its attribute `name`, or kebab-case.

    `ShortestJobFirst` is `shortest-job-first`; `HTTPSource` is `http-source`.
    """
    named = getattr(cls, "name", None)
    if isinstance(named, str):
        return named
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", cls.__name__)
    return words.replace("_", "-").strip("-").lower()


def _problem(component: Any) -> str | None:
    # `Any`: a plugin that is not type-checked may hand over anything
    if not isinstance(component.name, str) or not NAME.fullmatch(component.name):
        return "a name is lower-case letters, digits and hyphens, and starts with a letter"
    for name in ("target", "options", "params", "why_not"):
        value = getattr(component, name)
        if isinstance(value, type) or (value is None and name != "target"):
            continue
        if not isinstance(value, str) or not TARGET.fullmatch(value):
            return f"{name} must be 'package.module:Name', got {value!r}"
    if component.replaces not in (None, component.name):
        return f"replaces must be its own name, {component.name!r}, got {component.replaces!r}"
    if not isinstance(component.api, int) or isinstance(component.api, bool):
        return f"api must be a whole number, got {component.api!r}"
    if not isinstance(component.defaults, dict):
        return f"defaults are a dict of settings, got {component.defaults!r}"
    if isinstance(component.offers, str) or isinstance(component.requires, str):
        return "offers and requires are collections of strings, got one string"
    return None
