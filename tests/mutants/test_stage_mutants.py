"""Sampler stages and proposers that are wrong on purpose: each breaks what it is listed with."""

from __future__ import annotations

import math

import pytest
import torch

from mutants import assert_killed, name_of
from octavo.interfaces.proposer import EngineProposer
from octavo.interfaces.sampler import SamplerStage
from octavo_plugins.proposers.ngram import Ngram, NgramOptions
from octavo_plugins.samplers.stages import MinP, TopK, TopP

INF = math.inf


class OwnStage(SamplerStage):
    """Asked for by `own`; subclasses say what is wrong."""

    def is_active(self, params):
        return bool((params.extra_args or {}).get("own"))


class ReachesOver(OwnStage):
    """Writes over the end of its row, into the neighbour's."""

    def apply(self, logits, row):
        width = logits.shape[0]
        torch.as_strided(logits, (width + 1,), (1,), logits.storage_offset())[width] = 0.0


class ChangesParameters(OwnStage):
    def apply(self, logits, row):
        row.params.temperature = 0.5


class AlwaysOn(OwnStage):
    def apply(self, logits, row):
        logits.mul_(0.5)


class Unmasks(OwnStage):
    def apply(self, logits, row):
        if self.is_active(row.params):
            logits.clamp_(min=-1e4)


class MakesNaN(OwnStage):
    def apply(self, logits, row):
        if self.is_active(row.params):
            logits.sub_(logits.min())


class TiresInTime(OwnStage):
    """Leaves nothing after 200 tokens."""

    def apply(self, logits, row):
        if self.is_active(row.params) and len(row.output_ids) > 200:
            logits.fill_(-INF)


class CountsInItself(OwnStage):
    """Keeps what belongs to a request."""

    def __init__(self, options=None):
        super().__init__(options)
        self.count = 0

    def apply(self, logits, row):
        pass

    def advance(self, row, logits, token_id):
        self.count += 1


class GrowsItsState(OwnStage):
    """Appends to the list that it was given."""

    def apply(self, logits, row):
        pass

    def new_state(self, row):
        return [] if self.is_active(row.params) else None

    def advance(self, row, logits, token_id):
        if row.state is not None:
            row.state.append(token_id)
        return row.state


class HidesNaN(OwnStage):
    def apply(self, logits, row):
        if self.is_active(row.params):
            logits.nan_to_num_(0.0, posinf=9.0, neginf=-INF)


class RaisesOnNothing(OwnStage):
    def apply(self, logits, row):
        if self.is_active(row.params):
            best = max(x for x in logits.tolist() if x > -INF)
            logits[logits < best - 9] = -INF


class OwnDice(OwnStage):
    def apply(self, logits, row):
        if self.is_active(row.params):
            logits.add_(torch.rand(()))


class CountsRows(OwnStage):
    """Counts the rows that it has seen in its state, drafts or not."""

    def new_state(self, row):
        return [0] if self.is_active(row.params) else None

    def apply(self, logits, row):
        if row.state is not None:
            row.state[0] += 1
            logits[0] -= row.state[0]


class OneMore(TopK):
    def apply(self, logits, row):
        kept = logits.topk(min(row.params.top_k + 1, len(logits))).indices
        if row.params.top_k > 0:
            mask = torch.ones_like(logits, dtype=torch.bool)
            mask[kept] = False
            logits[mask] = -INF


class StopsBeforeP(TopP):
    """Leaves out the token that reaches p."""

    def apply(self, logits, row):
        if row.params.top_p < 1:
            probs, order = logits.softmax(-1).sort(descending=True)
            over = probs.cumsum(0) > row.params.top_p
            over[0] = False
            logits[order[over]] = -INF


class OfTheSum(MinP):
    """A share of all, not of the likeliest."""

    def apply(self, logits, row):
        if row.params.min_p > 0:
            logits[logits.softmax(-1) < row.params.min_p] = -INF


STAGES = [
    (ReachesOver, "P1", {"own": 1}),
    (ChangesParameters, "P1", {"own": 1}),
    (AlwaysOn, "P2", {"own": 1}),
    (Unmasks, "P3", {"own": 1}),
    (MakesNaN, "P3", {"own": 1}),
    (TiresInTime, "P3", {"own": 1}),
    (CountsInItself, "P4", {"own": 1}),
    (GrowsItsState, "P4", {"own": 1}),
    (HidesNaN, "P5", {"own": 1}),
    (RaisesOnNothing, "P5", {"own": 1}),
    (OwnDice, "P6", {"own": 1}),
    (CountsRows, "P1", {"own": 1}),
    (CountsRows, "P7", {"own": 1}),
    (OneMore, "P8", None),
    (StopsBeforeP, "P8", None),
    (OfTheSum, "P8", None),
]


class OwnNgram(Ngram):
    Options = NgramOptions


class KnowsTheId(OwnNgram):
    def propose(self, request, max_tokens):
        return [len(request.request_id)][:max_tokens]


class CarriesOver(OwnNgram):
    """Goes on with what it last proposed, to whomever."""

    def __init__(self, options=None):
        super().__init__(options)
        self.last = ()

    def propose(self, request, max_tokens):
        last, self.last = self.last, super().propose(request, max_tokens)
        return self.last or last[:max_tokens]


class Generous(OwnNgram):
    def propose(self, request, max_tokens):
        return super().propose(request, max_tokens + 1)


class NeverForgets(OwnNgram):
    def forget(self, request_id):
        pass


class MindsStrangers(OwnNgram):
    def forget(self, request_id):
        del self._indexes[request_id]


class Appends(OwnNgram):
    """Tries its drafts on the request's own list."""

    def propose(self, request, max_tokens):
        drafts = list(super().propose(request, max_tokens))
        request.token_ids += drafts[:1]
        return drafts


class Writes(EngineProposer):
    """Takes its guess for a token of the request."""

    max_drafts = 2

    def propose(self, request, max_tokens):
        if len(request.token_ids) > 6:
            request.token_ids.append(1)
        return [1, 2][:max_tokens]


PROPOSERS = [
    (KnowsTheId, "D1"),
    (CarriesOver, "D1"),
    (Generous, "D2"),
    (NeverForgets, "D3"),
    (MindsStrangers, "D3"),
    (Appends, "D4"),
    (Writes, "D5"),
]


@pytest.mark.parametrize(("mutant", "number", "sample"), STAGES, ids=name_of)
def test_a_wrong_stage_is_killed(mutant, number, sample):
    assert_killed("sampler-stage", mutant, number, sample=sample)


@pytest.mark.parametrize(("mutant", "number"), PROPOSERS, ids=name_of)
def test_a_wrong_proposer_is_killed(mutant, number):
    assert_killed("proposer", mutant, number)
