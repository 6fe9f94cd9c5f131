"""The catalogue: every component by kind and name, each from exactly one provider.

A catalogue is a value. Building one is a function of the settings and of what is installed;
adding a class makes another one. Nothing here is global.

Knows who declares what. Does not know config files, nor how a component is built (`build`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from octavo.errors import (
    ComponentConflictError,
    InvalidComponentError,
    PluginBrokenError,
    UnknownComponentError,
    did_you_mean,
)
from octavo.plugin.component import Component, kebab_name
from octavo.plugin.discovery import STOCK, DiscoverySettings, PluginRecord, discover
from octavo.plugin.files import portable
from octavo.plugin.kinds import KINDS
from octavo.plugin.manager import HookManager
from octavo.plugin.versions import api_problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pydantic import BaseModel

    from octavo.plugin.options import RequestParams

PYTHON = "passed in Python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A component together with its kind and who provides it."""

    kind: str
    component: Component[Any]
    provider: str

    @property
    def name(self) -> str:
        """The component's name."""
        return self.component.name

    @property
    def target(self) -> str:
        """Where the implementation is, as another process can import it."""
        return portable(self.component.target_path)

    @property
    def options_target(self) -> str | None:
        """Where the options model is, as another process can import it."""
        path = self.component.options_path
        return None if path is None else portable(path)

    @property
    def params_target(self) -> str | None:
        """Where the model of a request's parameters is, as another process can import it."""
        path = self.component.params_path
        return None if path is None else portable(path)

    @property
    def requires(self) -> tuple[str, ...]:
        """What pip must have installed for the target to import."""
        return self.component.requires

    @property
    def cls(self) -> type | None:
        """The class, when the component was declared with it."""
        target = self.component.target
        return target if isinstance(target, type) else None

    @property
    def options_cls(self) -> type[BaseModel] | None:
        """The options model, when the component was declared with it."""
        options = self.component.options
        return options if isinstance(options, type) else None

    @property
    def params_cls(self) -> type[RequestParams] | None:
        """The model of a request's parameters, when the component was declared with it."""
        params = self.component.params
        return params if isinstance(params, type) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Every plugin that was found, and every component they declare."""

    plugins: tuple[PluginRecord, ...]
    entries: Mapping[str, Mapping[str, Entry]]
    conflicts: Mapping[tuple[str, str], ComponentConflictError] = field(
        default_factory=lambda: MappingProxyType({})
    )
    strict: bool = False
    manager: HookManager = field(default_factory=HookManager, compare=False)
    """pluggy's manager with the active plugins, in order."""

    def check(self) -> None:
        """Raise the error of a plugin that was asked for by file.

        With strict plugins any conflict and any broken plugin is raised; otherwise they are only
        to whoever asks for what they concern. A catalogue without the stock plugins is an error
        as well: then octavo runs from a folder without being installed.
        """
        if not any(record.distribution == STOCK for record in self.plugins):
            headline = "octavo's own components are not found"
            fact = "octavo is not installed in this environment: pip install octavo"
            raise PluginBrokenError(headline, fact, "in a checkout: pip install -e .")
        if self.strict:
            for conflict in self.conflicts.values():
                raise conflict
        for record in self.broken:
            if self.strict or record.origin == "file":
                headline = f"cannot load plugin {record.provider}"
                where = f"from: {record.value}"
                raise PluginBrokenError(headline, record.reason, where)

    @property
    def broken(self) -> tuple[PluginRecord, ...]:
        """The plugins that could not be loaded."""
        return tuple(record for record in self.plugins if record.state == "broken")

    def all(self, kind: str) -> tuple[Entry, ...]:
        """Return all components of a kind: highest rank first, then by name."""
        entries = self.entries.get(kind, {}).values()
        return tuple(sorted(entries, key=lambda one: (-one.component.rank, one.name)))

    def get(self, kind: str, name: str, where: str = "") -> Entry:
        """Return the component of that kind and name. `where` says who asked, for the error.

        Raises UnknownComponentError, or ComponentConflictError when two provide it.
        """
        entry = self.entries.get(kind, {}).get(name)
        if entry is not None:
            return entry
        if (kind, name) in self.conflicts:
            raise self.conflicts[kind, name]
        raise self._unknown(kind, name, where)

    def require_whole(self, kind: str) -> None:
        """Raise the first conflict of a kind, for those who are about to ask all of it."""
        for (of_kind, _), conflict in self.conflicts.items():
            if of_kind == kind:
                raise conflict

    def offering(self, kind: str, fact: str) -> tuple[Entry, ...]:
        """Return the components of a kind that offer a fact, best first."""
        return tuple(entry for entry in self.all(kind) if fact in entry.component.offers)

    def with_component(
        self, kind: str, component: Component[Any], provider: str = PYTHON
    ) -> Catalogue:
        """Return a catalogue that has this component as well.

        Raises ComponentConflictError when the name is taken by another target, and
        InvalidComponentError when it is written for another version of the interface.
        """
        problem = api_problem(KINDS[kind], component)
        if problem:
            raise InvalidComponentError(f"{kind} '{component.name}' ({provider})", problem)
        if (kind, component.name) in self.conflicts:
            raise self.conflicts[kind, component.name]
        entry = Entry(kind=kind, component=component, provider=provider)
        taken = self.entries.get(kind, {}).get(component.name)
        if taken is not None:
            if taken.component.target_path == component.target_path:
                return self
            raise _conflict((taken, entry))
        of_kind = MappingProxyType({**self.entries.get(kind, {}), component.name: entry})
        return replace(self, entries=MappingProxyType({**self.entries, kind: of_kind}))

    def with_class(self, kind: str, cls: type) -> Catalogue:
        """Return a catalogue that has this class as well.

        Its name is the attribute `name`, or the class name in kebab-case; its models are the
        attributes `Options` and `Params`, or none.
        """
        return self.with_component(kind, component_of(cls))

    def _unknown(self, kind: str, name: str, where: str) -> UnknownComponentError:
        headline = f"unknown {kind} '{name}'" + (f" ({where})" if where else "")
        names = [entry.name for entry in self.all(kind)]
        elsewhere = [other for other in self.entries if name in self.entries[other]]
        facts = [
            did_you_mean(name, names),
            f"'{name}' is a component of kind {elsewhere[0]}" if elsewhere else "",
            f"available: {by_provider(self.all(kind))}" if names else f"no {kind} is loaded",
        ]
        for record in sorted(self.plugins, key=lambda one: not one.has_to_do_with(name)):
            if record.state == "broken":
                facts.append(f"not loaded: {record.provider}: {record.reason}")
            elif record.state == "disabled":
                facts.append(f"disabled: {record.provider} ({record.reason})")
        return UnknownComponentError(headline, *dict.fromkeys(facts))


def build_catalogue(settings: DiscoverySettings | None = None) -> Catalogue:
    """Discover plugins and put what they declare together.

    Conflicts and broken plugins do not raise here but in `Catalogue.check` (so that
    `octavo plugins list` can show them). Raises UnknownOptionError for a block list that names
    nothing.
    """
    settings = settings or DiscoverySettings()
    manager = HookManager()
    records = discover(settings, manager)
    manager.check_pending()
    return catalogue_of(records, settings, manager)


def catalogue_of(
    records: Iterable[PluginRecord],
    settings: DiscoverySettings | None = None,
    manager: HookManager | None = None,
) -> Catalogue:
    """Put the components of given plugins together; tests make their own records."""
    settings = settings or DiscoverySettings()
    records = tuple(records)
    declared: dict[tuple[str, str], list[Entry]] = {}
    for record in records:
        for kind, component in record.components:
            entry = Entry(kind=kind, component=component, provider=record.provider)
            declared.setdefault((kind, component.name), []).append(entry)
    tables: dict[str, dict[str, Entry]] = {kind: {} for kind in KINDS}
    conflicts = {}
    for (kind, name), entries in declared.items():
        winner = _winner(entries, settings.allow_replace)
        if winner is None:
            conflicts[kind, name] = _conflict(entries)
        else:
            tables[kind][name] = winner
    return Catalogue(
        plugins=records,
        entries=MappingProxyType({kind: MappingProxyType(table) for kind, table in tables.items()}),
        conflicts=MappingProxyType(conflicts),
        strict=settings.strict,
        manager=manager or HookManager(),
    )


def component_of(cls: type) -> Component[Any]:
    """Declare a class that was passed as it is."""
    options, params = getattr(cls, "Options", None), getattr(cls, "Params", None)
    offers = frozenset(getattr(cls, "offers", ()))
    return Component(
        name=kebab_name(cls), target=cls, options=options, params=params, offers=offers
    )


def by_provider(entries: Sequence[Entry]) -> str:
    """Return `fcfs, priority (octavo 0.1.0), sjf (octavo-example-scheduler 0.1.0)`."""
    groups: dict[str, list[str]] = {}
    for entry in entries:
        groups.setdefault(entry.provider, []).append(entry.name)
    return ", ".join(f"{', '.join(sorted(names))} ({who})" for who, names in groups.items())


def _winner(entries: list[Entry], allow_replace: Sequence[str]) -> Entry | None:
    """Return the one entry that has the name, or None if nothing decides between them."""
    if len(entries) == 1:
        return entries[0]
    kind, name = entries[0].kind, entries[0].name
    replacers = [entry for entry in entries if entry.component.replaces]
    is_allowed = name in allow_replace or f"{kind}:{name}" in allow_replace
    return replacers[0] if is_allowed and len(replacers) == 1 and len(entries) == 2 else None  # noqa: PLR2004


def _conflict(entries: Sequence[Entry]) -> ComponentConflictError:
    kind, name = entries[0].kind, entries[0].name
    headline = f"{kind} '{name}' is declared by {len(entries)} providers"
    lines = [f"{entry.provider}: {entry.target}" for entry in entries]
    if any(entry.provider == PYTHON for entry in entries):
        return ComponentConflictError(
            headline, *lines, "give the class passed in Python another `name`"
        )
    last = entries[-1].provider.split(" ", maxsplit=1)[0]
    willing = [entry.provider for entry in entries if entry.component.replaces]
    if willing:
        how = f'to let {willing[0]} take the name over: [plugins] allow-replace = ["{name}"]'
    else:
        how = f"neither says replaces='{name}', so neither can take the name over"
    return ComponentConflictError(
        headline, *lines, f'to keep only one: [plugins] disable = ["{last}"]', how
    )
