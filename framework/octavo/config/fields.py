"""Every setting of the core by its flat name, which is its flag and its keyword.

Flat names are unique over all sections. Knows the schema. Does not know argparse or files.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from octavo.config.schema import SECTIONS
from octavo.plugin.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic.fields import FieldInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: where it is in the config, and how it is written on a command line."""

    flag: str
    section: str
    key: str
    description: str
    default: Any
    shape: Literal["value", "switch", "list"]
    choices: tuple[str, ...] = ()
    takes_many: bool = False  # a flag of a list that takes all words up to the next flag
    is_secret: bool = False  # its value is never shown, not even a wrong one


def _shape(field: FieldInfo) -> Literal["value", "switch", "list"]:
    parts = {field.annotation, get_origin(field.annotation)}
    if get_origin(field.annotation) in {Union, types.UnionType}:
        parts |= {get_origin(part) or part for part in get_args(field.annotation)}
        inner = [arg for part in get_args(field.annotation) for arg in get_args(part)]
        parts |= {get_origin(part) for part in inner}
    if bool in parts:
        return "switch"
    return "list" if tuple in parts else "value"


def _choices(field: FieldInfo) -> tuple[str, ...]:
    return get_args(field.annotation) if get_origin(field.annotation) is Literal else ()


def _settings() -> dict[str, Setting]:
    settings: dict[str, Setting] = {}
    for section, model in SECTIONS.items():
        for name, field in model.model_fields.items():
            key = name.replace("_", "-")
            extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
            flag = str(extra.get("flag", key))
            if flag in settings:
                message = f"two settings have the flag --{flag}"
                raise AssertionError(message)
            settings[flag] = Setting(
                flag=flag,
                section=section,
                key=key,
                description=field.description or "",
                default=field.default,
                shape=_shape(field),
                choices=_choices(field),
                takes_many=bool(extra.get("takes_many")),
                is_secret=bool(extra.get("secret")),
            )
    return settings


SETTINGS: Mapping[str, Setting] = MappingProxyType(_settings())

#: (section, key) of settings whose values are secrets, and what is shown in their place
SECRETS = frozenset((one.section, one.key) for one in SETTINGS.values() if one.is_secret)
HIDDEN = "(hidden)"

#: kinds that are flags; one whose name is a setting already is chosen in a file only
KIND_FLAGS: tuple[str, ...] = tuple(kind for kind in KINDS if kind not in SETTINGS)
