"""The parser kind: how a family of models writes reasoning and calls of tools into its text.

A parser reads text as it comes, after detokenising and stop strings, and says what each part of
it is. Knows text. Does not know token ids, logits, HTTP, or the shapes in which dialects answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """A piece of the answer itself."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """A call of a tool begins. Calls of a turn are numbered from 0, one after the other."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the JSON object of a call's arguments; never empty."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """A call is complete: its pieces, joined, are the text of a JSON object."""

    index: int


TurnEvent: TypeAlias = Reasoning | Content | CallBegin | CallArguments | CallEnd


def joined(events: Iterable[TurnEvent]) -> list[TurnEvent]:
    """Return events of which no two neighbours are pieces of one text."""
    result: list[TurnEvent] = []
    for (kind, index), group in groupby(events, key=_text_of):
        pieces = list(group)
        text = "".join(getattr(one, "text", "") for one in pieces)
        if kind is CallArguments and index is not None:
            result.append(CallArguments(index, text))
        elif kind is Content or kind is Reasoning:
            result.append(kind(text))
        else:
            result += pieces
    return result


def _text_of(event: TurnEvent) -> tuple[type[TurnEvent], int | None]:
    return type(event), getattr(event, "index", None)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool that the model may call. `parameters` is a JSON schema; {} allows any object."""

    name: str
    parameters: Mapping[str, Any]
    is_strict: bool = False


@dataclass(frozen=True, slots=True)
class TurnContext:
    """What is known when a turn of the model begins.

    `prompt` is the rendered prompt, whose end may have opened the reasoning already. `tools` is
    empty where none may be called: then no call is looked for.
    """

    prompt: str
    tools: Sequence[ToolSpec] = ()
    template_kwargs: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ChatFacts:
    """What is known of a model, by which a parser tells whether it is of its family.

    `template` is the source of the chat template, "" where there is none. `has_token` tells
    whether a text is one token of the vocabulary.
    """

    template: str
    has_token: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class ReasoningMarks:
    """The texts between which a model reasons; `is_open` where the turn begins inside."""

    start: str
    end: str
    is_open: bool


@dataclass(frozen=True, slots=True)
class CallTag:
    """How a call of one tool is written: `begin`, the JSON object of its arguments, `end`.

    `trigger` is how every call of the family begins. `others` are other ways to begin this one,
    such as with the number of a later call.
    """

    trigger: str
    begin: str
    end: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListTag:
    """How calls are written as one list: `begin`, a JSON list of objects, `end`.

    Each object has a name and then, under `arguments_key`, its arguments.
    """

    begin: str
    arguments_key: str
    end: str


class Example(NamedTuple):
    """A turn as a family writes it, and what it is: events as `joined` returns them."""

    context: TurnContext
    text: str
    events: Sequence[TurnEvent]


class TurnParser(ABC):
    """Reads one turn of the model. Pieces come in any split."""

    @abstractmethod
    def push(self, text: str) -> list[TurnEvent]:
        """Return what this piece of text makes certain. Never raises."""

    @abstractmethod
    def finish(self) -> list[TurnEvent]:
        """Return what was held back. The text may have ended anywhere. Never raises."""


class Parser(ABC):
    """One family's way of writing. `offers` holds "tools", "reasoning" or both.

    `offers` also holds `alias:NAME` for other names by which the family's parser is asked for.
    White space beside a mark of reasoning belongs to the mark. Beside calls it belongs to them only
    where no text is: between two, before the first, behind the last. Elsewhere it is content.

    Y1  joined by kind and by call, the events are the same for every split of a text.
    Y2  no text is lost: what is neither reasoning nor a whole mark or call is content. A call
        that is malformed, or of a tool that was not offered, is content as it was written; where
        its arguments had begun, what they have of a JSON object stays, and all that follows is
        content.
    Y3  no text makes it raise, and each character costs about the same wherever it stands.
    Y4  calls are numbered 0, 1, ... and one ends before the next begins; the arguments of one
        that ended are a JSON object, `{}` where none were written. A call that does not end is
        the last, and its pieces are the beginning of one.
    Y5  no mark of the family appears in the events of a text that is well-formed.
    Y6  what cannot become a mark any more is not held back. Arguments come while they are
        written, where the family writes them as JSON.
    Y7  each of `examples` gives its events, in the order that is told there.
    Y8  without tools, nothing is a call; two turns share nothing.
    Y9  `why_not` has no reason for `own_facts` and one for an empty template.
    """

    #: markers that must be seen, although they are special tokens of the vocabulary
    visible_markers: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, options: Any = None) -> None:
        self.options = options

    @abstractmethod
    def why_not(self, facts: ChatFacts) -> list[str]:
        """Return why a model is not of this family; no reason means that it may be."""

    @abstractmethod
    def own_facts(self) -> ChatFacts:
        """Return what is known of a model of the family: the telling part of its template."""

    @abstractmethod
    def open(self, context: TurnContext) -> TurnParser:
        """Return a reader for one turn."""

    @abstractmethod
    def examples(self) -> Sequence[Example]:
        """Return turns as the family writes them, and what they are; for tests and readers."""

    def reasoning_marks(self, context: TurnContext) -> ReasoningMarks | None:
        """Return the marks around reasoning, where the family has such."""
        del context
        return None

    def call_tag(self, tool: ToolSpec) -> CallTag | None:
        """Return how a call of a tool is written; None where arguments are not written as JSON."""
        del tool
        return None

    def list_tag(self) -> ListTag | None:
        """Return how calls are written as one list; None where each stands by itself."""
        return None
