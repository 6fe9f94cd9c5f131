"""Escapes in JSON that stand for half a character, which JSON allows and UTF-8 has no bytes for.

Knows the escapes of JSON texts. Does not know what a body holds.
"""

from __future__ import annotations

import re

#: any JSON escape; a pair of surrogates is one match, so that a lone one can be told from it
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL
)
_LONE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def without_lone_surrogates(raw: bytes) -> bytes:
    """Return JSON whose escapes are all characters: half a surrogate pair becomes U+FFFD (B23)."""

    def repair(match: re.Match[bytes]) -> bytes:
        escape = match.group()
        return rb"\ufffd" if _LONE_SURROGATE.fullmatch(escape) else escape

    return _ESCAPE.sub(repair, raw)
