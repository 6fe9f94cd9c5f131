"""Texts followed through grammars token by token: at random, cut anywhere, and what is seen.

Knows masks and a small vocabulary. Does not know promises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from octavo.testing.invariants import PromiseBroken
from octavo.testing.word_tokenizer import WordTokenizer

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from octavo.interfaces.grammar import CompiledGrammar, GrammarState

TOKENIZER: Final = WordTokenizer()
#: more logits than tokens, as many models have
VOCAB_SIZE: Final = TOKENIZER.vocab_size + 40
_MAX_WALK: Final = 60


def mask_of(state: GrammarState) -> np.ndarray:
    """Return the tokens that may come next, as bools [logits]; what it leaves unset would show."""
    words = np.full(-(-VOCAB_SIZE // 32), 0xDEADBEEF, dtype=np.uint32)
    state.fill_mask(words)
    return np.unpackbits(words.view(np.uint8), bitorder="little").astype(bool)


def allowed_ids(mask: np.ndarray) -> list[int]:
    """Return the tokens of a mask."""
    ids: list[int] = np.flatnonzero(mask).tolist()
    return ids


def walk(state: GrammarState, rng: random.Random, most: int = _MAX_WALK) -> list[int]:
    """Advance by random tokens of the masks; return them."""
    taken: list[int] = []
    for _ in range(rng.randrange(most)):
        ids = np.flatnonzero(mask_of(state))
        if not len(ids):
            break
        token_id = int(rng.choice(ids))
        if not state.advance(token_id):
            raise PromiseBroken(f"token {token_id} is in the mask, and is not followed")
        taken.append(token_id)
    return taken


def cut(text: str, rng: random.Random) -> list[int]:
    """Return a text in tokens, cut anywhere."""
    data, ids = text.encode(), list[int]()
    while data:
        fitting = [
            one
            for one in range(TOKENIZER.vocab_size)
            if one not in TOKENIZER.special_ids and data.startswith(TOKENIZER.token_bytes(one))
        ]
        ids.append(rng.choice(fitting))
        data = data[len(TOKENIZER.token_bytes(ids[-1])) :]
    return ids


def accepts(compiled: CompiledGrammar, ids: list[int]) -> tuple[bool, int]:
    """Return whether tokens are a whole text, and how many of them were followed."""
    state = compiled.start()
    for index, token_id in enumerate(ids):
        if not mask_of(state)[token_id] or not state.advance(token_id):
            return False, index
    return state.is_complete, len(ids)


def sight_of(state: GrammarState) -> tuple[np.ndarray, bool]:
    """Return what may come next, and whether the text may end."""
    return mask_of(state), state.is_complete


def is_same(one: tuple[np.ndarray, bool], other: tuple[np.ndarray, bool]) -> bool:
    """Return whether two sights are equal."""
    return bool((one[0] == other[0]).all()) and one[1] == other[1]


def sights(state: GrammarState, ids: list[int]) -> Iterator[tuple[np.ndarray, bool]]:
    """Follow tokens, and yield what is seen before each and behind the last."""
    for token_id in ids:
        yield sight_of(state)
        state.advance(token_id)
    yield sight_of(state)
