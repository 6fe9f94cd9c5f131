"""GBNF, the grammars of llama.cpp: rules `name ::= ...`, of which `root` is the text.

Knows their syntax as far as it takes to write them plainly. Does not compile them.
"""

from __future__ import annotations

import re
from typing import Final

from octavo.errors import GrammarError

_PART: Final = re.compile(
    r'(?P<literal>"(?:\\.|[^"\\\n])*"|\[(?:\\.|[^\]\\\n])*\])|(?P<comment>#[^\n]*)|(?P<count>\{[^}]*\})'
    r"|(?P<name>[A-Za-z0-9_-]+)|(?P<sign>::=|[.|()*+?]|\s+)|(?P<other>.)",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|.)", re.DOTALL
)
_COUNT: Final = re.compile(r"\{\s*\d+\s*(,\s*\d*\s*)?\}")
_RULE: Final = re.compile(r"^[ \t]*([A-Za-z0-9_-]+)[ \t]*::=", re.MULTILINE)
_SURROGATES: Final = range(0xD800, 0xE000)
_LAST: Final = 0x10FFFF


def plain_bnf(text: str, numbered: str) -> str:
    """Return a grammar with names, escapes and comments that every reader takes alike.

    `numbered` is how the reader has a character written by its number: a format. Raises
    GrammarError for what is no GBNF.
    """
    parts = list(_PART.finditer(text))
    bare = "".join(" " if part["literal"] or part["comment"] else part.group() for part in parts)
    names = {name: f"r{index}" for index, name in enumerate(dict.fromkeys(_RULE.findall(bare)))}
    if "root" not in names:
        raise GrammarError("the grammar has no rule 'root', with which a text begins")
    rules = "".join(_written(part, names, numbered) for part in parts)
    # no rule refers to `root` itself: xgrammar misses tokens behind one that comes back to it
    return f"root ::= {names['root']}\n{rules}"


def _written(part: re.Match[str], names: dict[str, str], numbered: str) -> str:
    match part.lastgroup:
        case "literal":
            is_class = part.group()[0] == "["

            def plain(match: re.Match[str]) -> str:
                return _plain_escape(match, numbered, is_class=is_class)

            return _ESCAPE.sub(plain, part.group())
        case "comment":
            return ""
        case "name":
            if part.group() not in names:
                raise GrammarError(f"the grammar has no rule {part.group()!r:.80}")
            return names[part.group()]
        case "count" if _COUNT.fullmatch(part.group()):
            return part.group()
        case "sign":
            return '([^\\n] | "\\n")' if part.group() == "." else part.group()
    line = part.string.count("\n", 0, part.start()) + 1
    raise GrammarError(
        f"line {line} of the grammar: {part.group()!r:.40} is no GBNF",
        "a text in quotes, characters in brackets, names of rules, and | ( ) * + ? {m,n} are",
    )


def _plain_escape(match: re.Match[str], numbered: str, *, is_class: bool) -> str:
    """Write the character itself, but for those that mean something else."""
    digits = match[1] or match[2] or match[3]
    char = match.group()[1]
    if digits is None and char in "nrt":
        return match.group()
    if digits is None and char not in '"\\[]^-/':
        raise GrammarError(f"the grammar has {match.group()!r:.40}, which is no escape of GBNF")
    code = ord(char) if digits is None else int(digits, 16)
    if code in _SURROGATES or code > _LAST:
        raise GrammarError(f"the grammar has {match.group()}, which is no character")
    char = chr(code)
    if char in '"\\' or (is_class and char in "[]"):
        return f"\\{char}"
    is_plain = char.isprintable() and not (is_class and char in "^-/")
    return char if is_plain or code > 0x7F else numbered.format(code)  # noqa: PLR2004 - of ASCII
