"""The promises of parsers of turns: Y1 to Y9, on their own examples and on what is made of these.

Knows text, cuts and events. Does not know any family, token ids or HTTP.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from octavo.interfaces.parser import (
    CallBegin,
    CallEnd,
    ChatFacts,
    Content,
    Parser,
    Reasoning,
    ToolSpec,
    TurnContext,
    joined,
)
from octavo.testing.invariants import PromiseBroken, Promises
from octavo.testing.searching import for_all
from octavo.testing.suite import Suite
from octavo.testing.turn_events import fault_of_calls
from octavo.testing.turn_losses import check_broken, check_line_end, check_space
from octavo.testing.turn_texts import (
    check_arguments,
    check_cost,
    check_same,
    marks_of,
    read,
    splits,
    squeezed,
    tags_of,
    texts,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from octavo.interfaces.parser import CallTag, TurnEvent
    from octavo.testing.subjects import Subject

promises = Promises("parser", Parser)

PLAIN = ("It is late.", " said she,\n\nand left. ", "a < b, b > c; 2 [sic] {so}", "Ærø ✓ 🙂!", "")
_EXAMPLES = 60
NO_JSON = "its arguments are not written as JSON (call_tag is None)"


def _parser(subject: Subject) -> Parser:
    parser: Parser = subject.build()
    return parser


def _each_tag(
    subject: Subject, check: Callable[[Parser, TurnContext, CallTag], None]
) -> str | None:
    """Check how each tool of the examples is called, where arguments are written as JSON."""
    parser = _parser(subject)
    found = tags_of(parser)
    for context, tag in found:
        check(parser, context, tag)
    return None if found else NO_JSON


@promises.keeps("Y1")
def every_split_of_an_example_gives_the_same(subject: Subject) -> None:
    """In two at each place, in characters, and at random."""
    parser = _parser(subject)
    for context, text, _ in parser.examples():
        for pieces in splits(text):
            check_same(parser, context, text, pieces)


@promises.keeps("Y1")
def every_split_of_any_text_gives_the_same(subject: Subject) -> None:
    """Of what examples and marks are cut into, and of what is cut off."""
    parser = _parser(subject)
    for context, text, _ in parser.examples():
        for end in range(1, len(text)):
            check_same(parser, context, text[:end], list(text[:end]))

    def body(case: tuple[TurnContext, str]) -> None:
        context, text = case
        check_same(parser, context, text, list(text))
        check_same(parser, context, text, [text[at : at + 3] for at in range(0, len(text), 3)])

    for_all(subject, texts(parser), body, _EXAMPLES)


@promises.keeps("Y2")
def plain_text_is_content_as_it_is(subject: Subject) -> None:
    """With its white space, and with the beginning of a mark at its end."""
    parser = _parser(subject)
    for example in parser.examples():
        context = replace(example.context, prompt="")
        begun = [mark[:-1] for mark in marks_of(parser, example) if len(mark) > 1]
        for text in (*PLAIN, *(f"So {part}" for part in begun)):
            got = read(parser, context, [text])
            if got != [Content(text)] * bool(text):
                raise PromiseBroken(f"{told(context, text)} is no text: {got}")


@promises.keeps("Y2")
def a_call_of_what_was_not_offered_is_content(subject: Subject) -> None:
    """All of it, as it was written."""
    parser = _parser(subject)
    for example in parser.examples():
        if not any(isinstance(one, CallBegin) for one in example.events):
            continue
        context = replace(example.context, tools=(ToolSpec("nothing_like_it", {}),))
        events = read(parser, context, [example.text])
        if any(isinstance(one, CallBegin) for one in events):
            raise PromiseBroken(f"{told(context, example.text)} calls a tool: {events}")
        thought = [one.text for one in example.events if isinstance(one, Reasoning)]
        shown = squeezed("".join(one.text for one in events if isinstance(one, Content)))
        if not thought and shown != squeezed(example.text):
            raise PromiseBroken(f"{told(context, example.text)} shows {shown!r}")
        for name in (one.name for one in example.events if isinstance(one, CallBegin)):
            if name not in shown:
                raise PromiseBroken(f"{told(context, example.text)} does not show {name!r}")


@promises.keeps("Y2")
def a_call_that_is_cut_before_it_begins_is_content(subject: Subject) -> None:
    """Wherever the text ends, as long as no call was told."""
    parser = _parser(subject)
    for context, text, wanted in parser.examples():
        kinds = {type(one) for one in wanted}
        if CallBegin not in kinds or Reasoning in kinds:
            continue
        for end in range(1, len(text)):
            events = read(parser, context, list(text[:end]))
            shown = "".join(one.text for one in events if isinstance(one, Content))
            is_told = any(isinstance(one, CallBegin) for one in events)
            if not is_told and squeezed(shown) != squeezed(text[:end]):
                raise PromiseBroken(f"{told(context, text[:end])} shows {shown!r}")


@promises.keeps("Y2")
def white_space_between_a_call_and_text_is_content(subject: Subject) -> str | None:
    """Where no text is, it is none."""
    return _each_tag(subject, check_space)


@promises.keeps("Y2")
def what_follows_broken_arguments_is_content(subject: Subject) -> str | None:
    """From the character that breaks them."""
    return _each_tag(subject, check_broken)


@promises.keeps("Y2")
def a_line_end_within_a_string_is_kept(subject: Subject) -> str | None:
    """JSON has only its escape, and models write it as it is."""
    return _each_tag(subject, check_line_end)


@promises.keeps("Y3")
def no_text_makes_it_raise(subject: Subject) -> None:
    """In characters, and when nothing came at all."""
    parser = _parser(subject)
    for context, _, _ in parser.examples():
        read(parser, context, [])
        read(parser, context, ["", "\ud800", "\x00", ""])

    def body(case: tuple[TurnContext, str]) -> None:
        read(parser, case[0], list(case[1]))

    for_all(subject, texts(parser), body, _EXAMPLES)


@promises.keeps("Y3")
def a_character_costs_the_same_wherever_it_stands(subject: Subject) -> None:
    """Of texts that repeat a mark, its beginning, white space, or an example."""
    parser = _parser(subject)
    for example in parser.examples():
        marks = marks_of(parser, example)
        parts = {" ", "\n", "{", "x", *marks, *(mark[:-1] for mark in marks), example.text}
        parts |= {one[: len(one) * 3 // 4] + "y" * 2000 for one in (example.text,)}
        for part in sorted(parts - {""}):
            check_cost(parser, example.context, part)


@promises.keeps("Y4")
def calls_are_numbered_and_their_arguments_are_json(subject: Subject) -> None:
    """Of any text, wherever it ends."""
    parser = _parser(subject)

    def body(case: tuple[TurnContext, str]) -> None:
        context, text = case
        fault = fault_of_calls(read(parser, context, list(text)), context.tools)
        if fault:
            raise PromiseBroken(f"{told(context, text)}: {fault}")

    for context, text, _ in parser.examples():
        for end in range(len(text) + 1):
            body((context, text[:end]))
    for_all(subject, texts(parser), body, _EXAMPLES)


@promises.keeps("Y5")
def no_mark_is_left_in_an_example(subject: Subject) -> None:
    """In no event."""
    parser = _parser(subject)
    for example in parser.examples():
        for mark in marks_of(parser, example):
            for event in read(parser, example.context, [example.text]):
                if mark in getattr(event, "text", ""):
                    raise PromiseBroken(f"{told(*example[:2])} leaves {mark!r} in {event}")


@promises.keeps("Y6")
def text_that_is_no_mark_comes_at_once(subject: Subject) -> None:
    """Without waiting for more; only white space at its end may be part of a mark."""
    parser = _parser(subject)
    for example in parser.examples():
        reader = parser.open(replace(example.context, prompt=""))
        text = "It is late, said the old man quite loudly."
        events = joined([event for char in text for event in reader.push(char)])
        if events != [Content(text)]:
            raise PromiseBroken(f"of {text!r}, before its end is known, there is only {events}")


@promises.keeps("Y6")
def arguments_come_while_they_are_written(subject: Subject) -> str | None:
    """Each character of them, where they are written as JSON."""
    parser = _parser(subject)
    found = tags_of(parser)
    for context, tag in found:
        check_arguments(parser.open(context).push, tag.begin)
    return None if found else NO_JSON


@promises.keeps("Y7")
def each_example_gives_its_events(subject: Subject) -> None:
    """There is one for all that is offered."""
    parser, seen = _parser(subject), set[type]()
    for context, text, wanted in parser.examples():
        got = read(parser, context, [text])
        seen |= {type(one) for one in got}
        if got != list(wanted):
            raise PromiseBroken(f"{told(context, text)} should be {list(wanted)}, and is {got}")
    for fact, kind in (("tools", CallEnd), ("reasoning", Reasoning)):
        if subject.offers(fact) and kind not in seen:
            raise PromiseBroken(f"it offers {fact!r}, and no example has any")


@promises.keeps("Y8")
def without_tools_nothing_is_a_call(subject: Subject) -> None:
    """Whatever a text looks like."""
    parser = _parser(subject)

    def body(case: tuple[TurnContext, str]) -> None:
        context, text = replace(case[0], tools=()), case[1]
        events = read(parser, context, [text])
        if any(isinstance(one, CallBegin) for one in events):
            raise PromiseBroken(f"{told(context, text)} is a call: {events}")

    for context, text, _ in parser.examples():
        body((context, text))
    for_all(subject, texts(parser), body, _EXAMPLES // 2)


@promises.keeps("Y8")
def two_turns_at_once_share_nothing(subject: Subject) -> None:
    """They are read character by character, in turns."""
    parser = _parser(subject)
    every = parser.examples()
    for first in every:
        for second in every:
            readers = [parser.open(one.context) for one in (first, second)]
            events: list[list[TurnEvent]] = [[], []]
            for at in range(max(len(first.text), len(second.text))):
                for turn, one in enumerate((first, second)):
                    events[turn] += readers[turn].push(one.text[at : at + 1])
            for turn, one in enumerate((first, second)):
                got = joined([*events[turn], *readers[turn].finish()])
                alone = read(parser, one.context, [one.text])
                if got != alone:
                    raise PromiseBroken(
                        f"{told(*one[:2])} is {alone}, and beside another turn it is {got}"
                    )


@promises.keeps("Y9")
def a_family_knows_its_own_template(subject: Subject) -> None:
    """And has a reason against a model that has none."""
    parser = _parser(subject)
    if reasons := parser.why_not(parser.own_facts()):
        raise PromiseBroken(f"why_not has reasons against its own family: {reasons}")
    empty = ChatFacts("", lambda text: not text)
    if not parser.why_not(empty):
        raise PromiseBroken("why_not has no reason against a model without a chat template")


class ParserSuite(Suite, promises=promises):
    """The tests of a parser, on its own examples and on what is made of these."""
