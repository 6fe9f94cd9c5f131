"""A tokenizer's vocabulary, as grammar back ends take it.

Knows the bytes of tokens. Does not know grammars.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from octavo.errors import GrammarError

if TYPE_CHECKING:
    from octavo.interfaces.grammar import GrammarContext

#: how the end of a text is spelt; no real token has these bytes
END: Final = b"\xff<end>"


def exact_tokens(context: GrammarContext) -> list[bytes]:
    """Return what each token adds to a text.

    Markers (special tokens, ends of texts) have no bytes here, so that no grammar can ask for one.
    Raises GrammarError for a tokenizer whose tokens are not the bytes of the text.
    """
    tokenizer = context.tokenizer
    if not tokenizer.has_exact_bytes:
        raise GrammarError(
            "this model's texts cannot be given a form",
            "its tokenizer joins tokens by rules of its own, not byte by byte",
        )
    size = min(tokenizer.vocab_size, context.vocab_size)
    markers = tokenizer.special_ids | tokenizer.eos_token_ids
    return [b"" if i in markers else tokenizer.token_bytes(i) for i in range(size)]
