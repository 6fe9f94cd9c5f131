r"""`\d`, `\w` and `\s` in regular expressions: of ASCII, as callers of other servers know them.

llguidance reads them as Rust does, with all digits, letters and blanks of Unicode: `\d+` would let
a model write Arabic digits. Those are still there by their own names, such as `\p{Nd}`. In the
patterns of JSON schemas llguidance itself reads them as ECMA-262 does.

Knows the syntax of escapes and brackets. Does not know what else a pattern says, nor compiles it.
"""

from __future__ import annotations

import re
from typing import Final

_MEMBERS: Final = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\x0b\x0c\r\x20"}

#: what matters of a pattern: escapes, brackets with a first `]` that closes nothing, set
#: differences, and hyphens that Rust would take for ranges up to what stands for an escape
_PART: Final = re.compile(r"\\.|\[\^?\]?|\]|--|-(?=\\[dDsSwW])", re.DOTALL)


def ascii_classes(pattern: str) -> str:
    r"""Return a pattern in which `\d`, `\w`, `\s` and their opposites are spelled out.

    Case is none of them: `(?i)\w` has no letter that merely folds to an ASCII one. Inside of
    brackets it may, as any letter there.
    """
    depth = 0

    def spelled_out(match: re.Match[str]) -> str:
        nonlocal depth
        part = match.group()
        if part[0] == "[":
            depth += 1
        elif part == "]":
            depth = max(0, depth - 1)
        elif part == "-":
            return r"\-" if depth else part
        elif part[0] == "\\" and part[1].lower() in _MEMBERS:
            sign = "^" if part[1].isupper() else ""
            group = f"[{sign}{_MEMBERS[part[1].lower()]}]"
            return group if depth else f"(?-i:{group})"
        return part

    return _PART.sub(spelled_out, pattern)
