"""What became of one request, as its client saw it.

Knows times and counts. Does not know connections or how answers are written.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(slots=True)
class Outcome:
    """One request. Times in seconds of `time.perf_counter`; `chunk_times_s` of pieces of text.

    `error` says in few words what went wrong, the same for all of the kind; `detail` is what the
    server said. Counts of tokens are the server's; None where it gave none.
    """

    sent_s: float = 0.0
    end_s: float = 0.0
    chunk_times_s: array[float] = field(default_factory=lambda: array("d"))
    num_prompt_tokens: int | None = None
    num_usage_tokens: int | None = None
    error: str | None = None
    detail: str = ""

    @property
    def num_output_tokens(self) -> int:
        """Return the tokens generated; without a count of the server's, the pieces of text."""
        counted = self.num_usage_tokens
        return len(self.chunk_times_s) if counted is None else counted

    @property
    def ttft_ms(self) -> float:
        """Return the time to the first piece of text."""
        return (self.chunk_times_s[0] - self.sent_s) * 1000

    @property
    def e2e_ms(self) -> float:
        """Return the time to the last piece of text."""
        return (self.chunk_times_s[-1] - self.sent_s) * 1000

    @property
    def tpot_ms(self) -> float:
        """Return the mean time of an output token after the first piece; 0 for a single one."""
        return (self.e2e_ms - self.ttft_ms) / max(1, self.num_output_tokens - 1)

    @property
    def gaps_ms(self) -> list[float]:
        """Return the times between pieces of text."""
        return [(after - before) * 1000 for before, after in pairwise(self.chunk_times_s)]
