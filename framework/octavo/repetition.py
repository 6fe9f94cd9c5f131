"""What a text that goes round in circles looks like, by vLLM's names.

Knows the valid ranges. Does not know tokens, or where texts are followed
(`octavo.frontend.repetition`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from octavo.errors import RequestError

_FIELD: Final = "repetition_detection"

#: of a pattern: what is looked at for each token is in proportion to it
MAX_PATTERN_SIZE: Final = 1024


@dataclass(frozen=True, slots=True)
class RepetitionDetectionParams:
    """When a text counts as repetition: a pattern of tokens stands `min_count` times in a row.

    Patterns have `min_pattern_size` to `max_pattern_size` tokens; a least size of 0 is 1, and a
    greatest size of 0 looks for none. Raises `RequestError` for a bad value.
    """

    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0

    def __post_init__(self) -> None:
        for name in ("max_pattern_size", "min_pattern_size", "min_count"):
            self._check(type(getattr(self, name)) is int, name, "an integer")
        most, least = self.max_pattern_size, self.min_pattern_size
        self._check(
            0 <= most <= MAX_PATTERN_SIZE, "max_pattern_size", f"from 0 to {MAX_PATTERN_SIZE}"
        )
        self._check(0 <= least <= most, "min_pattern_size", f"from 0 to max_pattern_size ({most})")
        self._check(self.min_count > 1 or most == 0, "min_count", "at least 2")

    def _check(self, is_good: bool, name: str, valid: str) -> None:
        if not is_good:
            value = f"{getattr(self, name)!r:.80}"
            raise RequestError(f"{_FIELD}.{name} must be {valid}, not {value}", param=_FIELD)
