"""Proposers beside a model that are wrong on purpose."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mutants import assert_killed, name_of
from octavo_plugins.proposers.draft_model import DraftModel
from octavo_plugins.proposers.draft_progress import DraftProgress


class Trusting(DraftModel):
    """Takes what it guessed for what came."""

    def prepare(self, *parts):
        super().prepare(*parts)

        class Progress(DraftProgress):
            def start_of(self, row):
                start = super().start_of(row)
                return max(start, self._rows.num_tokens[row] - 1)

        progress = self._progress
        self._progress = Progress(
            self._rows, progress._tables, len(progress._contents), progress._block_size
        )


class OldBlocks(DraftModel):
    """Believes that a block holds what it once held, and that rows are their predecessors."""

    def forget(self, row):
        del row


class GrowsBold(DraftModel):
    """Draws ever more freely, the more it has drawn."""

    def _inputs(self, rows, drafts):
        inputs = super()._inputs(rows, drafts)
        self.drawn = getattr(self, "drawn", 0) + 1
        return replace(inputs, temperature=inputs.temperature + self.drawn)


class OneMore(DraftModel):
    def propose(self, wanted):
        return [(*drafts, 7) if drafts else () for drafts in super().propose(wanted)]


class OtherVocabulary(DraftModel):
    def propose(self, wanted):
        return [[one + 200 for one in drafts] for drafts in super().propose(wanted)]


class OnlyTheFirst(DraftModel):
    """Answers for the rows that it has drafts for."""

    def propose(self, wanted):
        return [drafts for drafts in super().propose(wanted) if drafts][:1]


class NeedsCompany(DraftModel):
    """Takes for granted that more than one row wants drafts."""

    def propose(self, wanted):
        _, (_, most), *_ = wanted
        return super().propose([(row, most) for row, _ in wanted])


class ForgetsOnce(DraftModel):
    """Cannot forget a row that it has forgotten before."""

    def load(self, config, target):
        super().load(config, target)
        self.known = set(range(4096))

    def forget(self, row):
        super().forget(row)
        self.known.remove(row)


class Diary(DraftModel):
    """Keeps all that it ever proposed."""

    def propose(self, wanted):
        drafts = super().propose(wanted)
        self.diary = [*getattr(self, "diary", []), *map(list, drafts)]
        return drafts


class WritesRows(DraftModel):
    """Puts its first draft in the place of the row's last token."""

    def propose(self, wanted):
        drafts = super().propose(wanted)
        for (row, _), tokens in zip(wanted, drafts, strict=True):
            if tokens:
                self._rows.token_ids[row, self._rows.num_tokens[row] - 1] = tokens[0]
        return drafts


class TakesBlocks(DraftModel):
    """Enters blocks of its own into the model's tables."""

    def propose(self, wanted):
        drafts = super().propose(wanted)
        for row, _ in wanted:
            self._rows.block_tables[0][row, -1] = 1
        return drafts


class ChangesTheModel(DraftModel):
    def load(self, config, target):
        super().load(config, target)
        target.weights["final_norm"] = target.weights["final_norm"].flip(0) + 0.5


MUTANTS = [
    (Trusting, "D1"),
    (OldBlocks, "D1"),
    (GrowsBold, "D1"),
    (OneMore, "D2"),
    (OtherVocabulary, "D2"),
    (OnlyTheFirst, "D2"),
    (NeedsCompany, "D2"),
    (ForgetsOnce, "D3"),
    (Diary, "D3"),
    (WritesRows, "D4"),
    (TakesBlocks, "D4"),
    (ChangesTheModel, "D5"),
]


@pytest.mark.parametrize(("mutant", "number"), MUTANTS, ids=name_of)
def test_a_wrong_proposer_beside_a_model_is_killed(mutant, number):
    assert_killed("proposer", mutant, number, options={"num-layers": 1})
