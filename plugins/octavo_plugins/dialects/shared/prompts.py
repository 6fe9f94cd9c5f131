"""The prompts of one body: a text, several, ids, or several lists of ids.

Knows these forms. Does not know which field they came in, or tokenizers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence


def split_prompts(given: str | list[Any], param: str, max_number: int) -> Sequence[Any]:
    """Return the prompts of a field, each a text or a list of ids. Raises RequestError."""
    if isinstance(given, str):
        return [given]
    if not given:
        raise RequestError(f"{param} is an empty list: there is nothing to do", param=param)
    if all(isinstance(item, int) and not isinstance(item, bool) for item in given):
        return [given]
    if not all(isinstance(item, str) for item in given) and not all(
        isinstance(item, list) for item in given
    ):
        raise RequestError(
            f"{param} must be a text, a list of texts, a list of token ids, or a list of such "
            "lists",
            param=param,
        )
    if len(given) > max_number:
        raise RequestError(
            f"{param} has {len(given)} entries, and at most {max_number} are taken at once",
            param=param,
        )
    return given
