"""Resolution: layers of settings and a catalogue become one `ResolvedConfig`.

    file < flags < keywords      merged, later ones win
    sections                     validated
    plugins                      discovered, as [plugins] says
    kinds                        one chosen by name or `auto`; of a set, all or those listed

Either everything resolves or an error is raised; nothing is half applied. Imports no target of
a component, only the options models of those that were given options.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from octavo.config.ageing import ageing_notes
from octavo.config.auto import AutoContext, choose
from octavo.config.fields import HIDDEN, SECRETS
from octavo.config.load import (
    Layer,
    Written,
    layer_of_file,
    layer_of_flags,
    layer_of_keywords,
    merge,
)
from octavo.config.parsers import ROLES, named_parser
from octavo.config.resolved import ResolvedComponent, ResolvedConfig
from octavo.config.schema import SECTIONS, PluginsConfig
from octavo.errors import ConfigError, UnknownOptionError, did_you_mean
from octavo.plugin.build import validate_options
from octavo.plugin.catalogue import Catalogue, build_catalogue, component_of
from octavo.plugin.component import Component
from octavo.plugin.discovery import DiscoverySettings
from octavo.plugin.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from octavo.config.schema import Section
    from octavo.plugin.catalogue import Entry
    from octavo.plugin.kinds import Kind


class Resolution(NamedTuple):
    """A resolved config, and the catalogue it was resolved with."""

    config: ResolvedConfig
    catalogue: Catalogue


def resolve(
    catalogue: Catalogue | None = None,
    *,
    file: str | Path | None = None,
    flags: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ResolvedConfig:
    """Resolve settings from a config file, flags by their names, and keywords of Python.

    Without a catalogue, plugins are discovered as the settings say. Without a file,
    `OCTAVO_CONFIG` may name one. Raises ConfigError or PluginError.
    """
    return resolve_with_catalogue(
        catalogue, file=file, flags=flags, overrides=overrides, environ=environ
    ).config


def resolve_with_catalogue(
    catalogue: Catalogue | None = None,
    *,
    file: str | Path | None = None,
    flags: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Resolution:
    """Do as `resolve`, and return the catalogue as well."""
    layer = read_layers(file, flags, overrides, environ)
    sections: dict[str, Any] = {name: _section(name, layer) for name in SECTIONS}
    if catalogue is None:
        catalogue = build_catalogue(discovery_settings(sections["plugins"], environ))
    catalogue.check()
    catalogue = _with_passed_classes(catalogue, layer)
    active = {
        kind.name: _choose_set(catalogue, kind, layer)
        for kind in KINDS.values()
        if kind.mode != "one"
    }
    chosen: dict[str, ResolvedComponent] = {}
    # what is named comes first: a mistake in it is told before `auto` asks, which may take time
    singles = [kind for kind in KINDS.values() if kind.mode == "one"]
    for kind in sorted(singles, key=lambda kind: _use(kind, layer)[0] == "auto"):
        context = AutoContext(engine=sections["engine"], model=sections["model"], chosen=chosen)
        chosen[kind.name] = _choose_one(catalogue, kind, layer, context)
    chosen = {kind.name: chosen[kind.name] for kind in singles}
    _add_defaults(catalogue, chosen, layer)
    sections["engine"] = _section("engine", layer)
    origins = {".".join(path): written.where for path, written in layer.values.items()}
    in_use = (*chosen.values(), *(one for every in active.values() for one in every))
    notes = (*layer.notes, *ageing_notes(catalogue, in_use, layer))
    config = ResolvedConfig(**sections, chosen=chosen, active=active, origins=origins, notes=notes)
    _check_names_in_use(config)
    return Resolution(config, catalogue)


def read_layers(
    file: str | Path | None,
    flags: Mapping[str, Any] | None,
    overrides: Mapping[str, Any] | None,
    environ: Mapping[str, str],
) -> Layer:
    """Read and merge all layers. Raises ConfigError."""
    file = file or environ.get("OCTAVO_CONFIG") or None
    return merge(
        layer_of_file(file) if file else Layer(),
        layer_of_flags(flags or {}),
        layer_of_keywords(overrides or {}),
    )


def discovery_settings(plugins: PluginsConfig, environ: Mapping[str, str]) -> DiscoverySettings:
    """Return what to discover, as the section and the environment say."""
    return DiscoverySettings(
        files=plugins.files,
        only=plugins.only,
        disable=plugins.disable,
        allow_replace=plugins.allow_replace,
        strict=plugins.strict,
        stock_only=environ.get("OCTAVO_NO_PLUGINS", "0") not in {"", "0"},
    )


def catalogue_for(
    *,
    file: str | Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Catalogue:
    """Discover plugins as the settings say, and resolve nothing else. Raises ConfigError."""
    plugins = _section("plugins", read_layers(file, flags, None, environ))
    assert isinstance(plugins, PluginsConfig)  # noqa: S101 - the schema says so
    return build_catalogue(discovery_settings(plugins, environ))


def _section(name: str, layer: Layer) -> Section:
    written = {path[1]: one for path, one in layer.values.items() if path[0] == name}
    try:
        return SECTIONS[name].model_validate({key: one.value for key, one in written.items()})
    except ValidationError as error:
        problems = []
        for one in error.errors(include_url=False, include_context=False):
            key = str(one["loc"][0])
            text = one["msg"].removeprefix("Value error, ")
            message = text[:1].lower() + text[1:]
            given = written[key].value if len(one["loc"]) == 1 else one["input"]
            shown = HIDDEN if (name, key) in SECRETS else f"{given!r:.80}"
            problems.append((f"invalid value {shown} ({written[key].where})", message))
    if len(problems) == 1:
        raise ConfigError(*problems[0])
    headline = f"{len(problems)} invalid values"
    raise ConfigError(headline, *(f"{what}: {why}" for what, why in problems))


def _with_passed_classes(catalogue: Catalogue, layer: Layer) -> Catalogue:
    """Add the classes and Components that were passed in Python, and name them in the layer."""
    for kind in KINDS:
        written = layer.values.get((kind, "use"))
        if written is None:
            continue
        values = written.value if isinstance(written.value, (list, tuple)) else [written.value]
        names = []
        for value in values:
            component = component_of(value) if isinstance(value, type) else value
            if isinstance(component, Component):
                catalogue = catalogue.with_component(kind, component)
                names.append(component.name)
            else:
                names.append(component)
        is_list = isinstance(written.value, (list, tuple))
        layer.values[kind, "use"] = Written(names if is_list else names[0], written.where)
    return catalogue


def _use(kind: Kind, layer: Layer) -> tuple[Any, str]:
    """Return what was chosen of a kind, and where."""
    written = layer.values.get((kind.name, "use"))
    return (written.value, written.where) if written else (kind.default, "default")


def _choose_one(
    catalogue: Catalogue, kind: Kind, layer: Layer, context: AutoContext
) -> ResolvedComponent:
    use, where = _use(kind, layer)
    if not isinstance(use, str):
        headline = f"invalid value {use!r:.80} ({where})"
        raise ConfigError(headline, f"a {kind.name} is chosen by one name, or 'auto'")
    if use == "auto":
        entry, why = choose(catalogue, kind.name, context, where)
    else:
        entry, why = catalogue.get(kind.name, use, where), where
    options = {
        path[1]: one
        for path, one in layer.values.items()
        if path[0] == kind.name and path[1] != "use"
    }
    return _resolved(entry, why, options)


def _choose_set(catalogue: Catalogue, kind: Kind, layer: Layer) -> tuple[ResolvedComponent, ...]:
    use, where = _use(kind, layer)
    entries: tuple[Entry, ...] = catalogue.all(kind.name)
    if use == "all":
        catalogue.require_whole(kind.name)
    else:
        names = use.split(",") if isinstance(use, str) else use
        if not isinstance(names, list | tuple) or not all(isinstance(one, str) for one in names):
            headline = f"invalid value {use!r:.80} ({where})"
            raise ConfigError(headline, f"{kind.plural} are chosen by a list of names, or 'all'")
        entries = tuple(catalogue.get(kind.name, name.strip(), where) for name in names)
    in_use = [entry.name for entry in entries]
    for path, one in layer.values.items():
        if path[0] == kind.name and path[1] != "use" and path[1] not in in_use:
            headline = f"options of {kind.name} '{path[1]}', which is not in use ({one.where})"
            facts = did_you_mean(path[1], in_use), f"in use: {', '.join(in_use)}"
            raise UnknownOptionError(headline, *facts)
    return tuple(
        _resolved(
            entry,
            where,
            {
                path[2]: one
                for path, one in layer.values.items()
                if path[:2] == (kind.name, entry.name)
            },
        )
        for entry in entries
    )


def _add_defaults(
    catalogue: Catalogue, chosen: Mapping[str, ResolvedComponent], layer: Layer
) -> None:
    """Add the settings of the engine that chosen components suggest, where nothing is written."""
    for kind, one in chosen.items():
        where = f"default of {kind} '{one.name}'"
        for key, value in catalogue.get(kind, one.name).component.defaults.items():
            layer.values.setdefault(("engine", key), Written(value, where))


def _resolved(entry: Entry, why: str, options: dict[str, Written]) -> ResolvedComponent:
    values: dict[str, Any] = {}
    if options:  # else the model is imported where the component is built, and its defaults hold
        where = ", ".join(dict.fromkeys(one.where for one in options.values()))
        given = {key: one.value for key, one in options.items()}
        values = validate_options(entry, given, where).model_dump(mode="json", by_alias=True)
    resolved = ResolvedComponent(
        kind=entry.kind,
        name=entry.name,
        target=entry.target,
        options_target=entry.options_target,
        options=values,
        params_target=entry.params_target,
        provider=entry.provider,
        why=why,
        requires=entry.requires,
        offers=tuple(sorted(entry.component.offers)),
        rank=entry.component.rank,
    )
    resolved._cls = entry.cls  # noqa: SLF001 - ours: the class stays with the config in this process
    resolved._options_cls = entry.options_cls  # noqa: SLF001 - as above
    resolved._params_cls = entry.params_cls  # noqa: SLF001 - as above
    return resolved


def _check_names_in_use(config: ResolvedConfig) -> None:
    """Check the settings that name a component of a set."""
    for kind, key, name in (
        ("weights", "load-format", config.model.load_format),
        ("tokenizer", "tokenizer-mode", config.model.tokenizer_mode),
    ):
        if name != "auto":
            config.component(kind, name, config.origins.get(f"model.{key}", key))
    for role in ROLES:
        named_parser(config, role)
