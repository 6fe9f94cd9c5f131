"""A `Tokenizer` around one of the tokenizers library's, however it was built.

Knows the library, and how bytes of tokens join into text. Does not know files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from octavo.interfaces.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import tokenizers


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """What is known of a tokenizer beside its vocabulary and merges.

    `spelling` turns a token that is no marker into bytes; None where only the library's decoder
    knows how tokens join. `prefix` and `suffix` are put around a text beside what the library's
    own post-processor adds.
    """

    bos_token_id: int | None = None
    eos_token_id: int | None = None
    eos_token_ids: frozenset[int] = frozenset()
    special_ids: frozenset[int] = frozenset()
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    chat_templates: Mapping[str, str] = field(default_factory=dict)
    spelling: Callable[[str], bytes] | None = None
    strips_leading_space: bool = False
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()


class FastTokenizer(Tokenizer):
    """Encodes with the library; decodes by joining bytes, so that streams equal whole texts."""

    def __init__(self, library: tokenizers.Tokenizer, facts: TokenizerFacts) -> None:
        library.no_truncation()
        library.no_padding()
        self._library = library
        self._facts = facts
        added = library.get_added_tokens_decoder()
        # markers stand for their own text, whatever the spelling of the vocabulary
        self._pieces = {token_id: token.content.encode() for token_id, token in added.items()}
        self._vocab_size = 1 + max(
            max(added, default=-1), library.get_vocab_size(with_added_tokens=False) - 1
        )

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the ids of a text, markers included."""
        encoding = self._library.encode(
            _without_surrogates(text), add_special_tokens=add_special_tokens
        )
        ids: list[int] = encoding.ids
        if not add_special_tokens:
            return ids
        return [*self._facts.prefix, *ids, *self._facts.suffix]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Return the text of ids: their bytes joined, as UTF-8."""
        if skip_special_tokens:
            special_ids = self._facts.special_ids
            ids = [token_id for token_id in ids if token_id not in special_ids]
        if self._facts.spelling is None:
            known = [token_id for token_id in ids if 0 <= token_id < self._vocab_size]
            text: str = self._library.decode(known, skip_special_tokens=False)
            return text
        data = b"".join([self.token_bytes(token_id) for token_id in ids])
        if self._facts.strips_leading_space:
            data = data.removeprefix(b" ")
        return data.decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Return what one token adds to the text."""
        piece = self._pieces.get(token_id)
        if piece is None:
            piece = self._spell(token_id)
            # threads may race to this line, and then write the same value
            self._pieces[token_id] = piece
        return piece

    def _spell(self, token_id: int) -> bytes:
        token = self.id_to_token(token_id)
        if token is None:
            return b""
        if self._facts.spelling is None:
            text: str = self._library.decode([token_id], skip_special_tokens=False)
            return text.encode()
        return self._facts.spelling(token)

    def id_to_token(self, token_id: int) -> str | None:
        """Return a token as the vocabulary spells it."""
        if not 0 <= token_id < self._vocab_size:
            return None
        token: str | None = self._library.id_to_token(token_id)
        return token

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token as the vocabulary spells it."""
        token_id: int | None = self._library.token_to_id(token)
        return token_id

    @property
    def vocab_size(self) -> int:
        """Return one more than the highest id."""
        return self._vocab_size

    @property
    def has_exact_bytes(self) -> bool:
        """Return whether the bytes of tokens, joined, are the text."""
        return self._facts.spelling is not None

    @property
    def strips_leading_space(self) -> bool:
        """Return whether `decode` takes one leading space away."""
        return self._facts.strips_leading_space

    @property
    def bos_token_id(self) -> int | None:
        """Return the id that starts a text."""
        return self._facts.bos_token_id

    @property
    def eos_token_id(self) -> int | None:
        """Return the tokenizer's own end of text."""
        return self._facts.eos_token_id

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Return all ids that end an answer."""
        return self._facts.eos_token_ids

    @property
    def special_ids(self) -> frozenset[int]:
        """Return the ids that are left out of text."""
        return self._facts.special_ids

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """Return the texts of named tokens."""
        return self._facts.special_tokens

    @property
    def chat_templates(self) -> Mapping[str, str]:
        """Return the chat templates by name."""
        return self._facts.chat_templates


def _without_surrogates(text: str) -> str:
    """Return a text that is valid Unicode: halves of a pair are joined, lone ones replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
