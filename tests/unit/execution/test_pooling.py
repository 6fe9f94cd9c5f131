"""Hidden states become one vector: in order, from step to step, and never what is no number."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from octavo.engine.plan import RowAdvance, RowSpec, RowStart, StepPlan, StepResult
from octavo.execution.pooling import PromptPooler
from octavo.execution.rows import Rows
from octavo.sampling_params import SamplingParams

HIDDEN = 8


class Steps:
    """Two rows whose prompts have the same hidden states `states`, in any pieces."""

    def __init__(self, mode, num_tokens, dtype=torch.float32):
        generator = torch.Generator().manual_seed(0)
        self.states = torch.randn(num_tokens, HIDDEN, generator=generator).to(dtype)
        self.buffers = SimpleNamespace(hidden=torch.zeros(2 * num_tokens, HIDDEN, dtype=dtype))
        rows = Rows(2, num_tokens, 1)
        for row in range(2):
            spec = RowSpec(SamplingParams(), 0, 0, num_tokens, pooling=mode)
            rows.start(RowStart(row, str(row), [0] * num_tokens, spec), None, None)
        self.pooler = PromptPooler(rows, self.buffers)

    def step(self, *shares, errors=()):
        """Run shares (row, start, end) side by side; return the vectors by row."""
        advances = [
            RowAdvance(row, start, end - start, (), False, True) for row, start, end in shares
        ]
        lengths = [advance.num_tokens for advance in advances]
        batch = SimpleNamespace(query_start=np.cumsum([0, *lengths]))
        self.buffers.hidden[: sum(lengths)] = torch.cat(
            [self.states[start:end] for _, start, end in shares]
        )
        result = StepResult(0, [()] * len(shares), errors=dict.fromkeys(errors))
        self.pooler.pool(StepPlan(0, advances=advances), batch, result)
        self.errors = result.errors
        return {
            shares[index][0]: np.frombuffer(pooled, "<f4")
            for index, pooled in result.pooled.items()
        }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mode", ["last", "mean"])
def test_pieces_and_neighbours_change_no_bit(mode, dtype):
    whole = Steps(mode, 30, dtype).step((0, 0, 30))[0]
    states = Steps(mode, 30, dtype).states.double()
    expected = states[-1] if mode == "last" else states.mean(0)
    np.testing.assert_allclose(whole, expected.numpy(), rtol=1e-6)
    steps = Steps(mode, 30, dtype)
    assert steps.step((0, 0, 7), (1, 0, 29)) == {}
    assert steps.step((0, 7, 8)) == {}
    found = steps.step((1, 29, 30), (0, 8, 30))
    assert found.keys() == {0, 1}
    for vector in found.values():
        np.testing.assert_array_equal(vector, whole)


def test_a_row_that_begins_again_forgets_its_sum():
    whole = Steps("mean", 20).step((0, 0, 20))[0]
    steps = Steps("mean", 20)
    steps.step((0, 0, 15))  # and then it is preempted
    steps.step((0, 0, 10))
    np.testing.assert_array_equal(steps.step((0, 10, 20))[0], whole)


def test_what_is_no_number_fails_its_own_request():
    steps = Steps("mean", 5)
    steps.states[2, 3] = float("nan")
    good = Steps("mean", 5)
    assert steps.step((0, 0, 5)) == {}
    assert "no numbers" in steps.errors[0].text
    assert good.step((0, 0, 5), errors=[0]) == {}  # it failed before: nothing is made of it
