"""Parsers that are wrong on purpose, each with the number that must catch it."""

import re

import pytest

from mutants import assert_killed, counter_examples, name_of
from octavo.interfaces.parser import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Example,
    TurnParser,
)
from octavo.plugin.component import Component
from octavo.text.marks import Marks
from octavo_plugins.parsers.hermes import START, Hermes, HermesTurn
from octavo_plugins.parsers.mistral import Mistral
from octavo_plugins.parsers.think import Think

CALL = re.compile(
    r'<tool_call>\s*\{"name": "(\w+)", "arguments": (\{.*?\})\}\s*</tool_call>', re.DOTALL
)


def hermes(turn):
    """Return Hermes with another reader."""

    class Wrong(Hermes):
        def open(self, context):
            return turn(context)

    Wrong.__name__ = turn.__name__
    return Wrong


@hermes
class SeesPiecesAlone(TurnParser):
    """Looks for a call in each piece as it comes."""

    def __init__(self, context):
        self._num_calls = 0

    def push(self, text):
        found = CALL.search(text)
        if found is None:
            return [Content(text)] if text else []
        index = self._num_calls
        self._num_calls += 1
        return [CallBegin(index, found[1]), CallArguments(index, found[2]), CallEnd(index)]

    def finish(self):
        return []


@hermes
class StripsEachPiece(HermesTurn):
    """Says text without its white space."""

    def say(self, text):
        super().say(text.strip())


@hermes
class DropsWhatIsMalformed(HermesTurn):
    """As vLLM's parsers do, at times."""

    def release(self):
        self._held.clear()


@hermes
class MovesWhiteSpace(HermesTurn):
    """What stands behind a call comes at the end of the text."""

    def close(self, *texts):
        found = yield from self.take(*texts)
        if found:
            self.settle()
        return found

    def read(self):
        yield from self.say_until(Marks(START))
        yield from self.call_object()
        yield from self.close("</tool_call>")
        yield from self.close(";")


@hermes
class CallsAnything(HermesTurn):
    """Also what nobody offered."""

    def __init__(self, context):
        super().__init__(context)
        self.tools = dict.fromkeys(["get_weather", "get_time", "get_nothing"])


@hermes
class GivesUpInSilence(HermesTurn):
    """What follows broken arguments is gone."""

    def rest(self):
        self._at = len(self._text)
        yield from super().rest()


@hermes
class Raises(HermesTurn):
    """Where a call is malformed."""

    def _run(self):
        while True:
            yield from self.read()


@hermes
class ReadsItAllAgain(HermesTurn):
    """Looks through the whole text for each piece."""

    def push(self, text):
        self._all = getattr(self, "_all", "") + text
        assert sum(1 for char in self._all if char == START[0]) >= 0
        return super().push(text)


@hermes
class NumbersNothing(HermesTurn):
    """Every call is the first."""

    def end(self):
        super().end()
        self._num_calls = 0


@hermes
class EndsWhatIsCut(HermesTurn):
    """Completes a call that the end of the text cuts off."""

    def finish(self):
        events = super().finish()
        return [*events, CallEnd(self._num_calls)] if self.is_in_call else events


@hermes
class LeavesTheEndMark(HermesTurn):
    """As content."""

    def close(self, *texts):
        yield from self.skip_space()
        return ""

    def read(self):
        yield from self.say_until(Marks(START))
        yield from self.call_object()


@hermes
class WaitsForTheEnd(HermesTurn):
    """Says nothing before."""

    def push(self, text):
        self._kept = [*getattr(self, "_kept", ()), text]
        return []

    def finish(self):
        events = HermesTurn.push(self, "".join(getattr(self, "_kept", ())))
        return events + super().finish()


@hermes
class ArgumentsAtTheEnd(HermesTurn):
    """Says a call when it is complete."""

    def argue(self, text):
        self._held.clear()
        self._arguments = [*getattr(self, "_arguments", ()), text]

    def end(self):
        super().argue("".join(self._arguments))
        self._arguments = []
        super().end()


@hermes
class SharesTheNumber(HermesTurn):
    """The number of calls belongs to all turns."""

    numbers = [0]

    def begin(self, name):
        self._num_calls = self.numbers[0]
        super().begin(name)
        self.numbers[0] += 1


class WithoutExample(Hermes):
    def examples(self):
        return [one for one in super().examples() if not one.events] or [
            Example(super().examples()[0].context, "Hi", [Content("Hi")])
        ]


class WrongExample(Think):
    def examples(self):
        return [*super().examples(), Example(super().examples()[0].context, "a", [Content("b")])]


class AnyModel(Hermes):
    def why_not(self, facts):
        return []


class NoModel(Mistral):
    def why_not(self, facts):
        return ["it is Tuesday"]


class HidesItsMark(Think):
    """Takes a mark for its own that it does not read."""

    visible_markers = frozenset({"<think>", "</think>", "Two"})


MUTANTS = [
    (SeesPiecesAlone, "Y1"),
    (StripsEachPiece, "Y1"),
    (StripsEachPiece, "Y2"),
    (DropsWhatIsMalformed, "Y2"),
    (MovesWhiteSpace, "Y2"),
    (CallsAnything, "Y8"),
    (GivesUpInSilence, "Y2"),
    (Raises, "Y3"),
    (ReadsItAllAgain, "Y3"),
    (NumbersNothing, "Y4"),
    (EndsWhatIsCut, "Y4"),
    (LeavesTheEndMark, "Y5"),
    (HidesItsMark, "Y5"),
    (WaitsForTheEnd, "Y6"),
    (ArgumentsAtTheEnd, "Y6"),
    (WithoutExample, "Y7"),
    (WrongExample, "Y7"),
    (SharesTheNumber, "Y8"),
    (AnyModel, "Y9"),
    (NoModel, "Y9"),
]


@pytest.mark.parametrize(("mutant", "number"), MUTANTS, ids=name_of)
def test_the_kit_catches_it(mutant, number):
    offers = frozenset({"reasoning"} if issubclass(mutant, Think) else {"tools"})

    assert_killed("parser", Component(name="wrong", target=mutant, offers=offers), number)


def test_those_that_are_derived_from_break_nothing():
    for right in (Hermes, Think, Mistral):
        for number in ("Y1", "Y2", "Y4", "Y5", "Y6", "Y7", "Y9"):
            assert not counter_examples("parser", right, number)


def test_the_base_tells_a_mark_that_cannot_be_told_from_another():
    with pytest.raises(ValueError, match="begins '<tool_calls>'"):
        Marks("<tool_call", "<tool_calls>")
    with pytest.raises(ValueError, match="and not empty"):
        Marks("a", "")
