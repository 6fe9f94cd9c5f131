"""Logprobs in the shapes of chat and of plain completions.

Knows tokens' bytes and texts. Does not know streams.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

from octavo_plugins.dialects.openai.answers import (
    ChatLogprobs,
    CompletionLogprobs,
    TokenLogprob,
    TopLogprob,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from octavo.frontend.outputs import Logprob
    from octavo.interfaces.tokenizer import Tokenizer

#: JSON has no -inf
FLOOR = -9999.0


class LogprobsWriter:
    """Writes logprobs for one model. With `as_ids` a token is written `token_id:N`."""

    def __init__(self, tokenizer: Tokenizer, *, as_ids: bool = False) -> None:
        self._tokenizer = tokenizer
        self._as_ids = as_ids

    def chat(self, entries: Sequence[Mapping[int, Logprob]], num_top: int) -> ChatLogprobs:
        """Return chat's shape: the alternatives are the `num_top` best, the token among them."""
        return ChatLogprobs([self._chat_entry(entry, num_top) for entry in entries])

    def prompt(self, entries: Sequence[Mapping[int, Logprob] | None]) -> list[object]:
        """Return vLLM's shape of a prompt's logprobs: by id, with rank and text."""
        return [
            None
            if entry is None
            else {
                str(token_id): {
                    "logprob": _finite(one.logprob),
                    "rank": one.rank,
                    "decoded_token": one.decoded_token,
                }
                for token_id, one in entry.items()
            }
            for entry in entries
        ]

    def name(self, token_id: int) -> str:
        """Return a token as this answer writes it."""
        return f"token_id:{token_id}" if self._as_ids else self._tokenizer.token_text(token_id)

    def _chat_entry(self, entry: Mapping[int, Logprob], num_top: int) -> TokenLogprob:
        token_id = next(iter(entry))
        ranked = sorted((one.rank or 0, i) for i, one in entry.items())
        best = [i for _, i in (ranked if num_top == -1 else ranked[:num_top])]
        token_bytes = self._tokenizer.token_bytes
        return TokenLogprob(
            self.name(token_id),
            _finite(entry[token_id].logprob),
            list(token_bytes(token_id)),
            [
                TopLogprob(self.name(i), _finite(entry[i].logprob), list(token_bytes(i)))
                for i in best
            ],
        )


class CompletionLogprobsWriter(LogprobsWriter):
    """Writes the logprobs of one growing text: offsets go on from piece to piece (B41).

    An offset is where the token's own characters begin; a token inside of a character begins
    with it. Tokens that show no text (special ones that are skipped) take no room.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, as_ids: bool = False, skips_special: bool = True
    ) -> None:
        super().__init__(tokenizer, as_ids=as_ids)
        self._hidden = tokenizer.special_ids if skips_special else frozenset[int]()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def write(
        self, token_ids: Sequence[int], entries: Sequence[Mapping[int, Logprob] | None]
    ) -> CompletionLogprobs:
        """Return the logprobs of the next tokens. The first token of a prompt has none."""
        written = CompletionLogprobs([], [], [], [])
        for token_id, entry in zip(token_ids, entries, strict=True):
            written.text_offset.append(self._offset)
            written.tokens.append(self.name(token_id))
            if token_id not in self._hidden:
                self._offset += len(self._decoder.decode(self._tokenizer.token_bytes(token_id)))
            if entry is None:
                written.token_logprobs.append(None)
                written.top_logprobs.append(None)
                continue
            written.token_logprobs.append(_finite(entry[token_id].logprob))
            top: dict[str, float] = {}
            for i, one in entry.items():
                top.setdefault(self.name(i), _finite(one.logprob))
            written.top_logprobs.append(top)
        return written


def _finite(logprob: float) -> float:
    return max(logprob, FLOOR)
