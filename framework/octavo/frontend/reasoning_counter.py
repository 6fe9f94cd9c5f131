"""How many tokens of a turn are reasoning.

Knows tokens, and the marks of reasoning. Does not know what reads the text between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.interfaces.parser import Reasoning

if TYPE_CHECKING:
    from collections.abc import Iterable

    from octavo.interfaces.parser import ReasoningMarks, TurnEvent
    from octavo.interfaces.tokenizer import Tokenizer


class ReasoningCounter:
    """Counts the tokens of reasoning: those between its marks, where each is one token.

    Elsewhere the tokens of its text are counted when all of it is there.
    """

    def __init__(self, tokenizer: Tokenizer, marks: ReasoningMarks | None) -> None:
        self._tokenizer = tokenizer
        self._start, self._end = _single_ids(tokenizer, marks)
        self._is_open = marks is not None and marks.is_open
        self._num_tokens = 0
        self._texts: list[str] = []

    def take(self, token_ids: Iterable[int], events: Iterable[TurnEvent]) -> None:
        """Note tokens, and what was read of them."""
        self._texts += [one.text for one in events if isinstance(one, Reasoning)]
        for token_id in token_ids:
            if token_id == self._end:
                self._is_open = False
            elif token_id == self._start:
                self._is_open = True
            else:
                self._num_tokens += self._is_open

    @property
    def num_tokens(self) -> int:
        """Return how many tokens of reasoning there are so far."""
        if not self._texts:
            return 0
        if self._end is not None:
            return self._num_tokens
        return len(self._tokenizer.encode("".join(self._texts), add_special_tokens=False))


def _single_ids(
    tokenizer: Tokenizer, marks: ReasoningMarks | None
) -> tuple[int | None, int | None]:
    """Return the tokens of the marks; none where not both are single tokens."""
    if marks is None or not marks.start:
        return None, None
    both = [tokenizer.token_to_id(text) for text in (marks.start, marks.end)]
    return (None, None) if None in both else (both[0], both[1])
