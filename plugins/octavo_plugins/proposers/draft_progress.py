"""How far a draft model has read each row, and which blocks hold what it read.

A row is read behind the model: tokens that came meanwhile are caught up on, and of the drafts
that it fed to itself those count that turned out right. Keys and values beyond are simply written
over. Blocks that rows share are read once: each remembers what the draft model has put into it,
which stays true however often the block changes hands, as nobody else writes there.

Knows tokens and block tables. Does not know models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.execution.rows import Rows

#: the content of a block that is not full of known tokens
_UNKNOWN = 0


class DraftProgress:
    """The progress of every row. `tables`: int32 [max_rows, max_blocks], the draft's block ids."""

    def __init__(self, rows: Rows, tables: np.ndarray, num_blocks: int, block_size: int) -> None:
        num_rows = len(tables)
        self._rows = rows
        self._tables = tables
        self._block_size = block_size
        self._num_read = [0] * num_rows
        self._guesses: list[Sequence[int]] = [()] * num_rows  # read beyond `num_read`
        self._keys: list[list[int]] = [[] for _ in range(num_rows)]  # of the row's full blocks
        self._contents = np.full(num_blocks, _UNKNOWN, dtype=np.int64)  # keys, by block

    def start_of(self, row: int) -> int:
        """Return the first position that has to be read: the row's last one, or one before it."""
        num_tokens, read = self._rows.num_tokens[row], self._num_read[row]
        for token_id in self._guesses[row]:
            if read >= num_tokens or self._rows.token_ids[row, read] != token_id:
                break
            read += 1
        block, keys, table = read // self._block_size, self._full_keys(row), self._tables[row]
        while block < len(keys) and self._contents[table[block]] == keys[block]:
            block += 1
            read = block * self._block_size
        self._num_read[row], self._guesses[row] = read, ()
        return min(read, num_tokens - 1)

    def advance(self, row: int, end: int, guesses: Sequence[int] = ()) -> None:
        """Note that a row was read up to `end`, and that `guesses` were fed behind its tokens."""
        start, size = min(self._num_read[row], end), self._block_size
        keys, table = self._full_keys(row), self._tables[row]
        for block in range(start // size, -(-(end + len(guesses)) // size)):
            is_full = (block + 1) * size <= end
            self._contents[table[block]] = keys[block] if is_full else _UNKNOWN
        self._num_read[row], self._guesses[row] = end, guesses

    def forget(self, row: int) -> None:
        """Begin anew: the row is another request's, or has other blocks."""
        self._num_read[row] = 0
        self._guesses[row] = ()
        self._keys[row] = []

    def _full_keys(self, row: int) -> list[int]:
        """Return a key for each block that is full of known tokens: a hash of all up to its end."""
        keys, size = self._keys[row], self._block_size
        for block in range(len(keys), self._rows.num_tokens[row] // size):
            tokens = self._rows.token_ids[row, block * size : (block + 1) * size].tolist()
            keys.append(hash((keys[-1] if keys else 0, *tokens)))
        return keys
