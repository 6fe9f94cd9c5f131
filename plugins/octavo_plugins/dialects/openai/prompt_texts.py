"""A prompt as text, for answers that are to hold it.

Knows prepared calls. Does not know answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.frontend.preprocess import PreparedCall
    from octavo.interfaces.tokenizer import Tokenizer


def prompt_text(
    call: PreparedCall, tokenizer: Tokenizer, *, skips_special_tokens: bool = False
) -> str:
    """Return the prompt as it was given or rendered; of ids, their text."""
    if call.prompt is not None:
        return call.prompt
    return tokenizer.decode(call.prompt_token_ids, skips_special_tokens)
