"""Tells from a `tokenizer.json` how tokens join into text.

The decoders that nearly all models use amount to joining bytes; then text can be streamed token
by token. Knows the library's decoders as JSON. Does not decode.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from octavo_plugins.tokenizers.token_bytes import SPACE_MARK, byte_level, sentencepiece

if TYPE_CHECKING:
    from collections.abc import Callable

    import tokenizers

_SENTENCEPIECE_STEPS: Final = ({"Replace", "ByteFallback", "Fuse"}, {"Replace", "Fuse"})


@dataclass(frozen=True, slots=True)
class Decoding:
    """How tokens join. `spelling` is None where it is not by joining bytes."""

    spelling: Callable[[str], bytes] | None = None
    strips_leading_space: bool = False


def decoding_of(library: tokenizers.Tokenizer) -> Decoding:
    """Return how the library's decoder joins tokens."""
    if library.decoder is None:
        return Decoding()
    decoder = json.loads(library.decoder.__getstate__())
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return Decoding(byte_level)
    if kinds == ["Metaspace"] and steps[0].get("replacement") == SPACE_MARK:
        return Decoding(_plain_spaces, steps[0].get("prepend_scheme", "always") != "never")
    strips = [step for step in steps if step["type"] == "Strip"]
    others = {step["type"] for step in steps if step["type"] != "Strip"}
    if others in _SENTENCEPIECE_STEPS and _replaces_spaces(steps) and len(strips) <= 1:
        spelling = sentencepiece if "ByteFallback" in others else _plain_spaces
        if not strips:
            return Decoding(spelling)
        if strips[0] == {"type": "Strip", "content": " ", "start": 1, "stop": 0}:
            return Decoding(spelling, strips_leading_space=True)
    return Decoding()


def _replaces_spaces(steps: list[dict[str, Any]]) -> bool:
    replaces = [step for step in steps if step["type"] == "Replace"]
    return replaces == [{"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "}]


def _plain_spaces(token: str) -> bytes:
    """Return the bytes of a token where only spaces are spelt otherwise."""
    return token.replace(SPACE_MARK, " ").encode()
