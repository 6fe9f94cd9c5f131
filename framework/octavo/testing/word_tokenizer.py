"""A tokenizer whose tokens overlap: bytes, words and pieces of JSON, so that texts can be cut.

Knows a small vocabulary. Does not know grammars.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from octavo.interfaces.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EOS: Final = 256
BOS: Final = 257
_MARKERS: Final = MappingProxyType({EOS: "<|end|>", BOS: "<|begin|>"})
_FIRST_WORD: Final = 258
_WORDS: Final = (
    "hello", " one", " two", "hello one", "ab", "abb", "12", "()", "))", '{"', '":', '","', '"}',
    "title", '":"', '{"title":"', "漢字", "é", "<f", "<f=", "<f=one>", "</f>", "null", "true",
    "\n  ", "xy", "a.b",
)  # fmt: skip
_TOKENS: Final = (
    *(bytes([byte]) for byte in range(256)),
    *(text.encode() for text in _MARKERS.values()),
    *(word.encode() for word in _WORDS),
)


class WordTokenizer(Tokenizer):
    """Ids 0 to 255 are bytes, then two markers, then words; a text is cut into the longest."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the ids of a text."""
        del add_special_tokens
        data, ids = text.encode("utf-8", "replace"), list[int]()
        longest_first = sorted(range(len(_TOKENS)), key=lambda one: -len(_TOKENS[one]))
        while data:
            ids.append(next(one for one in longest_first if data.startswith(_TOKENS[one])))
            data = data[len(_TOKENS[ids[-1]]) :]
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Return the text of ids."""
        kept = (one for one in ids if not (skip_special_tokens and one in _MARKERS))
        return b"".join(map(self.token_bytes, kept)).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Return what a token adds to the text; markers give their own."""
        return _TOKENS[token_id] if 0 <= token_id < len(_TOKENS) else b""

    def id_to_token(self, token_id: int) -> str | None:
        """Return the token's text, byte by byte as a character each."""
        data = self.token_bytes(token_id)
        return data.decode("latin-1") if data else None

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a spelling."""
        ids = (one for one in range(len(_TOKENS)) if self.id_to_token(one) == token)
        return next(ids, None)

    @property
    def vocab_size(self) -> int:
        """Return the number of tokens."""
        return len(_TOKENS)

    @property
    def has_exact_bytes(self) -> bool:
        """Return True."""
        return True

    @property
    def strips_leading_space(self) -> bool:
        """Return False."""
        return False

    @property
    def bos_token_id(self) -> int | None:
        """Return the marker that begins a text."""
        return BOS

    @property
    def eos_token_id(self) -> int | None:
        """Return the marker that ends one."""
        return EOS

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Return that alone."""
        return frozenset({EOS})

    @property
    def special_ids(self) -> frozenset[int]:
        """Return both markers."""
        return frozenset(_MARKERS)

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """Return the markers by their names."""
        return {"eos_token": _MARKERS[EOS], "bos_token": _MARKERS[BOS]}

    @property
    def chat_templates(self) -> Mapping[str, str]:
        """Return none."""
        return {}
