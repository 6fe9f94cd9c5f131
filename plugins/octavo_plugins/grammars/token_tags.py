"""Structural tags whose marks are special tokens: what is armed by a token, and held behind it.

Such a token has no bytes, so that no grammar of a text can ask for it. Here a text is followed
part by part: a tag is its trigger's token, then grammars of texts and JSON with tokens between
them. Around tags any token may come, as without a form. A trigger that is spelt out in other tokens
is text like any other.

Knows compiled grammars, whichever back end makes them. Does not know how one is written.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from octavo.errors import GrammarError
from octavo.interfaces.grammar import CompiledGrammar, GrammarSpec, GrammarState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

#: a token by its id, or the grammar of what stands between two of them
Part: TypeAlias = int | CompiledGrammar
Parts: TypeAlias = tuple[Part, ...]
#: what was there before a token, and the states that followed it
Step: TypeAlias = tuple[list["Place"], list[GrammarState]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a text is in a tag: `parts` are left of it, `state` is that of the first, if any.

    Without parts it is outside of all tags.
    """

    parts: Parts
    state: GrammarState | None = None

    @property
    def is_complete(self) -> bool:
        """Return whether the first part may end here."""
        return self.state is not None and self.state.is_complete


_ANY_TEXT: Final = GrammarSpec("choice")
_OUTSIDE: Final = Place(())


class TokenTags(CompiledGrammar):
    """Tags by the token that arms them: several where calls of several tools begin alike."""

    def __init__(self, tags: Mapping[int, list[Parts]], num_tokens: int) -> None:
        self._tags = tags
        self._num_tokens = num_tokens

    @classmethod
    def of(
        cls,
        spec: GrammarSpec,
        compiled: Callable[[GrammarSpec], CompiledGrammar],
        num_tokens: int,
        max_s: float,
    ) -> TokenTags | None:
        """Return what a form asks for; None where it asks for no special tokens.

        Raises GrammarError, as `compiled` does, and where all that it compiles takes too long.
        """
        if spec.form != "structural_tag":
            return None
        plain = json.loads(spec.text)
        ids: dict[str, int] = plain.get("special_tokens", {})
        if not ids:
            return None
        if plain["at_least_one"] or plain["stop_after_first"]:
            raise GrammarError("with special tokens, tags are neither required nor the last")
        if not all(0 <= one < num_tokens for one in ids.values()):
            raise GrammarError("a special token is none of the vocabulary")
        until_s = time.monotonic() + max_s
        tags: dict[int, list[Parts]] = {}
        for trigger in plain["triggers"]:
            if trigger not in ids:
                raise GrammarError(
                    f"the trigger {trigger!r:.80} is no special token", "where one is, all are"
                )
            mine = [tag for tag in plain["tags"] if tag["begin"].startswith(trigger)]
            tags[ids[trigger]] = [
                tuple(map(partial(_compiled, compiled, until_s), parts))
                for parts in _merged(_parts(tag, trigger, ids) for tag in mine)
            ]
        return cls(tags, num_tokens)

    def start(self) -> TokenTagsState:
        """Return the state before the first token."""
        return TokenTagsState(self._tags, self._num_tokens)


class TokenTagsState(GrammarState):
    """The places that a text may be at: several as long as its tags begin alike."""

    def __init__(self, tags: Mapping[int, list[Parts]], num_tokens: int) -> None:
        self._tags = tags
        self._num_tokens = num_tokens
        self._places = [_OUTSIDE]
        self._steps: list[Step] = []

    def fill_mask(self, mask: NDArray[np.uint32]) -> None:
        """Set the bits of the tokens that may come next at any of the places."""
        mask[:] = 0
        own = np.empty_like(mask)
        for place in self._places:
            rest = place.parts
            if place.state is not None:
                place.state.fill_mask(own)
                mask |= own
                if not place.is_complete:
                    continue
                rest = rest[1:]
            if not rest:
                self._fill(mask)
                return
            if isinstance(rest[0], int):
                mask[rest[0] // 32] |= np.uint32(1 << rest[0] % 32)

    def advance(self, token_id: int) -> bool:
        """Follow a token, if it may come next at any of the places."""
        if not 0 <= token_id < self._num_tokens:
            return False
        found: list[Place] = []
        moved: list[GrammarState] = []
        for place in self._places:
            rest = place.parts
            if place.state is not None:
                rest = rest[1:] if place.is_complete else (-1,)
                if place.state.advance(token_id):
                    moved.append(place.state)
                    found.append(place)
            if not rest:
                found += self._outside(token_id)
            elif rest[0] == token_id:
                found.append(_entered(rest[1:]))
        if not found:
            return False
        self._steps.append((self._places, moved))
        self._places = found
        return True

    def rollback(self, num_tokens: int) -> None:
        """Undo the last advances."""
        for _ in range(num_tokens):
            self._places, moved = self._steps.pop()
            for state in moved:
                state.rollback(1)

    def forced(self) -> list[int]:
        """Return the tokens that must come next, where there is one place."""
        if len(self._places) > 1 or self._places[0].is_complete:
            return []
        (place,) = self._places
        if place.state is not None:
            return place.state.forced()
        return [one for one in place.parts[:1] if isinstance(one, int)]

    @property
    def is_complete(self) -> bool:
        """Return whether the text is outside of all tags."""
        return any(
            not place.parts or (len(place.parts) == 1 and place.is_complete)
            for place in self._places
        )

    def _fill(self, mask: NDArray[np.uint32]) -> None:
        word, bit = divmod(self._num_tokens, 32)
        mask[:word] = 0xFFFFFFFF
        if bit:
            mask[word] |= np.uint32((1 << bit) - 1)

    def _outside(self, token_id: int) -> list[Place]:
        return [_entered(parts) for parts in self._tags.get(token_id, ((),))]


def _entered(parts: Parts) -> Place:
    first = parts[0] if parts else None
    return Place(parts, first.start() if isinstance(first, CompiledGrammar) else None)


def _compiled(
    compiled: Callable[[GrammarSpec], CompiledGrammar], until_s: float, part: int | GrammarSpec
) -> Part:
    if not isinstance(part, GrammarSpec):
        return part
    if time.monotonic() > until_s:
        raise GrammarError("compiling takes too long", "make it smaller, or the tags fewer")
    return compiled(part)


def _merged(tags: Iterable[list[int | GrammarSpec]]) -> Iterator[list[int | GrammarSpec]]:
    """Yield tags of which those that differ in their first text alone are one."""
    groups: dict[tuple[int | GrammarSpec, ...], list[str]] = {}
    for parts in tags:
        match parts:
            case [GrammarSpec(form="choice", text=text), *rest]:
                groups.setdefault((_ANY_TEXT, *rest), []).extend(json.loads(text))
            case _:
                yield parts
    for (_, *rest), texts in groups.items():
        yield [GrammarSpec("choice", json.dumps(texts)), *rest]


def _parts(tag: Mapping[str, Any], trigger: str, ids: Mapping[str, int]) -> list[int | GrammarSpec]:
    """Return what a tag is made of behind its trigger."""
    marks = re.compile("|".join(map(re.escape, sorted(ids, key=len, reverse=True))))
    begin, end = tag["begin"][len(trigger) :], tag["end"]
    found: list[int | GrammarSpec] = []
    at = 0
    for mark in marks.finditer(begin):
        found += [*_text(begin[at : mark.start()]), ids[mark.group()]]
        at = mark.end()
    first = marks.search(end)
    cut = first.start() if first else len(end)
    found.append(_json(begin[at:], tag["schema"], end[:cut]))
    for mark in marks.finditer(end):
        found += [*_text(end[cut : mark.start()]), ids[mark.group()]]
        cut = mark.end()
    return found + _text(end[cut:])


def _text(text: str) -> list[int | GrammarSpec]:
    return [GrammarSpec("choice", json.dumps([text]))] if text else []


def _json(before: str, schema: Any, after: str) -> GrammarSpec:
    """Return the form of JSON with texts around it, which tokens may reach over."""
    if not before and not after:
        return GrammarSpec("json_schema", json.dumps(schema))
    if not before:
        raise GrammarError("with special tokens, text behind JSON needs text before it")
    tag = {"begin": before, "schema": schema, "end": after}
    switches = {"at_least_one": True, "stop_after_first": True}
    return GrammarSpec(
        "structural_tag", json.dumps({"triggers": [before], "tags": [tag], **switches})
    )
