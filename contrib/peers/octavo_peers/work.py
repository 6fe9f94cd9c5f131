"""What every engine is given to do: cases, and the prompts of each.

Knows numbers and seeds, and the JSON that travels to the process of an engine. Needs the standard
library only, as it runs under the Pythons of all engines. Does not know any engine.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any, Final

#: ids below this are often special tokens
_FIRST_ID: Final = 10
#: own tokens of a prompt, and output tokens, of the call before the timed ones
_WARM_PROMPT_TOKENS: Final = 16
WARM_OUTPUT_TOKENS: Final = 2
#: the number of that call; the timed ones count from 0
_WARM_CALL: Final = -1


@dataclass(frozen=True, order=True)
class Case:
    """`num_seqs` sequences at once: so many tokens in, so many out.

    A prompt is `num_prefix_tokens` that all sequences share, and `num_prompt_tokens` of its own.
    """

    num_prompt_tokens: int
    num_seqs: int
    num_output_tokens: int
    num_prefix_tokens: int = 0

    @property
    def seq_tokens(self) -> int:
        """Return the tokens of one sequence at its end."""
        return self.num_prefix_tokens + self.num_prompt_tokens + self.num_output_tokens

    @property
    def total_tokens(self) -> int:
        """Return the tokens of all sequences at their end."""
        return self.num_seqs * self.seq_tokens

    def prefill_rate(self, first_s: float) -> float:
        """Return prompt tokens a second, the shared ones counted for each sequence.

        `first_s`: seconds of a call that asks for one token of every sequence.
        """
        num_tokens = self.num_prefix_tokens + self.num_prompt_tokens
        return self.num_seqs * num_tokens / first_s

    def decode_rate(self, first_s: float, total_s: float) -> float | None:
        """Return the rate of all tokens after the first; None where noise is more than the work.

        `total_s`: seconds of a call like that of `first_s`, but for all output tokens.
        """
        if total_s <= first_s:
            return None
        return self.num_seqs * (self.num_output_tokens - 1) / (total_s - first_s)


@dataclass(frozen=True)
class Job:
    """One process of one engine: a model, and the cases to time one after another.

    Each case is timed in pairs of calls, one for the first tokens and one for all, until `min_s`
    seconds have been timed. `options` are the engine's own; `spawned_s` is when the process was
    started, on the machine's monotonic clock.
    """

    engine: str
    model: str
    cases: tuple[Case, ...]
    num_threads: int
    options: dict[str, Any]
    seed: int = 0
    max_id: int = 30_000
    min_s: float = 2.0
    spawned_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Job:
        """Return what `to_json` gave."""
        return cls(**{**values, "cases": tuple(Case(**case) for case in values["cases"])})

    @property
    def max_num_seqs(self) -> int:
        """Return the most sequences at once."""
        return max(case.num_seqs for case in self.cases)

    @property
    def max_seq_tokens(self) -> int:
        """Return the length of the longest sequence."""
        return max(case.seq_tokens for case in self.cases)

    @property
    def is_prefix_shared(self) -> bool:
        """Return whether sequences share a prefix, which an engine should then compute once."""
        return any(case.num_prefix_tokens for case in self.cases)

    def prefix(self, case: Case) -> list[int]:
        """Return the tokens that all prompts of a case begin with: the same in every call."""
        return self._draw("prefix", case.num_prefix_tokens)

    def prompts(self, case: Case, call: int) -> list[list[int]]:
        """Return a prompt for each sequence. Calls share the prefix, and nothing else."""
        prefix = self.prefix(case)
        name = f"{case.num_seqs} {case.num_prompt_tokens} {call}"
        return [
            prefix + self._draw(f"{name} {seq}", case.num_prompt_tokens)
            for seq in range(case.num_seqs)
        ]

    def warm_prompts(self, case: Case) -> list[list[int]]:
        """Return short prompts for the untimed call, after which the prefix is cached."""
        num_tokens = case.num_prefix_tokens + min(case.num_prompt_tokens, _WARM_PROMPT_TOKENS)
        return [prompt[:num_tokens] for prompt in self.prompts(case, _WARM_CALL)]

    def first_prompt(self) -> list[int]:
        """Return the prompt whose first token ends the start."""
        return self._draw("start", _WARM_PROMPT_TOKENS)

    def _draw(self, name: str, num_tokens: int) -> list[int]:
        """Return random ids: the same in every Python for the same seed and name."""
        source = random.Random(f"{self.seed} {name}")  # noqa: S311 - a workload, not a secret
        return source.choices(range(_FIRST_ID, self.max_id + 1), k=num_tokens)
