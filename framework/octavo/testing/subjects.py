"""What is under test: one component, with its options, and how to build it again and again.

Knows the catalogue, files and classes. Does not know invariants, pytest or hypothesis.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from octavo.config.auto import AutoContext, reasons_against
from octavo.config.resolved import ResolvedComponent
from octavo.config.schema import EngineConfig, ModelConfig
from octavo.errors import (
    InvalidComponentError,
    OctavoError,
    PluginBrokenError,
    UnknownComponentError,
    did_you_mean,
)
from octavo.faults import describe
from octavo.plugin.build import build, load, require_interface, validate_options
from octavo.plugin.catalogue import PYTHON, Catalogue, Entry, build_catalogue, component_of
from octavo.plugin.component import Component
from octavo.plugin.discovery import (
    DiscoverySettings,
    PluginRecord,
    declare,
    plugin_in,
)
from octavo.plugin.files import import_file, import_target
from octavo.plugin.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from pydantic import BaseModel

Aim: TypeAlias = Literal["smallest", "first", "any"]


@dataclass(slots=True, eq=False)
class Subject:
    """A component under test.

    `sample` is what some kinds need beside it: a model's path, a config, parameters of a request.
    `effort` multiplies the number of cases, and `aim` says what is looked for: of each promise the
    smallest case that breaks it, the first, or one of any promise, whichever comes first.
    `memory` holds what checks have found out together, and `ends` how to end what they share.
    """

    entry: Entry
    options: Mapping[str, Any] = field(default_factory=dict)
    sample: Any = None
    effort: float = 1.0
    aim: Aim = "smallest"
    record: PluginRecord | None = None
    memory: dict[Hashable, Any] = field(default_factory=dict)
    ends: list[Callable[[], None]] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """Return the kind's name."""
        return self.entry.kind

    @property
    def name(self) -> str:
        """Return the component's name."""
        return self.entry.name

    @property
    def cls(self) -> type[Any]:
        """Return the component's class, imported."""
        return load(self.entry)

    def settings(self) -> BaseModel:
        """Return its validated options."""
        return validate_options(self.entry, self.options)

    def build(self, **context: Any) -> Any:
        """Return a fresh component."""
        return build(self.entry, self.options, **context)

    def close(self) -> None:
        """End what checks share, and forget it. Later checks begin anew."""
        self.memory.clear()
        while self.ends:
            self.ends.pop()()

    def offers(self, fact: str) -> bool:
        """Return whether it declares a fact."""
        return fact in self.entry.component.offers

    def reasons_against(self) -> list[str]:
        """Return why it cannot run on this machine, whatever is chosen beside it.

        One that `auto` never takes says so by offering `by-name-only`: it has no such reasons.
        """
        if self.offers("by-name-only"):
            return []
        given = self.sample if isinstance(self.sample, dict) else {}
        engine = EngineConfig(**{k: v for k, v in given.items() if k in EngineConfig.model_fields})
        nothing = MappingProxyType[str, ResolvedComponent]({})
        contexts = [
            one(engine=engine, model=ModelConfig(), chosen=nothing)
            for one in (AutoContext, _Beside)
        ]
        return min((reasons_against(self.entry, one) for one in contexts), key=len)


class _Beside(AutoContext):
    """Every other kind offers what is asked for."""

    def is_offered(self, kind: str, fact: str) -> bool:
        """Return True."""
        del kind, fact
        return True


@functools.cache
def stock_catalogue() -> Catalogue:
    """Return the catalogue of the stock components, which stand around the one under test."""
    return build_catalogue(DiscoverySettings(stock_only=True))


def stock(kind: str, name: str, options: Mapping[str, Any] | None = None, **context: Any) -> Any:
    """Return a fresh stock component."""
    return build(stock_catalogue().get(kind, name), options, **context)


def subject_of(
    kind: str,
    component: str | type | Component[Any],
    options: Mapping[str, Any] | None = None,
    *,
    catalogue: Catalogue | None = None,
    sample: Any = None,
) -> Subject:
    """Return the subject that a name, `FILE.py:Class`, a class or a Component stands for.

    Raises UnknownComponentError for a name that nobody provides, PluginBrokenError when its
    target cannot be imported, and InvalidComponentError for what is no such component.
    """
    record = None
    if isinstance(component, Component):
        entry = Entry(kind=kind, component=component, provider=PYTHON)
    elif isinstance(component, type):
        entry = Entry(kind=kind, component=component_of(component), provider=PYTHON)
    elif ".py:" in component:
        entry = entry_in_file(component)
    else:
        catalogue = catalogue or build_catalogue()
        entry = catalogue.get(kind, component, "octavo.testing")
        record = _record_of(entry, catalogue)
    subject = Subject(entry, dict(options or {}), sample, record=record)
    _require_interface(subject)
    return subject


def entry_in_file(target: str) -> Entry:
    """Return the component that a class in a file is, as the file's own plugin declares it.

    The kind is that of the interface which the class implements. Raises PluginBrokenError when
    the file cannot be imported, and the errors of `subject_of`.
    """
    path, _, attribute = target.rpartition(":")
    try:
        module = import_file(path)
    except OctavoError:
        raise
    except Exception as error:
        headline = f"cannot import {path}"
        raise PluginBrokenError(headline, describe(error)) from error
    value = getattr(module, attribute, None)
    if not isinstance(value, type):
        classes = [name for name, one in vars(module).items() if isinstance(one, type)]
        raise UnknownComponentError(
            f"there is no class '{attribute}' in {path}", did_you_mean(attribute, classes)
        )
    kind = kind_of(value)
    for declared_kind, component in _declared_in(module):
        if declared_kind == kind and _is_target(component, value):
            return Entry(kind=kind, component=component, provider=path)
    return Entry(kind=kind, component=component_of(value), provider=path)


def kind_of(cls: type) -> str:
    """Return the kind whose interface a class implements. Raises InvalidComponentError."""
    names = {f"{base.__module__}:{base.__qualname__}" for base in cls.__mro__}
    for kind in KINDS.values():
        if kind.interface in names:
            return kind.name
    raise InvalidComponentError(
        f"the class {cls.__qualname__} implements no interface of octavo",
        f"its bases are {', '.join(base.__qualname__ for base in cls.__mro__[1:])}",
        f"interfaces: {', '.join(sorted(kind.interface for kind in KINDS.values()))}",
    )


def _declared_in(module: Any) -> tuple[tuple[str, Component[Any]], ...]:
    try:
        return declare(plugin_in(module))
    except InvalidComponentError:  # the file is no plugin, which it need not be
        return ()


def _is_target(component: Component[Any], cls: type) -> bool:
    if isinstance(component.target, type):
        return component.target is cls
    return import_target(component.target) is cls


def _record_of(entry: Entry, catalogue: Catalogue) -> PluginRecord | None:
    for record in catalogue.plugins:
        if (entry.kind, entry.component) in record.components:
            return record
    return None


def _require_interface(subject: Subject) -> None:
    """Raise InvalidComponentError unless the class implements its kind's interface."""
    if subject.kind == "scheduler" and hasattr(subject.cls, "plan"):
        return  # a whole core, which holds policies
    require_interface(subject.entry, subject.cls)
