"""What the stock parsers have in common: how they tell a model of their family.

Knows templates as texts. Does not know any family.
"""

from __future__ import annotations

from typing import ClassVar

from octavo.interfaces.parser import (
    CallArguments,
    CallBegin,
    CallEnd,
    ChatFacts,
    Example,
    Parser,
    ToolSpec,
    TurnContext,
    TurnEvent,
)

#: tools that examples call
WEATHER = ToolSpec(
    "get_weather",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "at": {"type": ["array", "string"]},
        },
        "required": ["city"],
    },
)
CLOCK = ToolSpec("get_time", {"type": "object", "properties": {}})
TOOLS = (WEATHER, CLOCK)
#: a turn in which both may be called
WITH_TOOLS = TurnContext(prompt="", tools=TOOLS)
WITHOUT_TOOLS = TurnContext(prompt="")


#: the two calls that examples make
BOTH_CALLS: tuple[TurnEvent, ...] = (
    CallBegin(0, "get_weather"),
    CallArguments(0, '{"city": "Ærø", "days": 2}'),
    CallEnd(0),
    CallBegin(1, "get_time"),
    CallArguments(1, "{}"),
    CallEnd(1),
)


def calling(text: str, *before: TurnEvent) -> Example:
    """Return the example of a text that makes both calls after `before`."""
    return Example(WITH_TOOLS, text, [*before, *BOTH_CALLS])


class Family(Parser):
    """A parser whose family is told by texts in the chat template.

    `template_has` are all there, of `template_lacks` none is: others have them.
    """

    template_has: ClassVar[tuple[str, ...]] = ()
    template_lacks: ClassVar[tuple[str, ...]] = ()

    def why_not(self, facts: ChatFacts) -> list[str]:
        """Return which texts are missing in the template, or are those of another family."""
        if not facts.template:
            return ["the model has no chat template"]
        missing = [text for text in self.template_has if text not in facts.template]
        foreign = [text for text in self.template_lacks if text in facts.template]
        return [
            *(f"the chat template has no {text!r}" for text in missing),
            *(f"the chat template has {text!r}" for text in foreign),
        ]

    def own_facts(self) -> ChatFacts:
        """Return a template of nothing but the telling texts, which are tokens."""
        return ChatFacts("\n".join(("{{ tools }}", *self.template_has)), _is_any)


def _is_any(text: str) -> bool:
    return bool(text)
