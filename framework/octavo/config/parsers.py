"""Which parser a setting names: by its own name, or by one that it answers to as well.

Knows settings and what components offer. Does not know how `auto` chooses
(`octavo.frontend.parsers`), which needs the model's chat template.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

from octavo.errors import UnknownComponentError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.config.resolved import ResolvedComponent, ResolvedConfig

Role: TypeAlias = Literal["tools", "reasoning"]

#: what a parser may be used for, and the setting that names it
ROLES: Mapping[Role, str] = MappingProxyType(
    {"tools": "tool-parser", "reasoning": "reasoning-parser"}
)
_ALIAS = "alias:"


def setting_of(config: ResolvedConfig, role: Role) -> str:
    """Return what is written for a role: a name, `auto` or `none`."""
    return config.model.tool_parser if role == "tools" else config.model.reasoning_parser


def named_parser(config: ResolvedConfig, role: Role) -> ResolvedComponent | None:
    """Return the parser that a setting names; None for `auto` and `none`.

    Names may be written with underscores, as vLLM does. Raises UnknownComponentError for one that
    no parser of this role in use has.
    """
    name = setting_of(config, role)
    if name in {"auto", "none"}:
        return None
    parsers = config.offering("parser", role)
    wanted = name.replace("_", "-").lower()
    for one in parsers:
        if wanted == one.name or f"{_ALIAS}{wanted}" in one.offers:
            return one
    names = [one.name for one in parsers]
    aliases = [name for one in parsers for name in aliases_of(one)]
    origin = config.origins.get(f"model.{ROLES[role]}")
    raise UnknownComponentError(
        f"unknown parser '{name}' for {role}" + (f" ({origin})" if origin else ""),
        did_you_mean(wanted, [*names, *aliases]),
        f"in use: {', '.join(names) or 'none'}",
        f"other names of these: {', '.join(aliases)}" if aliases else "",
        "or: auto, none",
    )


def aliases_of(parser: ResolvedComponent) -> list[str]:
    """Return the other names by which a parser may be asked for."""
    found = (fact.removeprefix(_ALIAS) for fact in parser.offers if fact.startswith(_ALIAS))
    return sorted(found)
