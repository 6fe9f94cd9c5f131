"""The persistent rows of a batch: one per running request, kept from its start to its end.

Knows token ids, block tables and sampling parameters of each row, as arrays. Does not know the
model, the schedule or text. numpy only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from octavo.execution.columns import SamplingColumns
from octavo.execution.edits import RowEdits
from octavo.execution.history import PenaltyHistory

if TYPE_CHECKING:
    from octavo.engine.plan import RowAdvance, RowSpec, RowStart
    from octavo.execution.custom_stages import CustomStages
    from octavo.execution.reasoning import Guide


class Rows:
    """Arrays of `max_rows` rows. A row is reset when it starts, so that nothing leaks into it."""

    def __init__(
        self, max_rows: int, max_model_len: int, max_blocks: int, num_groups: int = 1
    ) -> None:
        # Touched page by page: a long context costs memory only once it is used.
        self.token_ids = np.zeros((max_rows, max_model_len + 1), dtype=np.int32)
        self.block_tables = [
            np.zeros((max_rows, max_blocks), dtype=np.int32) for _ in range(num_groups)
        ]
        self.num_blocks = [0] * max_rows
        self.num_tokens = [0] * max_rows
        self.specs: list[RowSpec | None] = [None] * max_rows
        self.stages: list[CustomStages | None] = [None] * max_rows
        self.grammars: list[Guide | None] = [None] * max_rows
        self.edits: list[RowEdits | None] = [None] * max_rows
        self.penalties: list[PenaltyHistory | None] = [None] * max_rows
        self.has_edits = np.zeros(max_rows, dtype=bool)
        self.columns = SamplingColumns(max_rows)
        self.names = [""] * max_rows
        self._kept: dict[str, CustomStages] = {}  # of preempted requests, by their ids

    def start(self, start: RowStart, stages: CustomStages | None, grammar: Guide | None) -> None:
        """Fill a row. `stages`: those of a request that is sampled row by row."""
        row, spec, params = start.row, start.spec, start.spec.params
        num_tokens = len(start.token_ids)
        self.token_ids[row, :num_tokens] = start.token_ids
        self.num_tokens[row] = num_tokens
        self.num_blocks[row] = 0
        for tables in self.block_tables:
            tables[row] = 0
        self.specs[row] = spec
        self.names[row] = start.request_id
        self.stages[row] = self._kept.pop(start.request_id, stages)
        self.grammars[row] = grammar
        self.columns.start(row, spec)
        self.edits[row] = RowEdits.of(spec, self.edits)
        self.penalties[row] = PenaltyHistory.of(spec, start.token_ids)
        self.has_edits[row] = bool(params.logits_processors) or any(
            one is not None for one in (stages, grammar, self.edits[row], self.penalties[row])
        )

    def pause(self, row: int) -> None:
        """Empty a row whose request goes on later, and keep the states of its stages until then."""
        stages = self.stages[row]
        if stages is not None and stages.has_state:
            self._kept[self.names[row]] = stages
        self.end(row)

    def drop(self, request_id: str) -> None:
        """Forget what was kept of a preempted request, if anything."""
        self._kept.pop(request_id, None)

    def end(self, row: int) -> None:
        """Empty a row."""
        self.specs[row] = None
        self.stages[row] = None
        self.grammars[row] = None
        self.edits[row] = None
        self.penalties[row] = None
        self.has_edits[row] = False

    def spec(self, row: int) -> RowSpec:
        """Return what sampling needs of a row that is in use."""
        spec = self.specs[row]
        if spec is None:
            raise AssertionError(f"row {row} is not in use")
        return spec

    def add_blocks(self, advance: RowAdvance) -> None:
        """Append the advance's new blocks to its tables."""
        by_group = advance.new_block_ids
        if by_group:
            row, start = advance.row, self.num_blocks[advance.row]
            end = start + len(by_group[0])
            for tables, blocks in zip(self.block_tables, by_group, strict=True):
                tables[row, start:end] = blocks
            self.num_blocks[row] = end

    def guess(self, row: int, drafts: tuple[int, ...]) -> None:
        """Put drafts behind the known tokens, for the step that verifies them."""
        start = self.num_tokens[row]
        self.token_ids[row, start : start + len(drafts)] = drafts

    def append(self, row: int, token_id: int) -> None:
        """Note a sampled token: the next step reads it from here."""
        self.token_ids[row, self.num_tokens[row]] = token_id
        self.num_tokens[row] += 1
        history = self.penalties[row]
        if history is not None:
            history.append(token_id)

    def history(self, row: int) -> list[int]:
        """Return all tokens of a row."""
        ids: list[int] = self.token_ids[row, : self.num_tokens[row]].tolist()
        return ids
