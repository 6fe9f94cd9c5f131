"""The promises of parsers of turns: P1 to P9, on their own examples and on what is made of these.

Knows text, cuts and events. Does not know any family, token ids or HTTP.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from octavo.interfaces.parser import (
    CallArguments,
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hypothesis.strategies import SearchStrategy

    from octavo.interfaces.parser import Example, TurnEvent
    from octavo.testing.subjects import Subject

promises = Promises("parser", Parser)

PLAIN = ("It is late.", " said she,\n\nand left. ", "a < b, b > c; 2 [sic] {so}", "Ærø ✓ 🙂!", "")
_STRANGE = ('"', "\\", "{", "}", "[", "]", "<", ">", "\n", " ", ",", ":", "é", "🙂", "1", "null")
_EXAMPLES = 60
#: how much longer a text of eight times the length may take; a square would take 64 times
_LENGTH_FACTOR, _MOST_TIMES = 8, 28
_NUM_CHARS = 1500
#: below this, a machine's own business decides
_LEAST_S = 0.05


def _parser(subject: Subject) -> Parser:
    parser: Parser = subject.build()
    return parser


def read(parser: Parser, context: TurnContext, pieces: Iterable[str]) -> list[TurnEvent]:
    """Return what a turn that comes in these pieces is."""
    reader = parser.open(context)
    events = [event for piece in pieces for event in reader.push(piece)]
    return joined([*events, *reader.finish()])


def splits(text: str) -> Iterator[list[str]]:
    """Yield every split in two, in characters, in sevens, and some at random."""
    yield list(text)
    yield [text[at : at + 7] for at in range(0, len(text), 7)]
    yield from ([text[:at], text[at:]] for at in range(1, len(text)))
    for seed in range(4):
        dice = random.Random(seed)  # noqa: S311 - no secret
        cuts = sorted(dice.sample(range(len(text) + 1), min(len(text), 9)))
        yield [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def marks_of(parser: Parser, example: Example) -> list[str]:
    """Return the marks that a parser tells of."""
    found = set(parser.visible_markers)
    if marks := parser.reasoning_marks(example.context):
        found |= {marks.start, marks.end}
    for tool in example.context.tools:
        if tag := parser.call_tag(tool):
            found |= {tag.trigger}
    return sorted(found - {""})


def texts(parser: Parser) -> SearchStrategy[tuple[TurnContext, str]]:
    """Return texts made of parts of the examples, of marks, and of what JSON is made of."""
    examples = parser.examples()
    parts = st.sampled_from(examples).flatmap(
        lambda one: st.tuples(st.integers(0, len(one.text)), st.integers(0, len(one.text))).map(
            lambda cut: one.text[min(cut) : max(cut)]
        )
    )
    marks = sorted({mark for one in examples for mark in marks_of(parser, one)})
    pieces = st.one_of(
        parts,
        st.sampled_from([one.text for one in examples]),
        st.sampled_from(marks or list(_STRANGE)),
        st.sampled_from(_STRANGE),
        st.text(max_size=4),
    )
    text = st.lists(pieces, max_size=6).map("".join)
    return st.tuples(st.sampled_from([one.context for one in examples]), text)


def _told(context: TurnContext, text: str) -> str:
    """Return a case on one line."""
    names = ", ".join(tool.name for tool in context.tools) or "no tools"
    return f"{text!r} after {context.prompt[-40:]!r} with {names}"


@promises.keeps("P1")
def every_split_of_an_example_gives_the_same(subject: Subject) -> None:
    """In two at each place, in characters, and at random."""
    parser = _parser(subject)
    for context, text, _ in parser.examples():
        _try_splits(parser, context, text)


@promises.keeps("P1")
def every_split_of_any_text_gives_the_same(subject: Subject) -> None:
    """Of what examples and marks are cut into, and of what is cut off."""
    parser = _parser(subject)
    for context, text, _ in parser.examples():
        for end in range(1, len(text)):
            _same(parser, context, text[:end], list(text[:end]))

    def body(case: tuple[TurnContext, str]) -> None:
        context, text = case
        _same(parser, context, text, list(text))
        _same(parser, context, text, [text[at : at + 3] for at in range(0, len(text), 3)])

    for_all(subject, texts(parser), body, _EXAMPLES)


def _try_splits(parser: Parser, context: TurnContext, text: str) -> None:
    for pieces in splits(text):
        _same(parser, context, text, pieces)


def _same(parser: Parser, context: TurnContext, text: str, pieces: list[str]) -> None:
    wanted, got = read(parser, context, [text]), read(parser, context, pieces)
    if got != wanted:
        raise PromiseBroken(
            f"{_told(context, text)} is {wanted}, and in the pieces {pieces} it is {got}"
        )


@promises.keeps("P2")
def plain_text_is_content_as_it_is(subject: Subject) -> None:
    """With its white space, and with the beginning of a mark at its end."""
    parser = _parser(subject)
    for example in parser.examples():
        context = replace(example.context, prompt="")
        begun = [mark[:-1] for mark in marks_of(parser, example) if len(mark) > 1]
        for text in (*PLAIN, *(f"So {part}" for part in begun)):
            got = read(parser, context, [text])
            if got != [Content(text)] * bool(text):
                raise PromiseBroken(f"{_told(context, text)} is no text: {got}")


@promises.keeps("P2")
def a_call_of_what_was_not_offered_is_content(subject: Subject) -> None:
    """All of it, as it was written."""
    parser = _parser(subject)
    for example in parser.examples():
        if not any(isinstance(one, CallBegin) for one in example.events):
            continue
        context = replace(example.context, tools=(ToolSpec("nothing_like_it", {}),))
        events = read(parser, context, [example.text])
        if any(isinstance(one, CallBegin) for one in events):
            raise PromiseBroken(f"{_told(context, example.text)} calls a tool: {events}")
        thought = [one.text for one in example.events if isinstance(one, Reasoning)]
        shown = _squeezed("".join(one.text for one in events if isinstance(one, Content)))
        if not thought and shown != _squeezed(example.text):
            raise PromiseBroken(f"{_told(context, example.text)} shows {shown!r}")
        for name in (one.name for one in example.events if isinstance(one, CallBegin)):
            if name not in shown:
                raise PromiseBroken(f"{_told(context, example.text)} does not show {name!r}")


@promises.keeps("P2")
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
            if not is_told and _squeezed(shown) != _squeezed(text[:end]):
                raise PromiseBroken(f"{_told(context, text[:end])} shows {shown!r}")


@promises.keeps("P2")
def what_follows_broken_arguments_is_content(subject: Subject) -> str | None:
    """From the character that breaks them."""
    parser = _parser(subject)
    found = [
        (example.context, tag)
        for example in parser.examples()
        for tool in example.context.tools
        if (tag := parser.call_tag(tool))
    ]
    for context, tag in found:
        text = f'{tag.begin}{{"a": 1,}}{tag.end} and more'
        events = read(parser, context, [text])
        shown = [one.text for one in events if isinstance(one, CallArguments | Content)]
        if _squeezed("".join(shown)) != _squeezed(f'{{"a": 1,}}{tag.end} and more'):
            raise PromiseBroken(f"{_told(context, text)} is {events}")
    return None if found else "its arguments are not written as JSON (call_tag is None)"


def _squeezed(text: str) -> str:
    """Return a text without white space, which may belong to marks."""
    return "".join(text.split())


@promises.keeps("P3")
def no_text_makes_it_raise(subject: Subject) -> None:
    """In characters, and when nothing came at all."""
    parser = _parser(subject)
    for context, _, _ in parser.examples():
        read(parser, context, [])
        read(parser, context, ["", "\ud800", "\x00", ""])

    def body(case: tuple[TurnContext, str]) -> None:
        read(parser, case[0], list(case[1]))

    for_all(subject, texts(parser), body, _EXAMPLES)


@promises.keeps("P3")
def a_character_costs_the_same_wherever_it_stands(subject: Subject) -> None:
    """Of texts that repeat a mark, its beginning, white space, or an example."""
    parser = _parser(subject)
    for example in parser.examples():
        marks = marks_of(parser, example)
        parts = {" ", "\n", "{", "x", *marks, *(mark[:-1] for mark in marks), example.text}
        parts |= {one[: len(one) * 3 // 4] + "y" * 2000 for one in (example.text,)}
        for part in sorted(parts - {""}):
            _check_cost(parser, example.context, part)


def _check_cost(parser: Parser, context: TurnContext, part: str) -> None:
    short = long = 0.0
    for _ in range(3):  # the machine may have been busy with something else
        short = _took_s(parser, context, part, _NUM_CHARS)
        most_s = max(short * _MOST_TIMES, _LEAST_S)
        long = _took_s(parser, context, part, _NUM_CHARS * _LENGTH_FACTOR, most_s)
        if long < most_s:
            return
    raise PromiseBroken(
        f"{_NUM_CHARS} characters of {part[:60]!r}, again and again, take {short:.4f} s, and "
        f"{_LENGTH_FACTOR} times as many take {long:.4f} s or more"
    )


def _took_s(
    parser: Parser, context: TurnContext, part: str, num_chars: int, most_s: float = 10.0
) -> float:
    """Return how long a text takes; it is left when it has taken `most_s`."""
    text = (part * (num_chars // len(part) + 1))[:num_chars]
    start_s = time.process_time()
    reader = parser.open(context)
    for at in range(0, num_chars, 2):
        reader.push(text[at : at + 2])
        if time.process_time() - start_s > most_s:
            break
    else:
        reader.finish()
    return time.process_time() - start_s


@promises.keeps("P4")
def calls_are_numbered_and_their_arguments_are_json(subject: Subject) -> None:
    """Of any text, wherever it ends."""
    parser = _parser(subject)

    def body(case: tuple[TurnContext, str]) -> None:
        context, text = case
        fault = fault_of_calls(read(parser, context, list(text)), context.tools)
        if fault:
            raise PromiseBroken(f"{_told(context, text)}: {fault}")

    for context, text, _ in parser.examples():
        for end in range(len(text) + 1):
            body((context, text[:end]))
    for_all(subject, texts(parser), body, _EXAMPLES)


@promises.keeps("P5")
def no_mark_is_left_in_an_example(subject: Subject) -> None:
    """In no event."""
    parser = _parser(subject)
    for example in parser.examples():
        for mark in marks_of(parser, example):
            for event in read(parser, example.context, [example.text]):
                if mark in getattr(event, "text", ""):
                    raise PromiseBroken(f"{_told(*example[:2])} leaves {mark!r} in {event}")


@promises.keeps("P6")
def text_that_is_no_mark_comes_at_once(subject: Subject) -> None:
    """Without waiting for more; only white space at its end may be part of a mark."""
    parser = _parser(subject)
    for example in parser.examples():
        reader = parser.open(replace(example.context, prompt=""))
        text = "It is late, said the old man quite loudly."
        events = joined([event for char in text for event in reader.push(char)])
        if events != [Content(text)]:
            raise PromiseBroken(f"of {text!r}, before its end is known, there is only {events}")


@promises.keeps("P6")
def arguments_come_while_they_are_written(subject: Subject) -> str | None:
    """Each character of them, where they are written as JSON."""
    parser = _parser(subject)
    has_json = False
    for example in parser.examples():
        for tool in example.context.tools:
            if tag := parser.call_tag(tool):
                has_json = True
                _watch(parser.open(example.context).push, tag.begin)
    return None if has_json else "its arguments are not written as JSON (call_tag is None)"


def _watch(push: Any, begin: str) -> None:
    push(begin)
    written = got = ""
    for char in '{"city": "Oslo", "days": [1, 22, {"a": null}]}':
        written += char
        got += "".join(one.text for one in push(char) if isinstance(one, CallArguments))
        # after the bracket alone it may still be something else
        if len(written) > 1 and got != written:
            raise PromiseBroken(
                f"of the arguments {written!r} there is only {got!r} after {begin!r}"
            )


@promises.keeps("P7")
def each_example_gives_its_events(subject: Subject) -> None:
    """There is one for all that is offered."""
    parser = _parser(subject)
    seen: set[type] = set()
    for context, text, wanted in parser.examples():
        got = read(parser, context, [text])
        seen |= {type(one) for one in got}
        if got != list(wanted):
            raise PromiseBroken(f"{_told(context, text)} should be {list(wanted)}, and is {got}")
    for fact, kind in (("tools", CallEnd), ("reasoning", Reasoning)):
        if subject.offers(fact) and kind not in seen:
            raise PromiseBroken(f"it offers {fact!r}, and no example has any")


@promises.keeps("P8")
def without_tools_nothing_is_a_call(subject: Subject) -> None:
    """Whatever a text looks like."""
    parser = _parser(subject)

    def body(case: tuple[TurnContext, str]) -> None:
        context, text = replace(case[0], tools=()), case[1]
        events = read(parser, context, [text])
        if any(isinstance(one, CallBegin) for one in events):
            raise PromiseBroken(f"{_told(context, text)} is a call: {events}")

    for context, text, _ in parser.examples():
        body((context, text))
    for_all(subject, texts(parser), body, _EXAMPLES // 2)


@promises.keeps("P8")
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
                        f"{_told(*one[:2])} is {alone}, and beside another turn it is {got}"
                    )


@promises.keeps("P9")
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
