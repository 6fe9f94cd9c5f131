"""Which parsers read a model's turns: those that are named, or those whose family it is.

Knows a config and a model's chat template and vocabulary. Does not know any family, or turns
(`octavo.frontend.turns`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from octavo.config.parsers import ROLES, Role, named_parser, setting_of
from octavo.interfaces.parser import ChatFacts, Parser

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from octavo.config.resolved import ResolvedComponent, ResolvedConfig
    from octavo.interfaces.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Chosen:
    """The parser for one role, None for no parser, and why it is this one."""

    parser: Parser | None = None
    name: str = "none"
    why: str = "nobody chose one"

    @property
    def reason(self) -> str:
        """Return why in short: without the reasons against others."""
        return self.why.partition(";")[0]


@dataclass(frozen=True, slots=True)
class ModelParsers:
    """What reads the turns of one model.

    `special_ids` are its special tokens by their texts, which no grammar of a text can ask for.
    """

    tools: Chosen = Chosen()
    reasoning: Chosen = Chosen()
    special_ids: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        both = (("calls of tools", self.tools), ("reasoning", self.reasoning))
        return ", ".join(f"{what} by {one.name} ({one.reason})" for what, one in both)


def parsers_of(config: ResolvedConfig, template: str, tokenizer: Tokenizer) -> ModelParsers:
    """Return the parsers of a model with this chat template; raises as `choose_parsers`."""
    facts = ChatFacts(template, lambda text: tokenizer.token_to_id(text) is not None)
    special_ids = {tokenizer.token_text(one): one for one in tokenizer.special_ids}
    return replace(choose_parsers(config, facts), special_ids=special_ids)


def choose_parsers(config: ResolvedConfig, facts: ChatFacts) -> ModelParsers:
    """Return the parsers for both roles; one that is chosen for both is built once.

    Raises UnknownComponentError for a name that nobody has, and what building raises.
    """
    built: dict[str, Parser] = {}

    def build(component: ResolvedComponent) -> Parser:
        if component.name not in built:
            built[component.name] = component.build()
        return built[component.name]

    tools, reasoning = (_chosen(config, role, facts, build) for role in ROLES)
    return ModelParsers(tools, reasoning)


def _chosen(
    config: ResolvedConfig,
    role: Role,
    facts: ChatFacts,
    build: Callable[[ResolvedComponent], Parser],
) -> Chosen:
    setting = setting_of(config, role)
    where = config.origins.get(f"model.{ROLES[role]}", "default")
    if setting == "none":
        return Chosen(why=where)
    if named := named_parser(config, role):
        return Chosen(build(named), named.name, where)
    refused: list[str] = []
    for component in config.offering("parser", role):
        parser = build(component)
        reasons = parser.why_not(facts)
        if not reasons:
            return Chosen(parser, component.name, "; ".join(["auto: it fits", *refused]))
        refused.append(f"not {component.name}: {', '.join(reasons)}")
    return Chosen(why="; ".join(["auto: none fits", *refused]))
