"""Log-probabilities of prompt tokens, in pieces, from a step's hidden states.

Knows hidden states and rows. Does not know sampling or the schedule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from octavo.execution.sampling import token_logprobs
from octavo.interfaces.ops import Count
from octavo.interfaces.sampler import LogprobInputs

if TYPE_CHECKING:
    from octavo.engine.messages import TokenLogprobs
    from octavo.engine.plan import RowAdvance, RowSpec, StepPlan, StepResult
    from octavo.execution.batching import FlatBatch
    from octavo.execution.rows import Rows
    from octavo.interfaces.architecture import Architecture, StepBuffers

#: positions whose logits are held at once: memory is bounded whatever the prompt's length
PIECE = 32


class PromptScorer:
    """Scores the prompt positions of advances that ask for it."""

    def __init__(self, architecture: Architecture, rows: Rows, buffers: StepBuffers) -> None:
        self._architecture = architecture
        self._rows = rows
        self._buffers = buffers
        self._logits: torch.Tensor | None = None  # [PIECE, vocab], made when first needed
        self._count = Count()

    def score(self, plan: StepPlan, batch: FlatBatch, result: StepResult) -> None:
        """Fill `result.prompt_logprobs`: one entry per position whose next token is prompt."""
        for index, advance in enumerate(plan.advances):
            if advance.is_prompt_scored:
                spec = self._rows.spec(advance.row)
                if spec.params.prompt_logprobs is not None:
                    first = int(batch.query_start[index])
                    result.prompt_logprobs[index] = self._score_advance(advance, spec, first)

    def _score_advance(self, advance: RowAdvance, spec: RowSpec, first: int) -> list[TokenLogprobs]:
        """Score the advance whose tokens start at flat position `first`."""
        end = min(advance.start + advance.num_tokens, spec.num_prompt_tokens - 1)
        records: list[TokenLogprobs] = []
        for start in range(advance.start, end, PIECE):
            num = min(PIECE, end - start)
            flat = first + start - advance.start
            targets = self._rows.token_ids[advance.row, start + 1 : start + 1 + num]
            records += self._score_piece(
                flat, targets.astype(np.int64), spec.params.prompt_logprobs
            )
        return records

    def _score_piece(
        self, flat: int, targets: np.ndarray, num_top: int | None
    ) -> list[TokenLogprobs]:
        if self._logits is None:
            vocab_size = self._architecture.vocab_size
            self._logits = torch.empty(PIECE, vocab_size, dtype=self._buffers.logits.dtype)
        num = len(targets)
        self._count.value = num
        hidden = self._buffers.hidden[flat : flat + PIECE]
        self._architecture.project(self._logits, hidden, self._count)
        inputs = LogprobInputs(
            np.arange(num, dtype=np.int64), targets, np.full(num, num_top or 0, dtype=np.int32)
        )
        outputs = self._architecture.ops.logprobs(self._logits, inputs)
        return token_logprobs(outputs, targets.tolist())
