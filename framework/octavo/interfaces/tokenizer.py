"""The tokenizer kind: text to token ids and back, and the model's chat templates.

Knows ids, strings and bytes. Does not know how a template is rendered
(`octavo.text.chat_template`), what a request is, or which library does the work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class Tokenizer(ABC):
    """Text to ids and back. Thread-safe: nothing changes after loading.

    K1  `decode(ids)` is the tokens' bytes joined, then read as UTF-8 with errors replaced; no
        space is put between or around tokens. Where `strips_leading_space`, one leading space
        of the whole is then taken away. This holds where `has_exact_bytes`, which is every
        byte-level and byte-fallback vocabulary; elsewhere the library's own decoder is asked.
    K2  a marker (an added token) is one id wherever its text stands, whatever surrounds it.
    K3  `encode` never fails on a string: a lone surrogate is read as U+FFFD.
    K4  every id that a property returns is below `vocab_size`.
    """

    @abstractmethod
    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the ids of a text. Markers in the text become their ids.

        `add_special_tokens` adds what the model's tokenizer puts around a text (often BOS). A
        rendered chat template already holds it: pass False.
        """

    @abstractmethod
    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Return the text of ids; ids outside the vocabulary give no text."""

    @abstractmethod
    def token_bytes(self, token_id: int) -> bytes:
        """Return what one token adds to the text, as bytes: perhaps part of a character.

        Special tokens give their text here. An id outside the vocabulary gives b"".
        """

    @abstractmethod
    def id_to_token(self, token_id: int) -> str | None:
        """Return the token as the vocabulary spells it (`Ġthe`), or None outside it."""

    @abstractmethod
    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token as the vocabulary spells it, or None."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Return one more than the highest id (a model may have more logits than this)."""

    @property
    @abstractmethod
    def has_exact_bytes(self) -> bool:
        """Return whether rule K1 holds, so that text may be streamed from `token_bytes` alone."""

    @property
    @abstractmethod
    def strips_leading_space(self) -> bool:
        """Return whether `decode` takes one leading space away (sentencepiece's dummy prefix).

        Text that continues a prompt keeps that space: only a text's beginning loses it.
        """

    @property
    @abstractmethod
    def bos_token_id(self) -> int | None:
        """Return the id that starts a text, or None."""

    @property
    @abstractmethod
    def eos_token_id(self) -> int | None:
        """Return the id that the tokenizer itself calls the end of a text, or None."""

    @property
    @abstractmethod
    def eos_token_ids(self) -> frozenset[int]:
        """Return all ids that end an answer: end of text, of turn, of message."""

    @property
    @abstractmethod
    def special_ids(self) -> frozenset[int]:
        """Return the ids that `decode` leaves out when it skips special tokens."""

    @property
    @abstractmethod
    def special_tokens(self) -> Mapping[str, str]:
        """Return the texts of named tokens (`bos_token`, `eos_token`, ...), for templates."""

    @property
    @abstractmethod
    def chat_templates(self) -> Mapping[str, str]:
        """Return the model's chat templates by name; the usual one is called `default`."""

    @property
    def chat_template(self) -> str | None:
        """Return the usual chat template, or None when the model has none."""
        return self.chat_templates.get("default")

    def token_text(self, token_id: int) -> str:
        """Return what one token adds to the text; incomplete characters become U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", "replace")


class TokenizerFormat(ABC):
    """A way in which tokenizers are stored. Its constructor reads no file.

    Of the tokenizers that it loads, K1 to K4 say what `Tokenizer` says:

    K1  `decode(ids)` is the tokens' bytes joined, where `has_exact_bytes`.
    K2  a marker (an added token) is one id wherever its text stands.
    K3  `encode` never fails on a string; a lone surrogate is read as U+FFFD.
    K4  every id that a property returns is below `vocab_size`; outside there is no text.
    K5  a text that is encoded and decoded comes back, where `has_exact_bytes` and where each of
        its characters, or of their bytes, is a token.
    K6  in whatever pieces ids come, the text that is streamed is the one that is decoded at once.
    K7  the spelling of an id leads back to it.
    K8  a path without such a tokenizer has reasons in `why_not`, and `load` raises ModelLoadError.
    """

    @abstractmethod
    def why_not(self, path: Path) -> list[str]:
        """Return the reasons why this format cannot load from `path`; none means it can."""

    @abstractmethod
    def load(self, path: Path) -> Tokenizer:
        """Load a tokenizer. Raises `octavo.errors.ModelLoadError` naming file and key."""
