"""The forms a prompt may have: text, token ids, and vLLM's dicts of either.

Knows shapes of input. Does not know tokenizers, limits or engines.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from octavo.errors import RequestError

#: what `generate` takes as one prompt
Prompt: TypeAlias = str | Sequence[int] | Mapping[str, Any]

_DICT_KEYS = ("prompt", "prompt_token_ids", "cache_salt")
_MAX_SALT_CHARS = 128


@dataclass(frozen=True, slots=True)
class ParsedPrompt:
    """A prompt's parts; at least one of `text` and `token_ids` is there, and ids count."""

    text: str | None
    token_ids: list[int] | None
    cache_salt: str | None = None


def parse_prompt(prompt: Prompt) -> ParsedPrompt:
    """Return the parts of a prompt. Raises RequestError for a form that is not known."""
    if isinstance(prompt, str):
        return ParsedPrompt(without_surrogates(prompt), None)
    if isinstance(prompt, Mapping):
        return _parse_mapping(prompt)
    return ParsedPrompt(None, _parse_ids(prompt))


def without_surrogates(text: str) -> str:
    """Return a text that UTF-8 can hold: pairs of surrogates joined, lone ones as U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def is_single_prompt(prompts: object) -> bool:
    """Return whether this is one prompt, rather than a list of prompts."""
    if isinstance(prompts, str | Mapping) or getattr(prompts, "ndim", None) == 1:
        return True
    is_list = isinstance(prompts, Sequence) and len(prompts) > 0
    return is_list and all(_is_id(item) for item in prompts)  # type: ignore[attr-defined]


def _parse_mapping(prompt: Mapping[str, Any]) -> ParsedPrompt:
    unknown = sorted(set(prompt) - set(_DICT_KEYS))
    if unknown:
        raise RequestError(
            f"a prompt dict cannot hold {', '.join(map(repr, unknown))}",
            f"valid keys: {', '.join(_DICT_KEYS)}",
            param="prompt",
        )
    text, ids, salt = (prompt.get(key) for key in _DICT_KEYS)
    if text is not None and not isinstance(text, str):
        raise RequestError(f"'prompt' must be a string, not {type(text).__name__}", param="prompt")
    if text is None and ids is None:
        raise RequestError(
            "a prompt dict must hold 'prompt' (text) or 'prompt_token_ids'", param="prompt"
        )
    if salt is not None and not (isinstance(salt, str) and 0 < len(salt) <= _MAX_SALT_CHARS):
        raise RequestError(
            f"cache_salt must be a string of 1 to {_MAX_SALT_CHARS} characters", param="cache_salt"
        )
    return ParsedPrompt(
        None if text is None else without_surrogates(text),
        None if ids is None else _parse_ids(ids),
        salt,
    )


def _parse_ids(ids: Any) -> list[int]:
    is_array = getattr(ids, "ndim", None) == 1
    if isinstance(ids, bytes) or not (isinstance(ids, Sequence) or is_array):
        raise RequestError(
            f"a prompt must be a string, a list of token ids or a dict, not {type(ids).__name__}",
            param="prompt",
        )
    plain: list[Any] = ids.tolist() if is_array else list(ids)
    for position, token_id in enumerate(plain):
        if not _is_id(token_id):
            raise RequestError(
                f"token ids must be integers, not {token_id!r} (position {position})",
                param="prompt",
            )
    return [operator.index(token_id) for token_id in plain]


def _is_id(value: object) -> bool:
    return hasattr(type(value), "__index__") and not isinstance(value, bool)
