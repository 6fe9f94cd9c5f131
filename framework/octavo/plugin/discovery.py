"""Find plugins, apply the block list, import what is left, and let each declare.

Whatever goes wrong in one plugin is that plugin's state, never an exception: it is `broken`,
declares nothing, and its error is shown to whoever misses one of its names.

Knows entry points and files. Does not know which component wins a name (`catalogue`), nor
config files.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from octavo.errors import InvalidComponentError, PluginError, UnknownOptionError, did_you_mean
from octavo.faults import FAULTS, describe, place_of, raise_if_signalled
from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component
from octavo.plugin.files import import_file
from octavo.plugin.kinds import KINDS
from octavo.plugin.versions import api_deprecation, api_problem
from octavo.quiet_imports import imports_print_to_stderr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from importlib.metadata import Distribution, EntryPoint
    from types import ModuleType

    from octavo.plugin.manager import HookManager

GROUP = "octavo"
STOCK = "octavo"
_HOOKS = {kind.hook: kind for kind in KINDS.values()}


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoverySettings:
    """What to load. Names are those of distributions, or `distribution:entry-point`."""

    files: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    """If set, distributions to load beside the stock one; others are `disabled`."""
    disable: tuple[str, ...] = ()
    allow_replace: tuple[str, ...] = ()
    """Names (or `kind:name`) that a plugin may take over from another."""
    strict: bool = False
    """Any broken plugin is fatal."""
    stock_only: bool = False
    """Load no third-party plugin at all (`OCTAVO_NO_PLUGINS`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRecord:
    """One plugin: where it came from, what became of it, and what it declared."""

    name: str
    distribution: str
    version: str
    value: str
    origin: Literal["entry-point", "file", "python"]
    state: Literal["active", "disabled", "broken"] = "active"
    reason: str = ""
    plugin: OctavoSpecs | None = None
    components: tuple[tuple[str, Component[Any]], ...] = ()

    @property
    def deprecations(self) -> tuple[str, ...]:
        """What it does that will end, one sentence each."""
        texts = (api_deprecation(KINDS[kind], component) for kind, component in self.components)
        return tuple(text for text in texts if text)

    @property
    def provider(self) -> str:
        """How messages call it: `octavo 0.1.0`, `my_plugin.py`, or `passed in Python`."""
        return f"{self.distribution} {self.version}" if self.distribution else self.name

    def has_to_do_with(self, name: str) -> bool:
        """Return whether whoever asks for `name` may have meant something of this plugin."""
        return name in f"{self.name} {self.distribution} {self.value}"

    @property
    def key(self) -> str:
        """A name that is unique among the plugins of a catalogue."""
        return f"{self.distribution}:{self.name}" if self.distribution else self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A plugin that was found and not yet imported."""

    name: str
    distribution: str
    version: str
    value: str
    origin: Literal["entry-point", "file"]
    load: Callable[[], object]


def discover(settings: DiscoverySettings, manager: HookManager) -> list[PluginRecord]:
    """Return every plugin there is, stock first, then by distribution and entry point, then files.

    Those that are active are registered with the manager, in this order.

    Raises UnknownOptionError when `only` or `disable` names nothing that is installed.
    """
    found = [*_from_entry_points(), *_from_files(settings.files)]
    _check_names(settings, found)
    return [_settle(one, settings, manager) for one in found]


def declare(plugin: OctavoSpecs) -> tuple[tuple[str, Component[Any]], ...]:
    """Call every hook that the plugin overrides, and return `(kind, component)` pairs.

    Raises InvalidComponentError for a misspelt hook or what is not a Component of this api.
    """
    declared: list[tuple[str, Component[Any]]] = []
    for hook in _overridden_hooks(plugin):
        kind = _HOOKS[hook]
        for component in getattr(plugin, hook)():
            _check_component(component, hook)
            if (kind.name, component.name) in ((k, c.name) for k, c in declared):
                headline = f"{kind.name} '{component.name}' is declared twice"
                raise InvalidComponentError(headline)
            declared.append((kind.name, component))
    return tuple(declared)


def plugin_in(module: ModuleType) -> OctavoSpecs:
    """Return the plugin of a one-file module: its `plugin`, or its one OctavoSpecs subclass.

    Raises InvalidComponentError when there is none, or more than one.
    """
    plugin = getattr(module, "plugin", None)
    if plugin is not None:
        return _as_plugin(plugin)
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, OctavoSpecs)
        and value.__module__ == module.__name__
    ]
    if len(classes) == 1:
        return classes[0]()
    how_many = f"{len(classes)} subclasses" if classes else "no subclass"
    headline = f"the file has {how_many} of OctavoSpecs and no `plugin`"
    raise InvalidComponentError(headline, "write: class Plugin(OctavoSpecs), plugin = Plugin()")


def _from_entry_points() -> Iterator[_Found]:
    names: dict[Distribution | None, tuple[str, str]] = {}  # reading METADATA takes its time
    found = []
    for entry in entry_points(group=GROUP):
        if entry.dist not in names:
            names[entry.dist] = _name_and_version(entry.dist)
        found.append((*names[entry.dist], entry))

    def order(one: tuple[str, str, EntryPoint]) -> tuple[bool, str, str]:
        distribution, _, entry = one
        return distribution != STOCK, distribution, entry.name

    for distribution, version, entry in sorted(found, key=order):
        yield _Found(
            name=entry.name,
            distribution=distribution,
            version=version,
            value=entry.value,
            origin="entry-point",
            load=lambda entry=entry: _load(entry),  # type: ignore[misc]
        )


def _load(entry: EntryPoint) -> object:
    if not entry.pattern.match(entry.value):
        headline = f"the entry point '{entry.name} = {entry.value}' names no object"
        raise InvalidComponentError(headline, "write: NAME = package.module:plugin")
    return entry.load()


def _from_files(files: Iterable[str]) -> Iterator[_Found]:
    for file in dict.fromkeys(files):
        yield _Found(
            name=Path(file).name,
            distribution="",
            version="",
            value=file,
            origin="file",
            load=lambda file=file: plugin_in(import_file(file)),  # type: ignore[misc]
        )


def _name_and_version(distribution: Distribution | None) -> tuple[str, str]:
    """Return what METADATA says; what was half removed may have none, and is still named."""
    metadata = None if distribution is None else distribution.metadata
    if metadata is not None and "Name" in metadata and "Version" in metadata:
        return metadata["Name"], metadata["Version"]
    folder = Path(str(getattr(distribution, "_path", "unknown"))).name
    name, _, version = folder.removesuffix(".dist-info").partition("-")
    return name.replace("_", "-"), version or "(no version)"


def _check_names(settings: DiscoverySettings, found: list[_Found]) -> None:
    known = {one.distribution for one in found if one.distribution}
    known |= {f"{one.distribution}:{one.name}" for one in found if one.distribution}
    for key, names in (("only", settings.only or ()), ("disable", settings.disable)):
        for name in names:
            if name not in known:
                headline = f"unknown plugin '{name}' ([plugins] {key})"
                installed = sorted({one.distribution for one in found if one.distribution})
                raise UnknownOptionError(
                    headline,
                    did_you_mean(name, known),
                    f"installed: {', '.join(installed)}",
                    "a plugin is named by its distribution, or distribution:entry-point",
                )


def _settle(found: _Found, settings: DiscoverySettings, manager: HookManager) -> PluginRecord:
    """Import a plugin, let it declare and register it, unless it is blocked."""
    facts: dict[str, Any] = {
        name: getattr(found, name) for name in ("name", "distribution", "version", "value")
    }
    facts["origin"] = found.origin
    blocked = _blocked_by(found, settings)
    if blocked:
        return PluginRecord(**facts, state="disabled", reason=blocked)
    try:
        with imports_print_to_stderr():
            plugin = _as_plugin(found.load())
            components = declare(plugin)
        _register(manager, plugin, f"{found.distribution}:{found.name}")
    except FAULTS as error:  # a plugin may raise anything; it is kept
        raise_if_signalled(error)
        place = "" if isinstance(error, PluginError) else place_of(error)
        reason = describe(error) + (f" ({place})" if place else "")
        return PluginRecord(**facts, state="broken", reason=reason)
    return PluginRecord(**facts, plugin=plugin, components=components)


def _register(manager: HookManager, plugin: OctavoSpecs, key: str) -> None:
    """Register a plugin. Raises InvalidComponentError for one that is there already."""
    if manager.is_registered(plugin):
        headline = f"this plugin object is registered already, as {manager.get_name(plugin)}"
        raise InvalidComponentError(headline)
    manager.register(plugin, key)


def _blocked_by(found: _Found, settings: DiscoverySettings) -> str:
    names = {found.distribution, f"{found.distribution}:{found.name}"}
    if found.origin == "file":
        return ""  # named on the command line or in the config: asked for
    if names & set(settings.disable):
        return "[plugins] disable"
    if found.distribution == STOCK:
        return ""
    if settings.stock_only:
        return "OCTAVO_NO_PLUGINS"
    if settings.only is not None and not names & set(settings.only):
        return "not in [plugins] only"
    return ""


def _as_plugin(plugin: object) -> OctavoSpecs:
    if isinstance(plugin, OctavoSpecs):
        return plugin
    if isinstance(plugin, type) and issubclass(plugin, OctavoSpecs):
        headline = f"the plugin is the class {plugin.__name__}, not an instance"
        raise InvalidComponentError(headline, f"write: plugin = {plugin.__name__}()")
    headline = f"the plugin is a {type(plugin).__name__}, not an instance of OctavoSpecs"
    raise InvalidComponentError(headline)


def _overridden_hooks(plugin: OctavoSpecs) -> list[str]:
    """Return the hooks the plugin overrides, in the order of the table of kinds."""
    written = {name for name in dir(plugin) if name.startswith("octavo_")}
    for name in sorted(written - set(_HOOKS)):
        headline = f"unknown hook '{name}'"
        raise InvalidComponentError(headline, did_you_mean(name, _HOOKS))
    return [
        hook
        for hook in _HOOKS
        if getattr(type(plugin), hook, None) is not getattr(OctavoSpecs, hook)
    ]


def _check_component(component: object, hook: str) -> None:
    kind = _HOOKS[hook]
    if not isinstance(component, Component):
        headline = f"{hook} returned a {type(component).__name__}, not a Component"
        raise InvalidComponentError(headline)
    problem = api_problem(kind, component)
    if problem:
        newer = "Octavo" if component.api > kind.api else "version of the plugin"
        raise InvalidComponentError(problem, f"'{component.name}' needs a newer {newer}")
