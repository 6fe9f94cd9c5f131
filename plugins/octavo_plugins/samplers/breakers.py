"""Sequence breakers of DRY, from texts to token ids.

A tokenizer may join a breaker with what surrounds it (`":`), so that one text stands for many
tokens: those that contain it, and those that end with its beginning, if the rest follows.
This is what KoboldCpp and llama.cpp do (`get_overlapping_token_sequences`).

Knows texts and tokens. Does not know requests or logits; imports neither numpy nor torch.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from octavo.interfaces.tokenizer import Tokenizer

_MAX_TAIL_TOKENS = 20
# the top two bits of a byte that goes on with a character of UTF-8
_TOP_BITS, _CONTINUATION = 0xC0, 0x80

#: heads, tail: each head is a breaker when the tokens of the tail follow it
Heads = tuple[tuple[int, ...], tuple[int, ...]]


def breaker_ids(tokenizer: Tokenizer, breakers: tuple[str, ...]) -> list[list[list[int]]]:
    """Return pairs of [heads, tail], token ids as JSON could hold them; each tail comes once."""
    heads_of: dict[tuple[int, ...], set[int]] = {}
    for breaker in breakers:
        for heads, tail in _heads_of(tokenizer, breaker):
            heads_of.setdefault(tail, set()).update(heads)
    return [[sorted(heads), list(tail)] for tail, heads in heads_of.items()]


@lru_cache(maxsize=256)
def _heads_of(tokenizer: Tokenizer, breaker: str) -> tuple[Heads, ...]:
    """Return the tokens of one breaker. Requests send the same few again and again."""
    vocabulary = _vocabulary_of(tokenizer)
    data = breaker.encode()
    whole = vocabulary.containing(data)
    found: list[Heads] = [(tuple(whole), ())] if whole else []
    for length in range(1, len(data)):
        heads = vocabulary.ending_with(data[:length]).difference(whole)
        rest = data[length:]
        is_between_characters = rest[0] & _TOP_BITS != _CONTINUATION
        if heads and is_between_characters:  # within one there is no text to encode
            tail = tokenizer.encode(rest.decode(), add_special_tokens=False)[:_MAX_TAIL_TOKENS]
            found.append((tuple(heads), tuple(tail)))
    return tuple(found)


@lru_cache(maxsize=4)
def _vocabulary_of(tokenizer: Tokenizer) -> _Vocabulary:
    """Return the index of a tokenizer's tokens, which takes some 100 ms to make."""
    return _Vocabulary(tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size))


class _Vocabulary:
    """The bytes of all tokens, to be found by what is in them."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = list(pieces)
        self._by_byte: list[list[int]] = [[] for _ in range(256)]
        for token_id, piece in enumerate(self._pieces):
            for byte in set(piece):
                self._by_byte[byte].append(token_id)

    def containing(self, data: bytes) -> set[int]:
        """Return the tokens that contain all of the data."""
        candidates = min((self._by_byte[byte] for byte in data), key=len)
        return {i for i in candidates if data in self._pieces[i]}

    def ending_with(self, data: bytes) -> set[int]:
        """Return the tokens that end with the data."""
        candidates = min((self._by_byte[byte] for byte in data), key=len)
        return {i for i in candidates if self._pieces[i].endswith(data)}
