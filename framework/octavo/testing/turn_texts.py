"""Texts of turns, how they are cut, and what they cost: what the kit of parsers is made of.

Knows parsers' examples. Does not know the promises (`parsers`).
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from octavo.interfaces.parser import CallArguments, CallTag, joined
from octavo.testing.invariants import PromiseBroken

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hypothesis.strategies import SearchStrategy

    from octavo.interfaces.parser import Example, Parser, ToolSpec, TurnContext, TurnEvent

STRANGE = ('"', "\\", "{", "}", "[", "]", "<", ">", "\n", " ", ",", ":", "é", "🙂", "1", "null")
#: how much longer a text of eight times the length may take; a square would take 64 times
_LENGTH_FACTOR, _MOST_TIMES = 8, 28
_NUM_CHARS = 1000
#: below this, a machine's own business decides
_LEAST_S = 0.05


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


def tags_of(parser: Parser) -> list[tuple[TurnContext, CallTag]]:
    """Return how calls of the tools of the examples are written, where they are JSON."""
    tags = {
        tag: example.context
        for example in parser.examples()
        for tool in example.context.tools
        if (tag := parser.call_tag(tool) or _alone(parser, tool))
    }
    return [(context, tag) for tag, context in tags.items()]


def _alone(parser: Parser, tool: ToolSpec) -> CallTag | None:
    """Return how a call is written alone in its list."""
    if (whole := parser.list_tag()) is None:
        return None
    begin = f'{whole.begin}[{{"name": "{tool.name}", "{whole.arguments_key}": '
    return CallTag(whole.begin, begin, f"}}]{whole.end}")


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
        st.sampled_from(marks or list(STRANGE)),
        st.sampled_from(STRANGE),
        st.text(max_size=4),
    )
    text = st.lists(pieces, max_size=6).map("".join)
    return st.tuples(st.sampled_from([one.context for one in examples]), text)


def told(context: TurnContext, text: str) -> str:
    """Return a case on one line."""
    names = ", ".join(tool.name for tool in context.tools) or "no tools"
    return f"{text!r} after {context.prompt[-40:]!r} with {names}"


def squeezed(text: str) -> str:
    """Return a text without white space, which may belong to marks."""
    return "".join(text.split())


def check_cost(parser: Parser, context: TurnContext, part: str) -> None:
    """Refuse a text whose characters cost more the more of them there are."""
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


def check_same(parser: Parser, context: TurnContext, text: str, pieces: list[str]) -> None:
    """Refuse a text that is something else in these pieces."""
    wanted, got = read(parser, context, [text]), read(parser, context, pieces)
    if got != wanted:
        raise PromiseBroken(
            f"{told(context, text)} is {wanted}, and in the pieces {pieces} it is {got}"
        )


def check_arguments(push: Any, begin: str) -> None:
    """Refuse arguments that do not come with each of their characters."""
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
