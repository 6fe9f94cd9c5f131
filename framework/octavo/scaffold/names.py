"""What a new plugin and its parts are called, and which names will not do.

Knows names. Does not know templates, folders or what is installed.
"""

from __future__ import annotations

import builtins
import keyword
import re
from dataclasses import dataclass

from octavo.errors import ConfigError, UnknownComponentError, did_you_mean
from octavo.plugin.kinds import KINDS

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
#: of which a distribution's, a package's and a class's name are made
_MAX_CHARS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names of a new plugin's parts, all made from the component's."""

    kind: str
    name: str

    @property
    def distribution(self) -> str:
        """What pip installs, and the folder's name."""
        return f"octavo-{self.name}"

    @property
    def package(self) -> str:
        """The import package."""
        return f"octavo_{self.module}"

    @property
    def module(self) -> str:
        """The module of the component, inside of the package."""
        return self.name.replace("-", "_")

    @property
    def kit_test(self) -> str:
        """The file of its kit test: pytest, over several plugins, wants each basename once."""
        return f"tests/test_{self.module}_kit.py"

    @property
    def cls(self) -> str:
        """The class."""
        return "".join(word.capitalize() for word in self.name.split("-"))


def names_of(kind: str, name: str, reserved: frozenset[str]) -> Names:
    """Return the names of a new plugin. `reserved` are those that its module uses itself.

    Raises UnknownComponentError for a kind that does not exist, ConfigError for a name that will
    not do.
    """
    if kind not in KINDS:
        raise UnknownComponentError(
            f"unknown kind '{kind}'", did_you_mean(kind, KINDS), f"kinds: {', '.join(KINDS)}"
        )
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"'{name}' is no name for a component",
            "a name is lower-case words of letters and digits, joined by single hyphens",
            f"for example: {suggestion}" if (suggestion := _repaired(name)) else "",
        )
    if len(name) > _MAX_CHARS:
        raise ConfigError(
            f"'{name}' is too long for a new plugin",
            f"it has {len(name)} characters, {_MAX_CHARS} are taken",
        )
    names = Names(kind=kind, name=name)
    _check(names, reserved)
    return names


def _check(names: Names, reserved: frozenset[str]) -> None:
    headline = f"'{names.name}' is no name for a new plugin"
    for word in (names.module, names.cls):
        if keyword.iskeyword(word) or keyword.issoftkeyword(word):
            raise ConfigError(headline, f"'{word}' is a word of Python", f"try 'my-{names.name}'")
    for word in (names.cls, f"{names.cls}Options", f"{names.cls}Params"):
        if hasattr(builtins, word) or word in reserved:
            raise ConfigError(
                headline,
                f"its class would be {word}, as another that it uses",
                f"try 'my-{names.name}'",
            )


def _repaired(name: str) -> str:
    """Return the nearest name that would do, or ""."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name)
    words = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-0123456789")
    return words if _NAME.fullmatch(words) else ""
