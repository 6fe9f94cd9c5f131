"""Stop strings: find the first that ends in a growing text, and hold back what may become one.

Knows text and token counts. Does not know token ids, tokenizers or requests.
"""

from __future__ import annotations

import copy
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence


class Node:
    """A state of the automaton: the longest tail of the text that begins some stop string."""

    __slots__ = ("depth", "fallback", "next", "stop")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.next: dict[str, Node] = {}
        self.fallback: Node | None = None
        self.stop: str | None = None


class StopAutomaton:
    """Aho and Corasick's automaton (1975) over the stop strings: O(1) a character, amortised.

    Among stop strings that end at the same character the longest counts.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.root = Node(0)
        for stop in stops:
            self._add(stop)
        self._link()

    def step(self, node: Node, char: str) -> Node:
        """Return the state after one more character."""
        state: Node | None = node
        while state is not None:
            following = state.next.get(char)
            if following is not None:
                return following
            state = state.fallback
        return self.root

    def _add(self, stop: str) -> None:
        node = self.root
        for char in stop:
            node = node.next.setdefault(char, Node(node.depth + 1))
        node.stop = stop

    def _link(self) -> None:
        queue = deque([self.root])
        while queue:
            node = queue.popleft()
            for char, child in node.next.items():
                fallback = node.fallback
                child.fallback = self.root if fallback is None else self.step(fallback, char)
                child.stop = child.stop or child.fallback.stop
                queue.append(child)


@lru_cache(maxsize=8)
def _automaton_of(stops: tuple[str, ...]) -> StopAutomaton:
    """Return the automaton of these strings, which all choices of a call share: it never changes.

    The few of the last calls are kept.
    """
    return StopAutomaton(stops)


class StopChecker:
    """Follows one output. Text is held back only while its tail begins some stop string.

    A match counts when it ends in token number `min_tokens` or later; an earlier one is ordinary
    text. The text is cut before the stop string, or behind it with `include_in_output`.
    """

    def __init__(
        self, stops: Sequence[str], *, min_tokens: int = 0, include_in_output: bool = False
    ) -> None:
        self._automaton = _automaton_of(tuple(stops))
        self._min_tokens = min_tokens
        self._include_in_output = include_in_output
        self._node = self._automaton.root
        self._held = ""

    def push(self, text: str, num_tokens: int) -> tuple[str, str | None]:
        """Take the text that token number `num_tokens` (1 is the first) completed.

        Returns the text that may be shown, and the stop string that ended the output, if one did.
        """
        node, step = self._node, self._automaton.step
        for i, char in enumerate(text):
            node = step(node, char)
            if node.stop is not None and num_tokens >= self._min_tokens:
                return self._cut(self._held + text[: i + 1], node.stop), node.stop
        self._node = node
        shown = self._held + text
        cut = len(shown) - _num_held(node)
        self._held = shown[cut:]
        return shown[:cut], None

    def finish(self) -> str:
        """Return the text held back: the output ended without a stop string."""
        held, self._held = self._held, ""
        self._node = self._automaton.root
        return held

    def fork(self) -> Self:
        """Return another one that goes on from here by itself."""
        return copy.copy(self)

    def _cut(self, text: str, stop: str) -> str:
        self._held = ""
        return text if self._include_in_output else text[: len(text) - len(stop)]


def _num_held(node: Node) -> int:
    """Return how many characters of the tail are a proper beginning of a stop string.

    A whole stop string that was ignored (before `min_tokens`) is held only as far as it begins
    another one.
    """
    while not node.next and node.fallback is not None:
        node = node.fallback
    return node.depth
