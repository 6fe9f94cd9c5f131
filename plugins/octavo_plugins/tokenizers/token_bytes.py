"""What each token of a vocabulary adds to a text, as bytes.

Two spellings cover nearly all vocabularies: GPT-2's, where each byte is a printable character,
and sentencepiece's, where a space is U+2581 and a rare byte is `<0x0A>`.

Knows spellings. Does not know ids, merges or the tokenizers library.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Spelling = Callable[[str], bytes]

SPACE_MARK: Final = "\u2581"

_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_characters() -> dict[int, str]:
    """Return the character that stands for each byte in GPT-2's spelling.

    Printable Latin-1 stands for itself, the other bytes for U+0100 onwards in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = {byte: chr(byte) for byte in printable}
    characters.update({byte: chr(256 + index) for index, byte in enumerate(others)})
    return characters


_BYTES: Final[Mapping[str, int]] = MappingProxyType(
    {character: byte for byte, character in byte_characters().items()}
)


def byte_level(token: str) -> bytes:
    """Return the bytes of a token in GPT-2's spelling; one not in it stands for itself."""
    try:
        return bytes([_BYTES[character] for character in token])
    except KeyError:
        return token.encode()


def sentencepiece(token: str) -> bytes:
    """Return the bytes of a token in sentencepiece's spelling."""
    match = _BYTE_TOKEN.fullmatch(token)
    if match is not None:
        return bytes.fromhex(match[1])
    return token.replace(SPACE_MARK, " ").encode()
