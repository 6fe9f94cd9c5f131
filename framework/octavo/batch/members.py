"""The fields of a JSON object, as they stand there: their values are not looked into.

For lines that a strict reader refuses because of something inside of one value: half a surrogate
pair, NaN, deep nesting. What else the line says is known all the same.

Knows strings, brackets and commas. Does not know which fields there are, or whether a value is
JSON.
"""

from __future__ import annotations

import json
import re

_SPACE = b" \t\r\n"
#: a string, a bracket, a comma or colon, or anything else up to one of these
_TOKEN = re.compile(
    rb'[ \t\r\n]*("[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},:]|[^ \t\r\n"\[\]{},:]+)', re.DOTALL
)


def members(text: bytes) -> dict[str, bytes] | None:
    """Return the fields of an object with the bytes of their values; None for what is none.

    Of several fields with one name the last counts. Nothing is called for nested values, so no
    depth is too deep.
    """
    fields: dict[str, bytes] = {}
    depth, at, start = 0, 0, 0
    before, name = b"", None
    while token := _TOKEN.match(text, at):
        at, mark = token.end(), token.group(1)
        if depth == 0 and mark != b"{":
            return None
        if depth == 1 and mark in {b",", b"}"}:
            value = text[start : token.start(1)].strip(_SPACE)
            if name is not None and value:
                fields[name] = value
            elif name is not None or mark == b"," or before != b"{":
                return None
            name = None
        elif depth == 1 and name is None and mark == b":":
            name, start = text_of(before), at
        depth += (mark in {b"{", b"["}) - (mark in {b"}", b"]"})
        before = mark
        if depth == 0:
            return None if text[at:].strip(_SPACE) else fields
    return None


def text_of(value: bytes | None) -> str | None:
    """Return the text that a value is, None where it is something else."""
    if value is None or not value.startswith(b'"'):
        return None
    try:
        text = json.loads(value, strict=False)
    except ValueError:  # also of bytes that are no UTF-8
        return None
    return str(text)
