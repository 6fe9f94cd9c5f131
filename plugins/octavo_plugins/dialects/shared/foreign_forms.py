"""Fields that ask for a form of the text in one API, and mean nothing in another.

Text without its form is worse than no text: where such a field is not obeyed it is refused, with
the name of the field that is (never reported as ignored).

Knows the names. Does not know forms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

#: of OpenAI's chats, of vLLM (today's and older), of OpenAI's responses, of Anthropic; each with
#: the values that ask for nothing
_FORMS: Final[Mapping[str, tuple[Any, ...]]] = {
    "response_format": ({"type": "text"},),
    "structured_outputs": ({},),
    "guided_json": (), "guided_regex": (), "guided_choice": (), "guided_grammar": (),
    "guided_json_object": (False,), "guided_whitespace_pattern": (), "structural_tag": (),
    "guided_decoding_backend": ("auto", "guidance"),
    "text": ({}, {"format": {"type": "text"}}),
    "output_config": ({},), "output_format": (),
}  # fmt: skip


def foreign_forms(*own: str) -> dict[str, tuple[Any, ...]]:
    """Return the fields for forms without an API's `own`, for `FieldRules.unsupported`."""
    return {name: idle for name, idle in _FORMS.items() if name not in own}


def said_by(own: str) -> dict[str, str]:
    """Return what to do instead of giving any of them, for `FieldRules.advice`."""
    return dict.fromkeys(_FORMS, f"{own} says what form the text is to have")
