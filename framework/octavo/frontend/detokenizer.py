"""Token ids to text, as they come: what is emitted, joined, is the decode of the whole.

Knows a tokenizer's bytes per token, and UTF-8. Does not know requests, stop strings or engines.
"""

from __future__ import annotations

import codecs
import copy
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.interfaces.tokenizer import Tokenizer

REPLACEMENT = "\ufffd"
#: a UTF-8 character has at most 4 bytes, so an incomplete one has at most 3
_MAX_INCOMPLETE_BYTES = 3
#: a window that has grown this far is emitted, even if it ends in U+FFFD
_MAX_WINDOW_TOKENS = 12
#: tokens of context to its left from which a window's text no longer depends on what came before
_CONTEXT_TOKENS = 6


class Detokenizer(ABC):
    """The text of one growing sequence.

    A character is held back until its last byte is there. What `push` and then `finish` returned,
    joined, is the same however the ids were split over calls, and is `Tokenizer.decode` of the
    output where that begins a text. Output that continues a prompt keeps its leading space, and
    completes a character that the prompt left incomplete.
    """

    @abstractmethod
    def push(self, token_ids: Sequence[int]) -> str:
        """Return the text that these ids complete; "" while a character is incomplete."""

    @abstractmethod
    def finish(self) -> str:
        """Return what is left at the end: U+FFFD when the output ends inside a character."""

    def fork(self) -> Self:
        """Return another one that goes on from here by itself: its state is replaced, not changed.

        The state of both may be shared until then.
        """
        return copy.copy(self)


def detokenizer_of(
    tokenizer: Tokenizer,
    prompt_token_ids: Sequence[int],
    *,
    skip_special_tokens: bool = True,
    visible_ids: frozenset[int] = frozenset(),
) -> Detokenizer:
    """Return a detokenizer for the output that follows a prompt (empty ids: a text begins).

    `visible_ids` are special tokens that are not skipped.
    """
    skipped = tokenizer.special_ids - visible_ids if skip_special_tokens else frozenset[int]()
    if tokenizer.has_exact_bytes:
        return BytesDetokenizer(tokenizer, prompt_token_ids, skipped)
    return WindowDetokenizer(tokenizer, prompt_token_ids, skipped)


class BytesDetokenizer(Detokenizer):
    """For tokenizers whose text is their tokens' bytes joined: byte-level and byte-fallback."""

    def __init__(
        self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int], skipped: frozenset[int]
    ) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._skipped = skipped
        tail = self._tail_of(prompt_token_ids)
        self._pending = tail[codecs.utf_8_decode(tail, "replace")[1] :]
        self._has_own_bytes = False
        self._is_at_start = tokenizer.strips_leading_space and not tail

    def push(self, token_ids: Sequence[int]) -> str:
        """Return the text that these ids complete."""
        data = self._pending
        for token_id in token_ids:
            if token_id not in self._skipped:
                added = self._token_bytes(token_id)
                if added:
                    data += added
                    self._has_own_bytes = True
        text, num_used = codecs.utf_8_decode(data, "replace")
        self._pending = data[num_used:]
        return self._without_dummy_prefix(text) if self._is_at_start and text else text

    def finish(self) -> str:
        """Return U+FFFD if a character is incomplete and the output had a part in it."""
        pending, self._pending = self._pending, b""
        return pending.decode("utf-8", "replace") if self._has_own_bytes else ""

    def _without_dummy_prefix(self, text: str) -> str:
        self._is_at_start = False
        return text.removeprefix(" ")

    def _tail_of(self, token_ids: Sequence[int]) -> bytes:
        """Return the last bytes of a text: enough to see whether it ends inside a character."""
        tail = b""
        for token_id in reversed(token_ids):
            if token_id not in self._skipped:
                tail = self._token_bytes(token_id) + tail
                if len(tail) > _MAX_INCOMPLETE_BYTES:
                    break
        return tail


class WindowDetokenizer(Detokenizer):
    """For tokenizers whose decoder looks at neighbours (WordPiece, CTC, ...).

    Decodes a window of the last few tokens twice, without and with the new ones, and emits the
    difference.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int], skipped: frozenset[int]
    ) -> None:
        self._decode = tokenizer.decode
        self._skipped = skipped
        tail = prompt_token_ids[-2 * _CONTEXT_TOKENS :]
        self._context = [i for i in tail if i not in skipped][-_CONTEXT_TOKENS:]
        self._new: list[int] = []
        self._text_before = self._text(self._context)

    def push(self, token_ids: Sequence[int]) -> str:
        """Return the text that these ids complete. Emits token by token, so no split matters."""
        return "".join(self._push_one(i) for i in token_ids if i not in self._skipped)

    def finish(self) -> str:
        """Return the text of the tokens held back."""
        return self._emit(self._text(self._context + self._new)) if self._new else ""

    def _push_one(self, token_id: int) -> str:
        self._new = [*self._new, token_id]  # a fork may share the list
        text = self._text(self._context + self._new)
        is_incomplete = text.endswith(REPLACEMENT) or not text.startswith(self._text_before)
        if is_incomplete and len(self._new) < _MAX_WINDOW_TOKENS:
            return ""
        return self._emit(text)

    def _emit(self, text: str) -> str:
        added = text[len(self._text_before) :]
        self._context = (self._context + self._new)[-_CONTEXT_TOKENS:]
        self._new = []
        self._text_before = self._text(self._context)
        return added

    def _text(self, token_ids: Sequence[int]) -> str:
        # skipped ids are gone already; what is left is to be spelled out
        return self._decode(token_ids, skip_special_tokens=False)
