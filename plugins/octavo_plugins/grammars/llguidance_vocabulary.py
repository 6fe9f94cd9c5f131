"""A tokenizer's vocabulary, as llguidance takes it.

Knows the bytes of tokens. Does not know grammars.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import llguidance

from octavo_plugins.grammars.vocabulary import END, exact_tokens

if TYPE_CHECKING:
    from octavo.interfaces.grammar import GrammarContext


class Vocabulary:
    """Has the attributes that llguidance reads of a tokenizer.

    The end of a text is a token that the model does not have, behind all others: whether a text
    may end is the framework's to turn into tokens.
    """

    def __init__(self, context: GrammarContext) -> None:
        self.tokens = [*exact_tokens(context), END]
        self.eos_token_id = len(self.tokens) - 1
        self.bos_token_id = None
        self.special_token_ids = [self.eos_token_id]
        self._tokenizer = context.tokenizer
        self._library = llguidance.LLTokenizer(llguidance.TokenizerWrapper(self))

    def __call__(self, text: str) -> list[int]:
        """Return the tokens of a text, which llguidance asks for; it finds out that bytes fail."""
        return self._tokenizer.encode(text, add_special_tokens=False)

    @property
    def library(self) -> llguidance.LLTokenizer:
        """Return the vocabulary as llguidance keeps it: a tree of all tokens' bytes."""
        return self._library

    @property
    def size(self) -> int:
        """Return the number of real tokens."""
        return self.eos_token_id

    def bytes_of(self, token_ids: list[int]) -> bytes:
        """Return what tokens add to a text; ids outside the vocabulary add nothing."""
        return b"".join([self.tokens[i] for i in token_ids if 0 <= i < self.size])

    def has_bytes(self, token_id: int) -> bool:
        """Return whether a token can be a part of a text at all."""
        return 0 <= token_id < self.size and self.tokens[token_id] != b""

    def guess(self, data: bytes) -> list[int]:
        """Return tokens that begin a text of these bytes, however it goes on.

        The last token is left out where more bytes could make it another.
        """
        token_ids, rest = self.library.tokenize_partial(data)
        if self.bytes_of(token_ids) + rest == data:
            return token_ids
        # a tokenizer that puts a space before every text: take the longest tokens instead
        return self.library.greedy_tokenize(data.decode("utf-8", "ignore"))[:-1]
