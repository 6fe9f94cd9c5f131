"""What a caller asks of a vector: vLLM's names, and which hidden states it is made of.

Knows the valid ranges. Does not know the model: what depends on it is found out by
`octavo.frontend.pooling`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from octavo.errors import RequestError

#: what a vector can be made of: the last token's hidden state, or the mean of all tokens'
POOLINGS: Final = ("last", "mean")
_MAX_NUMBER: Final = 2**31


@dataclass(slots=True, kw_only=True)
class PoolingParams:
    """How to make a vector of a prompt. Raises `RequestError` (with `.param`) for a bad value.

    `pooling` is "last" or "mean"; None is the model's own. `dimensions` cuts the vectors of a
    model that was trained for it. `use_activation`, or `normalize` as it was called before, says
    whether vectors have length 1; None is what the model's files say, and else True.
    `truncate_prompt_tokens` keeps the last tokens of a longer prompt, -1 as many as the model
    takes. `extra_args` are parameters that components declare.
    """

    pooling: str | None = None
    dimensions: int | None = None
    use_activation: bool | None = None
    normalize: bool | None = None
    truncate_prompt_tokens: int | None = None
    extra_args: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.pooling is not None and self.pooling not in POOLINGS:
            _refuse("pooling", self.pooling, f"one of {', '.join(POOLINGS)}")
        for name in ("use_activation", "normalize"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                _refuse(name, value, "true or false")
        if self.normalize is not None and self.use_activation not in {None, self.normalize}:
            _refuse("normalize", self.normalize, "as use_activation, which means the same")
        if not _is_count(self.dimensions):
            _refuse("dimensions", self.dimensions, "an integer of at least 1")
        if self.truncate_prompt_tokens != -1 and not _is_count(self.truncate_prompt_tokens):
            _refuse("truncate_prompt_tokens", self.truncate_prompt_tokens, "at least 1, or -1")

    @property
    def is_normalized(self) -> bool | None:
        """Return whether the vector is to have length 1; None when nothing was said."""
        return self.use_activation if self.normalize is None else self.normalize


def _is_count(value: object) -> bool:
    if value is None:
        return True
    is_int = isinstance(value, int) and not isinstance(value, bool)
    return is_int and 1 <= value < _MAX_NUMBER  # type: ignore[operator]


def _refuse(param: str, value: object, valid: str) -> None:
    raise RequestError(f"{param} must be {valid}, not {value!r:.80}", param=param)
