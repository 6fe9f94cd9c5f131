"""`ResolvedConfig`: everything that was decided, frozen, and fit to be sent to another process.

It holds the targets of the chosen components, so that a process that receives it imports
exactly those and discovers nothing.

Knows what was chosen and why. Does not know how it was chosen (`resolve`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, PrivateAttr

from octavo.config.schema import EngineConfig, ModelConfig, PluginsConfig, Section, ServerConfig
from octavo.errors import ConfigError, UnknownComponentError, did_you_mean
from octavo.plugin.build import build, load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.plugin.options import RequestParams


class ResolvedComponent(Section):
    """One component that is in use: what to import, its options, who provides it, and why."""

    kind: str
    name: str
    target: str
    options_target: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    params_target: str | None = None
    provider: str
    why: str
    requires: tuple[str, ...] = ()
    offers: tuple[str, ...] = ()
    rank: int = 0
    _cls: type | None = PrivateAttr(None)
    _options_cls: type[BaseModel] | None = PrivateAttr(None)
    _params_cls: type[RequestParams] | None = PrivateAttr(None)

    @property
    def cls(self) -> type | None:
        """The class, when it was passed in this process; it does not travel."""
        return self._cls

    @property
    def options_cls(self) -> type[BaseModel] | None:
        """The options model, when it was passed in this process; it does not travel."""
        return self._options_cls

    @property
    def params_cls(self) -> type[RequestParams] | None:
        """The model of a request's parameters, when it was passed here; it does not travel."""
        return self._params_cls

    def load(self) -> type:
        """Import the class. Raises PluginBrokenError when that fails."""
        return load(self)

    def build(self, **context: Any) -> Any:
        """Return `Class(options, **context)`.

        Raises PluginBrokenError when the import fails; what the constructor raises goes on.
        """
        return build(self, self.options, **context)


class ResolvedConfig(Section):
    """The whole configuration after resolution; nothing in it changes any more."""

    engine: EngineConfig
    model: ModelConfig
    server: ServerConfig
    plugins: PluginsConfig
    chosen: dict[str, ResolvedComponent]
    """By kind, for the kinds of which exactly one is in use."""
    active: dict[str, tuple[ResolvedComponent, ...]]
    """By kind, for the kinds of which several may be in use: best first."""
    origins: dict[str, str] = Field(default_factory=dict)
    """Where each setting was written that is not a plain default, by `section.key`."""
    notes: tuple[str, ...] = ()
    """What was accepted without effect; whoever starts the engine prints these."""

    def is_default(self, section: str, key: str) -> bool:
        """Return whether nobody has written a setting: it is a default, a component's maybe."""
        origin = self.origins.get(f"{section}.{key.replace('_', '-')}", "default")
        return origin.startswith("default")

    @property
    def in_use(self) -> tuple[ResolvedComponent, ...]:
        """Every component that is in use, of every kind."""
        return (*self.chosen.values(), *(one for some in self.active.values() for one in some))

    def component(self, kind: str, name: str, where: str = "") -> ResolvedComponent:
        """Return the component in use of a kind and name.

        Raises UnknownComponentError when it is not in use; `where` says who asked.
        """
        candidates = [self.chosen[kind]] if kind in self.chosen else self.active.get(kind, ())
        for one in candidates:
            if one.name == name:
                return one
        names = [one.name for one in candidates]
        headline = f"unknown {kind} '{name}'" + (f" ({where})" if where else "")
        facts = did_you_mean(name, names), f"in use: {', '.join(names) or 'none'}"
        raise UnknownComponentError(headline, *facts)

    def build(self, kind: str, **context: Any) -> Any:
        """Build the one component of a kind: `Class(options, **context)`."""
        return self.chosen[kind].build(**context)

    def build_all(self, kind: str, **context: Any) -> dict[str, Any]:
        """Build every component of a set, by name, best first."""
        return {one.name: one.build(**context) for one in self.active[kind]}

    def offering(self, kind: str, fact: str) -> tuple[ResolvedComponent, ...]:
        """Return the components in use of a kind that offer a fact, best first."""
        return tuple(one for one in self.active.get(kind, ()) if fact in one.offers)

    def with_changes(self, **sections: Mapping[str, Any]) -> ResolvedConfig:
        """Return a copy with some settings replaced: `with_changes(engine={"seed": 1})`.

        The values are validated. Raises pydantic's ValidationError.
        """
        changed = {
            name: type(getattr(self, name)).model_validate(
                {**getattr(self, name).model_dump(), **values}
            )
            for name, values in sections.items()
        }
        return self.model_copy(update=changed)

    def to_json(self) -> str:
        """Return the config as JSON for another process.

        Raises ConfigError when a class was passed that another process cannot import.
        """
        for one in self.in_use:
            for target in (one.target, one.options_target or "", one.params_target or ""):
                if "<locals>" in target or target.startswith("__main__:"):
                    headline = f"{one.kind} '{one.name}' cannot be sent to another process"
                    raise ConfigError(
                        headline,
                        f"its class {target} cannot be imported there",
                        "put it into a file and name that: --plugin FILE.py",
                    )
        return self.model_dump_json(by_alias=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> ResolvedConfig:
        """Rebuild a config from `to_json`, importing no component.

        Raises pydantic's ValidationError when the text is not such a config.
        """
        return cls.model_validate_json(text)
