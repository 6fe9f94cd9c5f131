"""Rows of logits for one sampler stage, its parameters, and its run as the executor has it.

Knows logits, parameters and histories. Does not know what any stage promises.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st

from octavo.execution.custom_stages import CustomStages
from octavo.interfaces.sampler import SamplingRow
from octavo.testing.tensors.stage_parameters import activating

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.interfaces.sampler import SamplerStage
    from octavo.sampling_params import SamplingParams
    from octavo.testing.subjects import Subject

WIDTH = 24
INF = math.inf
CANARY = 5.0


class Case(NamedTuple):
    """A row: its logits, its history, what is drawn from it, and which of the parameters hold."""

    logits: list[float]
    prompt: list[int]
    output: list[int]
    drawn: list[int]
    dice: float
    which: int


_VALUE = st.one_of(st.just(-INF), st.floats(-20, 20, width=32), st.integers(-3, 3).map(float))
#: so near to each other that methods which count them in bins have to look within one
_NEAR = st.one_of(st.just(-INF), st.floats(1, 1.03125, width=32))
_LOGITS = st.one_of(
    *(st.lists(one, min_size=WIDTH, max_size=WIDTH) for one in (_VALUE, _VALUE, _NEAR))
)
_IDS = st.lists(st.integers(0, 9), max_size=20)
CASES = st.builds(
    Case,
    _LOGITS,
    _IDS,
    _IDS,
    st.lists(st.integers(0, WIDTH - 1), max_size=6),
    st.sampled_from([0.0, 0.3, 0.999]),
    st.integers(0, 7),
)


def params_of(subject: Subject, case: Case) -> SamplingParams:
    """Return the parameters that a case is about: all of them ask for the stage."""
    if activating not in subject.memory:
        subject.memory[activating] = activating(subject)
    every: list[SamplingParams] = subject.memory[activating]
    return every[case.which % len(every)]


def row_of(stage: SamplerStage, params: SamplingParams, case: Case) -> SamplingRow:
    """Return the row as a stage sees it, with a state of its own."""
    words = ((1, 2), (3,)) if params.bad_words else ()
    row = SamplingRow(
        params, tuple(case.prompt), tuple(case.output), (0,), words,
        uniform=lambda purpose: (case.dice + purpose * 0.37) % 1.0,
    )  # fmt: skip
    row.state = stage.new_state(row)
    return row


def applied(stage: SamplerStage, params: SamplingParams, case: Case) -> Tensor:
    """Return what the stage makes of a case's logits."""
    logits = torch.tensor(case.logits)
    stage.apply(logits, row_of(stage, params, case))
    return logits


def told(case: Case, params: SamplingParams) -> str:
    """Return a case as text."""
    asked = {
        name: getattr(params, name)
        for name in ("temperature", "top_k", "top_p", "min_p", "extra_args")
    }
    return (
        f"parameters {asked}\n  prompt {case.prompt}, output {case.output}\n  logits {case.logits}"
    )


def is_same(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors have the same bits, NaN included."""
    return torch.equal(first.view(torch.int32), second.view(torch.int32))


class _Pipeline:
    """One stage by itself, run as the executor runs a request's stages."""

    def __init__(self, stage: SamplerStage, params: SamplingParams, case: Case) -> None:
        self.stage, self.params, self.case = stage, params, case
        self.stages = CustomStages([stage], self._row(case.output))

    def _row(self, output: list[int]) -> SamplingRow:
        return row_of(self.stage, self.params, self.case._replace(output=output))

    def __call__(self, output: list[int], offset: int) -> Tensor:
        """Return the edited logits of the row behind an output."""
        logits = torch.tensor(self.case.logits).roll(len(output))
        self.stages.apply(logits, self._row(output), offset)
        return logits


def pipeline(subject: Subject, params: SamplingParams, case: Case) -> _Pipeline:
    """Return a fresh stage, run as the executor runs a request's stages."""
    return _Pipeline(subject.build(), params, case)


def plain(value: Any) -> Any:
    """Return what a value holds, to be compared: tensors and arrays as lists, objects as dicts."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    slots = [name for base in type(value).__mro__ for name in getattr(base, "__slots__", ())]
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    held.update(getattr(value, "__dict__", {}))
    return {name: plain(one) for name, one in held.items()} if held else value
