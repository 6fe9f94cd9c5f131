"""Say in text what a config holds: every setting and choice, and where it comes from.

Knows a ResolvedConfig. Does not know how to print.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.cli.columns import columns
from octavo.config.fields import HIDDEN, SECRETS, SETTINGS
from octavo.errors import PluginError
from octavo.plugin.build import validate_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from octavo.config.resolved import ResolvedComponent, ResolvedConfig


def explain(config: ResolvedConfig, broken: Sequence[str] = (), *, show_all: bool = False) -> str:
    """Return the settings with their origins, then each kind with what was chosen and why.

    `broken` says what is known to be wrong with components in use.

    Settings that are defaults, a component's too, are left out unless `show_all`. Imports the
    options models.
    """
    lines = ["settings" if show_all else "settings (other than defaults; --all shows every one)"]
    rows = [
        (f"{setting.section}.{setting.key}", _text(value), origin)
        for setting, value, origin in _settings(config)
        if show_all or not config.is_default(setting.section, setting.key)
    ]
    lines += [f"  {row}" for row in columns(rows)] or ["  none"]
    lines += ["", "components"]
    lines += [f"  {row}" for row in columns(_choices(config))]
    lines += ["", "broken", *(f"  {one}" for one in broken)] if broken else []
    for one in components(config):
        options = _options_or_none(one)
        if options:
            lines += ["", f"options of {one.kind} '{one.name}'"]
            origins = (_option_origin(config, one, key) for key in options)
            rows = [
                (key, _text(value), origin)
                for (key, value), origin in zip(options.items(), origins, strict=True)
            ]
            lines += [f"  {row}" for row in columns(rows)]
    return "\n".join(lines)


def as_data(config: ResolvedConfig, broken: Sequence[str] = ()) -> dict[str, Any]:
    """Return the config as plain data: secrets hidden, each option filled in, with its origin."""
    data: dict[str, Any] = config.model_dump(mode="json", by_alias=True)
    for section, key in SECRETS:
        data[section][key] = _hidden(data[section][key])
    for one in config.chosen.values():
        data["chosen"][one.kind] |= _options_data(config, one)
    for kind, every in config.active.items():
        for index, one in enumerate(every):
            data["active"][kind][index] |= _options_data(config, one)
    return data | ({"broken": list(broken)} if broken else {})


def _options_data(config: ResolvedConfig, one: ResolvedComponent) -> dict[str, Any]:
    options = _options_or_none(one)
    origins = {key: _option_origin(config, one, key) for key in options}
    return {"options": options, "option-origins": origins}


def components(config: ResolvedConfig) -> list[ResolvedComponent]:
    """Return every component in use."""
    return [*config.chosen.values(), *(one for every in config.active.values() for one in every)]


def effective_options(one: ResolvedComponent) -> dict[str, Any]:
    """Return a component's options with the defaults filled in.

    Raises PluginBrokenError when its options model cannot be imported.
    """
    return validate_options(one, one.options).model_dump(mode="json", by_alias=True)


def _options_or_none(one: ResolvedComponent) -> dict[str, Any]:
    """Return the effective options; none where their model is broken, which is told elsewhere."""
    try:
        return effective_options(one)
    except PluginError:
        return {}


def _settings(config: ResolvedConfig) -> Iterable[tuple[Any, Any, str]]:
    for setting in SETTINGS.values():
        value = getattr(getattr(config, setting.section), setting.key.replace("-", "_"))
        if setting.is_secret:
            value = _hidden(value)
        yield setting, value, config.origins.get(f"{setting.section}.{setting.key}", "default")


def _hidden(value: Any) -> Any:
    """Say whether a secret is set, and how many of a list are."""
    if isinstance(value, list | tuple):
        return [HIDDEN for _ in value]
    return None if value is None else HIDDEN


def _option_origin(config: ResolvedConfig, one: ResolvedComponent, key: str) -> str:
    for path in (f"{one.kind}.{key}", f"{one.kind}.{one.name}.{key}"):
        if path in config.origins:
            return config.origins[path]
    return "default"


def _choices(config: ResolvedConfig) -> Iterable[tuple[str, ...]]:
    """Yield a row for each component in use, with the kind's name on its first."""
    last = ""
    for one in components(config):
        kind = "" if one.kind == last else one.kind
        yield kind, one.name, one.provider, one.target, one.why  # the longest comes last
        last = one.kind


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
