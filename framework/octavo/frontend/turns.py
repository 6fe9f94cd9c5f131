"""A turn of a model: what is asked of it, and what one choice's text is made of.

For every dialect, in this order:

    turn = Turn(model.parsers, TurnRequest(prompt=text, tools=..., choice=ToolChoice("auto")))
    params.structured_outputs = turn.form or ...   # a form that `tool_choice` requires
    params.stop = None if turn.is_call else ...
    Call(..., reasoning=turn.reasoning_marks, visible_markers=turn.visible_markers)
    reader = turn.reader()                         # one for each choice
    for each output: events = reader.push(output.text, output.token_ids)
    at its end:      events = reader.finish()
                     reader.finish_reason("stop"), reader.num_reasoning_tokens

Events are those of `octavo.interfaces.parser`: pieces of reasoning, of content, and of calls. A
whole answer is `WholeTurn.of(events)`, so that it cannot differ from a stream.

Knows parsers' events. Does not know HTTP, or the shapes and ids in which dialects write calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from octavo.errors import RequestError, did_you_mean
from octavo.frontend.reasoning_counter import ReasoningCounter
from octavo.frontend.required_calls import (
    NamedCall,
    RequiredCalls,
    named_form,
    required_form,
    strict_form,
)
from octavo.interfaces.parser import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Reasoning,
    TurnContext,
    joined,
)
from octavo.text.chained_turn import ChainedTurn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from octavo.frontend.parsers import ModelParsers
    from octavo.interfaces.parser import (
        Parser,
        ReasoningMarks,
        ToolSpec,
        TurnEvent,
        TurnParser,
    )
    from octavo.interfaces.tokenizer import Tokenizer
    from octavo.structured_outputs import StructuredOutputsParams

Mode: TypeAlias = Literal["auto", "none", "required", "named"]


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which calls an answer may have: any, none, at least one, or one of the tool `name`.

    Without `is_parallel` there is at most one.
    """

    mode: Mode = "auto"
    name: str = ""
    is_parallel: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """What is asked of a turn. `prompt` is the rendered prompt."""

    prompt: str
    tools: Sequence[ToolSpec] = ()
    choice: ToolChoice = ToolChoice()
    template_kwargs: Mapping[str, Any] | None = None


class Turn:
    """The turn that a request asks for; each of its choices has a reader of its own.

    Raises RequestError where no such turn can be read: a tool is named that is not offered, or
    calls are wanted and no parser reads them.
    """

    def __init__(self, parsers: ModelParsers, request: TurnRequest) -> None:
        _check(parsers, request)
        self._parsers = parsers
        self._request = request
        tools = () if request.choice.mode == "none" else request.tools
        self._context = TurnContext(request.prompt, tuple(tools), request.template_kwargs)
        #: what the answer's text must be, after its reasoning; None for any text
        self.form = self._form()
        reasoning = parsers.reasoning.parser
        self.reasoning_marks: ReasoningMarks | None = (
            None if reasoning is None else reasoning.reasoning_marks(self._context)
        )

    @property
    def reads_reasoning(self) -> bool:
        """Return whether a parser looks for reasoning."""
        return self._parsers.reasoning.parser is not None

    @property
    def is_call(self) -> bool:
        """Return whether the answer is a call and nothing else, which its form ends.

        What would cut it, as stop strings do, is for texts.
        """
        return self._request.choice.mode in {"required", "named"}

    @property
    def unheld_tools(self) -> list[str]:
        """Return the tools whose strict schemas nothing holds the model to."""
        is_held = self.form is not None or self._request.choice.mode == "none"
        return [] if is_held else [tool.name for tool in self._context.tools if tool.is_strict]

    @property
    def visible_markers(self) -> frozenset[str]:
        """Return the special tokens that the readers must see."""
        used = self._used()
        return frozenset().union(*(parser.visible_markers for parser in used))

    def reader(self, tokenizer: Tokenizer | None = None) -> TurnReader:
        """Return a reader of one choice; with a tokenizer it counts tokens of reasoning."""
        chain: list[TurnParser] = [parser.open(self._context) for parser in self._used()]
        choice = self._request.choice
        if choice.mode == "named":
            chain.append(NamedCall(self._context, choice.name))
        elif choice.mode == "required":
            chain.append(RequiredCalls(self._context))
        parser = reduce(ChainedTurn, chain) if chain else None
        counter = ReasoningCounter(tokenizer, self.reasoning_marks) if tokenizer else None
        keeps = self._parsers.reasoning.parser is not None
        return TurnReader(parser, choice, counter, keeps_reasoning=keeps)

    def _used(self) -> list[Parser]:
        """Return the parsers that read text, first to last."""
        reasoning, tools = self._parsers.reasoning.parser, self._parsers.tools.parser
        is_auto = self._request.choice.mode == "auto" and bool(self._context.tools)
        used = [] if reasoning is None else [reasoning]
        if tools is not None and tools is not reasoning and is_auto:
            used.append(tools)
        return used

    def _form(self) -> StructuredOutputsParams | None:
        choice, tools = self._request.choice, self._context.tools
        if choice.mode == "named":
            return named_form(next(tool for tool in tools if tool.name == choice.name))
        if choice.mode == "required":
            return required_form(tools, is_parallel=choice.is_parallel)
        return strict_form(self._parsers.tools.parser, tools, self._parsers.special_ids)


def _check(parsers: ModelParsers, request: TurnRequest) -> None:
    names = [tool.name for tool in request.tools]
    choice = request.choice
    if choice.mode in {"required", "named"} and not names:
        raise RequestError("tool_choice needs tools to choose from", param="tool_choice")
    if choice.mode == "named" and choice.name not in names:
        raise RequestError(
            f"tool_choice names {choice.name!r:.80}, which is not among the tools",
            did_you_mean(choice.name, names),
            f"tools: {', '.join(names)}",
            param="tool_choice",
        )
    if choice.mode == "auto" and names and parsers.tools.parser is None:
        raise RequestError(
            "nothing reads calls of tools of this model",
            parsers.tools.why,
            "name the parser of its family (--tool-parser), or set tool_choice to 'required' "
            "or 'none'",
            param="tools",
        )


class TurnReader:
    """Reads the text of one choice, in any pieces; without a parser all of it is content."""

    def __init__(
        self,
        parser: TurnParser | None,
        choice: ToolChoice = ToolChoice(),
        counter: ReasoningCounter | None = None,
        *,
        keeps_reasoning: bool = True,
    ) -> None:
        self._parser = parser
        self._choice = choice
        self._counter = counter
        self._keeps_reasoning = keeps_reasoning
        self.num_calls = 0

    @property
    def num_reasoning_tokens(self) -> int:
        """Return how many tokens of reasoning there are so far."""
        return 0 if self._counter is None else self._counter.num_tokens

    def push(self, text: str, token_ids: Sequence[int] = ()) -> list[TurnEvent]:
        """Return what a piece of text makes certain. `token_ids` are its tokens."""
        plain: list[TurnEvent] = [Content(text)] if text else []
        events = self._seen(plain if self._parser is None else self._parser.push(text))
        if self._counter is not None:
            self._counter.take(token_ids, events)
        return events

    def finish(self) -> list[TurnEvent]:
        """Return what was held back when the text has ended."""
        events = self._seen([] if self._parser is None else self._parser.finish())
        if self._counter is not None:
            self._counter.take((), events)
        return events

    def finish_reason(self, reason: str | None) -> str | None:
        """Return why the choice ended, as OpenAI says it: for a named tool it stays `stop`."""
        is_call = self.num_calls > 0 and self._choice.mode != "named"
        return "tool_calls" if reason == "stop" and is_call else reason

    def _seen(self, events: Iterable[TurnEvent]) -> list[TurnEvent]:
        """Return the events that the caller wants to see, and count the calls among them."""
        shown: list[TurnEvent] = []
        for event in events:
            one = event
            if isinstance(one, Reasoning) and not self._keeps_reasoning:
                one = Content(one.text)
            is_call = isinstance(one, CallBegin | CallArguments | CallEnd)
            if is_call and getattr(one, "index", 0) > 0 and not self._choice.is_parallel:
                continue
            self.num_calls += isinstance(one, CallEnd)
            shown.append(one)
        return joined(shown)


@dataclass(slots=True)
class ReadCall:
    """A call of a tool. `arguments` is the text of a JSON object, where it is complete."""

    name: str
    arguments: str = ""
    is_complete: bool = False


@dataclass(slots=True)
class WholeTurn:
    """A turn whose pieces are joined."""

    reasoning: str = ""
    content: str = ""
    calls: list[ReadCall] = field(default_factory=list)

    @classmethod
    def of(cls, events: Iterable[TurnEvent]) -> WholeTurn:
        """Return the turn of these events."""
        texts: dict[type, list[str]] = {Reasoning: [], Content: []}
        names: list[str] = []
        arguments: list[list[str]] = []
        ended: set[int] = set()
        for event in events:
            match event:
                case Reasoning() | Content():
                    texts[type(event)].append(event.text)
                case CallBegin():
                    names.append(event.name)
                    arguments.append([])
                case CallArguments():
                    arguments[event.index].append(event.text)
                case CallEnd():
                    ended.add(event.index)
        calls = [
            ReadCall(name, "".join(pieces), i in ended)
            for i, (name, pieces) in enumerate(zip(names, arguments, strict=True))
        ]
        return cls("".join(texts[Reasoning]), "".join(texts[Content]), calls)
