"""What may stand between the parts of JSON: by default one layout's worth, and never without end.

Both back ends write JSON with what is said here, so that they accept the same texts.

Knows the blanks of JSON. Does not know schemas, or who compiles the expressions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.errors import GrammarError
from octavo_plugins.grammars.patterns import between_json

if TYPE_CHECKING:
    from octavo.interfaces.grammar import GrammarSpec


def spacing_of(spec: GrammarSpec, max_indent: int) -> str:
    """Return an expression of the blanks that a form asks for; "" for none at all.

    Raises GrammarError for a `whitespace_pattern` that is no expression of JSON's blanks.
    """
    if spec.whitespace is None:
        return default_spacing(max_indent)
    if spec.whitespace == "":
        return ""
    try:
        return between_json(spec.whitespace)
    except GrammarError as error:
        raise GrammarError(
            f"whitespace_pattern: {error.headline}",
            *error.facts,
            "spaces, tabs and line breaks may stand between the parts of JSON",
        ) from error


def default_spacing(max_indent: int) -> str:
    """Return a space, or a line break with the indentation after it.

    That is what writers of JSON do, and a model that falls into blanks comes to an end of them.
    """
    line = rf" ?\r?\n(?: {{0,{max_indent}}}|\t{{0,{max_indent}}})"
    return between_json(rf" |{line}")
