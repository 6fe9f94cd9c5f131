"""The texts among a request's parameters: in a form that UTF-8 can hold, and as ids.

Knows stop strings and bad words. Does not know prompts or requests.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from octavo.errors import RequestError
from octavo.frontend.prompts import without_surrogates

if TYPE_CHECKING:
    from octavo.interfaces.tokenizer import Tokenizer
    from octavo.sampling_params import SamplingParams


def with_clean_texts(params: SamplingParams) -> SamplingParams:
    """Return parameters whose stop strings and bad words UTF-8 can hold (B23)."""
    if params.stop is None and params.bad_words is None:
        return params
    words = params.bad_words
    return replace(
        params,
        stop=[without_surrogates(text) for text in params.stop_strings],
        bad_words=None if words is None else [without_surrogates(text) for text in words],
    )


def bad_words_ids(
    params: SamplingParams, tokenizer: Tokenizer, vocab_size: int
) -> tuple[tuple[int, ...], ...]:
    """Return the ids of bad words, as they start a text and as they follow a space."""
    found: dict[tuple[int, ...], None] = {}
    for word in params.bad_words or ():
        for text in (word.lstrip(), " " + word.lstrip()):
            ids = tuple(tokenizer.encode(text, add_special_tokens=False))
            if ids and max(ids) >= vocab_size:
                raise RequestError(
                    f"bad_words: {word!r} has tokens outside the model's vocabulary",
                    param="bad_words",
                )
            if ids:
                found[ids] = None
    return tuple(found)
