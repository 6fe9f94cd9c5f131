"""The base of readers of turns: text comes in any pieces, and is read as if it were all there.

A family's reader is a generator. It calls the steps below with `yield from`; each waits for more
text where it needs some. Nothing but `Marks.find` and `JsonMachine` decides how far text is
certain, so that the events cannot depend on how the text was cut.

Knows text, marks and JSON. Does not know any family, token ids or HTTP.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Generator
from typing import TYPE_CHECKING, TypeAlias

from octavo.text.json_machine import SPACE, JsonMachine
from octavo.text.turn_teller import MalformedError, TurnTeller

if TYPE_CHECKING:
    from collections.abc import Callable

    from octavo.interfaces.parser import TurnContext, TurnEvent
    from octavo.text.marks import Marks

Script: TypeAlias = Generator[None, None, None]
Reads: TypeAlias = Generator[None, None, str]

#: a name of a tool, or the head of a call, that is longer is none
MAX_HEAD_CHARS = 512
_SPACES = re.compile(f"[{SPACE}]+")


class TextEndedError(Exception):
    """The text ended while more was waited for."""


class TurnScanner(TurnTeller):
    """Reads one turn by the script `read`, which is run again whenever it returns.

    `read` goes on with content, then reads a call, by the steps of this class. It may raise
    MalformedError wherever it finds that what it holds is no call.
    """

    def __init__(self, context: TurnContext) -> None:
        super().__init__(context)
        self._text = ""  # what has come and is not read; it is read up to `_at`
        self._at = 0
        self.last_mark = ""
        self._has_ended = False
        self._script = self._run()

    @abstractmethod
    def read(self) -> Script:
        """Read on, from content to the end of a call or of some other mark."""

    def push(self, text: str) -> list[TurnEvent]:
        """Return what this piece makes certain."""
        self._text = self._text[self._at :] + text
        self._at = 0
        next(self._script)
        return self.told()

    def finish(self) -> list[TurnEvent]:
        """Return what was held back, as content, or as what the text was at its end."""
        self._has_ended = True
        try:
            next(self._script)
        except TextEndedError:
            self.cut_off()
        self.say(self._text[self._at :])
        return self.told_at_end()

    def cut_off(self) -> None:
        """Say what is held when the text has ended: it is content."""
        self.release()

    # steps: each is used as `yield from self.step(...)`

    def say_until(self, marks: Marks) -> Reads:
        """Say all up to the first of some marks. Return it; it is held."""
        return (yield from self.pass_until(marks, self.say))

    def pass_until(self, marks: Marks, sink: Callable[[str], None]) -> Reads:
        """Hand all up to the first of some marks to `sink`. Return it; it is held."""
        while True:
            start, mark = marks.find(self._text, self._at)
            sink(self._text[self._at : start])
            self._at = start
            if mark:
                self._hold(len(mark))
                return mark
            yield from self._more()

    def hold_until(self, marks: Marks, max_chars: int = MAX_HEAD_CHARS) -> Reads:
        """Hold all up to the first of some marks, and it: `last_mark`. Return what is before it.

        Raises MalformedError where that is more than so many characters.
        """
        parts: list[str] = []
        num_chars = 0
        while True:
            start, mark = marks.find(self._text, self._at)
            # not a character more is held than may be, however many of them have come
            end = min(start, self._at + max_chars - num_chars)
            parts.append(self._text[self._at : end])
            num_chars += end - self._at
            self._hold(end - self._at)
            if end < start:
                raise MalformedError
            if mark:
                self._hold(len(mark))
                self.last_mark = mark
                return "".join(parts)
            yield from self._more()

    def hold_while(self, belongs: Callable[[str], bool], max_chars: int | None) -> Reads:
        """Hold characters as long as they belong to something, each asked once. Return them.

        Raises MalformedError where they are more than so many.
        """
        parts: list[str] = []
        while True:
            yield from self._need()
            if not belongs(self.next_char):
                return "".join(parts)
            if len(parts) == max_chars:
                raise MalformedError
            parts.append(self.next_char)
            self._hold(1)

    def skip_space(self) -> Script:
        """Hold white space, and wait for the character after it: `next_char`."""
        while True:
            match = _SPACES.match(self._text, self._at)
            self._hold(match.end() - self._at if match else 0)
            if self._at < len(self._text):
                return
            yield from self._more()

    def take(self, *texts: str) -> Reads:
        """Hold whichever of the texts comes next, after white space. Return "" for none."""
        yield from self.skip_space()
        return (yield from self.take_here(*texts))

    def take_here(self, *texts: str) -> Reads:
        """Do as `take`, without white space before it."""
        yield from self._need()
        while True:
            rest = self._text[self._at : self._at + max(map(len, texts))]
            for text in texts:
                if rest.startswith(text):
                    self._hold(len(text))
                    return text
            if not any(text.startswith(rest) for text in texts):
                return ""
            yield from self._more()

    def expect(self, *texts: str) -> Reads:
        """Hold whichever of the texts comes next, after white space. Raises MalformedError."""
        found = yield from self.take(*texts)
        if not found:
            raise MalformedError
        return found

    def close(self, *texts: str) -> Reads:
        """End a call that was told with the text that comes next. Return it; "" where none does.

        Then white space that was held on the way is that of what comes instead.
        """
        found = yield from self.take(*texts)
        if found:
            self.settle()
        else:
            self.release()
        return found

    def json_value(self) -> Reads:
        """Hold a JSON value of any type, after white space, and return its text."""
        yield from self.skip_space()
        machine = JsonMachine()
        parts: list[str] = []
        while not machine.is_complete:
            yield from self._need()
            parts.append(self._follow(machine))
            if machine.is_broken:
                raise MalformedError
        return "".join(parts)

    def arguments(self, name: str) -> Script:
        """Read the JSON object of a call's arguments, which is said while it comes."""
        yield from self.skip_space()
        if name not in self.tools or self.next_char != "{":
            raise MalformedError
        machine = JsonMachine()
        first: list[str] = []
        while not machine.is_complete:
            yield from self._need()
            piece = self._follow(machine)
            if self.is_in_call:
                self.argue(piece)
            else:
                first.append(piece)
                # after the bracket alone it may still be a dict of Python's
                if piece.strip(SPACE + "{") or machine.is_complete:
                    self.begin(name)
                    self.argue("".join(first))
            if machine.is_broken:
                raise MalformedError
        self.end()

    def rest(self) -> Script:
        """Say all that comes: no mark is looked for any more."""
        while True:
            self.say(self._text[self._at :])
            self._at = len(self._text)
            yield from self._more()

    @property
    def next_char(self) -> str:
        """Return the character that comes next, after `skip_space`."""
        return self._text[self._at]

    # within

    def _run(self) -> Script:
        while True:
            try:
                yield from self.read()
            except MalformedError:
                self.release()
                if self.is_in_call:
                    yield from self.rest()

    def _more(self) -> Script:
        if self._has_ended:
            raise TextEndedError
        yield

    def _need(self) -> Script:
        """Wait until there is a character."""
        while self._at == len(self._text):
            yield from self._more()

    def _hold(self, num_chars: int) -> None:
        if num_chars:
            self._held.append(self._text[self._at : self._at + num_chars])
            self._at += num_chars

    def _follow(self, machine: JsonMachine) -> str:
        piece, end = machine.run(self._text, self._at)
        self._hold(end - self._at)
        return piece
