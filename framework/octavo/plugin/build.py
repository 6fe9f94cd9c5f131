"""From an entry to an instance: import the target, validate the options, call the class.

Only the process that runs a component calls this: the engine imports ops, the server does not.
Knows targets and options models. Does not know catalogues or config files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel, ValidationError

from octavo.errors import (
    ConfigError,
    InvalidComponentError,
    OctavoError,
    PluginBrokenError,
    UnknownOptionError,
    did_you_mean,
    explain_validation,
)
from octavo.faults import FAULTS, defined_at, describe, name_component, place_of, raise_if_signalled
from octavo.plugin.files import import_target
from octavo.plugin.kinds import KINDS
from octavo.plugin.options import INSTEAD, NoOptions, RequestParams, kebab

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class Buildable(Protocol):
    """What is needed to build a component: an Entry has it, and so has a resolved choice."""

    @property
    def kind(self) -> str:
        """The kind's name."""

    @property
    def name(self) -> str:
        """The component's name."""

    @property
    def provider(self) -> str:
        """Who provides it, as messages say it."""

    @property
    def target(self) -> str:
        """`package.module:Class` or `path/to/file.py:Class`."""

    @property
    def options_target(self) -> str | None:
        """The options model, written like `target`."""

    @property
    def requires(self) -> tuple[str, ...]:
        """What pip must have installed for the target to import."""

    @property
    def params_target(self) -> str | None:
        """The model of a request's parameters, written like `target`."""

    @property
    def cls(self) -> type | None:
        """The class itself, when it was passed in this process."""

    @property
    def options_cls(self) -> type[BaseModel] | None:
        """The options model itself, when it was passed in this process."""

    @property
    def params_cls(self) -> type[RequestParams] | None:
        """The model of a request's parameters itself, when it was passed in this process."""


def load(entry: Buildable) -> type:
    """Import the class of a component.

    Raises PluginBrokenError when that fails, with what to install if the component says so.
    """
    return entry.cls or _import(entry, entry.target, "target")


def load_options(entry: Buildable) -> type[BaseModel]:
    """Import the options model of a component; `NoOptions` when it declares none.

    Raises PluginBrokenError as `load`, InvalidComponentError when it is no strict model.
    """
    if entry.options_cls is None and entry.options_target is None:
        return NoOptions
    model = entry.options_cls or _import(entry, str(entry.options_target), "options")
    headline = f"{title(entry)} has invalid options"
    how = "class Options(octavo.plugin.options.ComponentOptions)"
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        name = getattr(model, "__qualname__", model)
        raise InvalidComponentError(headline, f"{name} is not a pydantic model", f"write: {how}")
    _require_strict(model, headline, how)
    return model


def load_params(entry: Buildable) -> type[RequestParams] | None:
    """Import the model of what a request may set for a component; None when it declares none.

    Raises PluginBrokenError as `load`, InvalidComponentError when it is no such model.
    """
    if entry.params_cls is None and entry.params_target is None:
        return None
    model = entry.params_cls or _import(entry, str(entry.params_target), "params")
    headline = f"{title(entry)} has invalid params"
    how = "class Params(octavo.plugin.options.RequestParams)"
    if not isinstance(model, type) or not issubclass(model, RequestParams):
        name = getattr(model, "__qualname__", model)
        raise InvalidComponentError(headline, f"{name} is not a RequestParams", f"write: {how}")
    _require_strict(model, headline, how)
    required = [name for name, field in model.model_fields.items() if field.is_required()]
    if required:
        raise InvalidComponentError(
            headline, f"{required[0]} needs a default: most requests do not give it"
        )
    return model


def _require_strict(model: type[BaseModel], headline: str, how: str) -> None:
    if model.model_config.get("extra") != "forbid" or not model.model_config.get("frozen"):
        raise InvalidComponentError(
            headline,
            f"{model.__qualname__} must be frozen and forbid unknown keys",
            f"write: {how}",
        )
    try:
        model.model_rebuild()  # nothing to do, unless an annotation names what was not there
    except FAULTS as error:
        raise_if_signalled(error)
        raise InvalidComponentError(headline, describe(error), f"at {defined_at(model)}") from error


def validate_options(entry: Buildable, values: Mapping[str, Any], where: str = "") -> BaseModel:
    """Return the validated options of a component.

    `where` says where they were written, for the error. Raises UnknownOptionError for a key
    that the model does not have, ConfigError for a value it refuses.
    """
    model = load_options(entry)
    known = option_names(model)
    for key in values:
        if key.replace("_", "-") not in known:
            headline = f"unknown option '{key}' of {entry.kind} '{entry.name}'"
            options = f"options: {', '.join(known)}" if known else "it has no options"
            raise UnknownOptionError(
                headline + (f" ({where})" if where else ""), did_you_mean(key, known), options
            )
    renamed = {known[key.replace("_", "-")]: value for key, value in values.items()}
    try:
        return model.model_validate(renamed)
    except ValidationError as error:
        headline = f"invalid options of {entry.kind} '{entry.name}'"
        raise ConfigError(
            headline + (f" ({where})" if where else ""), *explain_validation(error)
        ) from None


def build(
    entry: Buildable, options: BaseModel | Mapping[str, Any] | None = None, **context: Any
) -> Any:
    """Return `Class(options, **context)`, with the options validated if they are plain values.

    Raises InvalidComponentError when the class does not implement its kind's interface, and
    PluginBrokenError for what its constructor raises by mistake; an OctavoError goes on as it is.
    """
    cls = load(entry)
    if not isinstance(options, BaseModel):
        options = validate_options(entry, options or {})
    require_interface(entry, cls)
    try:
        instance = cls(options, **context)
    except OctavoError:
        raise
    except FAULTS as error:
        raise _broken(f"cannot build {title(entry)}", f"target: {entry.target}", error) from error
    name_component(instance, title(entry))
    return instance


def title(entry: Buildable) -> str:
    """Return how messages call a component: `scheduler 'sjf' (octavo-sjf 0.1)`."""
    return f"{entry.kind} '{entry.name}' ({entry.provider})"


def require_interface(entry: Buildable, cls: Any) -> None:
    """Raise InvalidComponentError unless a class implements the interface of its kind."""
    interface: type = import_target(KINDS[entry.kind].interface)
    name = getattr(cls, "__name__", str(cls))
    whose = title(entry)
    if not isinstance(cls, type) or not issubclass(cls, interface):
        raise InvalidComponentError(
            f"{whose} is no {interface.__name__}",
            f"target: {entry.target}",
            f"write: class {name}({interface.__name__}), from {interface.__module__}",
        )
    if missing := sorted(getattr(cls, "__abstractmethods__", ())):
        raise InvalidComponentError(
            f"{whose} lacks what its interface asks for",
            f"{name} does not implement {', '.join(missing)}",
        )


def deprecations_of(entry: Buildable, given: Collection[str]) -> list[str]:
    """Return what to tell of those given options that are deprecated, one sentence each."""
    model = load_options(entry)
    told = []
    for name, field in model.model_fields.items():
        key = kebab(name)
        extra = field.json_schema_extra
        if isinstance(extra, dict) and INSTEAD in extra and key in map(kebab, given):
            whose = title(entry)
            told.append(f"the option '{key}' of {whose} is deprecated: {extra[INSTEAD]}")
    return told


def option_names(model: type[BaseModel]) -> dict[str, str]:
    """Return the keys of an options model as written in files, each with what validates it."""
    names = {}
    for name, field in model.model_fields.items():
        alias = field.validation_alias if isinstance(field.validation_alias, str) else name
        names[name.replace("_", "-")] = field.alias or alias
    return names


def _import(entry: Buildable, target: str, field: str) -> Any:
    try:
        return import_target(target)
    except OctavoError:
        raise
    except FAULTS as error:
        headline = f"cannot import the {field} of {title(entry)}"
        install = " ".join(f"'{one}'" for one in entry.requires)
        how = f"install what it needs: pip install {install}" if install else ""
        raise _broken(headline, f"{field}: {target}", error, how) from error


def _broken(headline: str, what: str, error: BaseException, how: str = "") -> PluginBrokenError:
    """Return the error of a component whose own code failed. Raises what a signal brought."""
    raise_if_signalled(error)
    place = place_of(error)
    return PluginBrokenError(headline, what, describe(error), f"at {place}" if place else "", how)
