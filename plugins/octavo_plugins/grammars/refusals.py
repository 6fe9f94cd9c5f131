"""How stock grammar back ends refuse: what the form is called, and how long it may be.

Knows forms. Does not know any back end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from octavo.errors import GrammarError

if TYPE_CHECKING:
    from octavo.interfaces.grammar import GrammarForm, GrammarSpec

_NAMES: Final[dict[GrammarForm, str]] = {
    "json_schema": "JSON schema",
    "json_object": "JSON object",
    "regex": "regular expression",
    "choice": "list of choices",
    "lark": "grammar",
    "gbnf": "grammar",
    "structural_tag": "structural tag",
}


def name_of(spec: GrammarSpec) -> str:
    """Return what a form is called in sentences."""
    return _NAMES[spec.form]


def check_length(spec: GrammarSpec, max_bytes: int) -> None:
    """Raise GrammarError for a grammar that is longer than it may be."""
    num_bytes = len(spec.text.encode("utf-8", "replace"))
    if num_bytes > max_bytes:
        raise GrammarError(
            f"the {name_of(spec)} is too long: {num_bytes} bytes, at most {max_bytes} are taken"
        )


def cannot(spec: GrammarSpec, reason: str) -> GrammarError:
    """Return the error of a grammar that a library complains of."""
    return GrammarError(f"the {name_of(spec)} cannot be held to", reason)
