"""Sampling of the `cpu` op set: its inputs, handed to the kernels in one call.

Knows the inputs' layout. Does not know layers, models or requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from octavo.interfaces.sampler import LogprobOutputs, SamplingOutputs
from octavo_kernels.cpu.sampling import Sampler
from octavo_kernels.cpu.sampling_edits import SamplingEdits
from octavo_kernels.reference.sampling import SamplingRows
from octavo_plugins.native.cpu_calls import load_library
from octavo_plugins.ops.torch_ops import TorchOps

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from octavo.interfaces.sampler import LogprobInputs, SamplingInputs


class CpuSamplingOps(TorchOps):
    """Noise, draws and log-probabilities by the kernels, all else by torch.

    Raises UnsupportedError where the kernels cannot be compiled.
    """

    bytes_per_weight = None  # the kernels multiply what is in the file

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._library = load_library()
        self._sampler = Sampler(self._library)
        self._edits = SamplingEdits()

    def uniforms(
        self, seeds: np.ndarray, positions: np.ndarray, choices: np.ndarray, purpose: int
    ) -> np.ndarray:
        """Return noise in [0, 1) by Philox, float64 [n]."""
        return self._sampler.uniforms(seeds, positions, choices, purpose)

    def sample(self, logits: Tensor, inputs: SamplingInputs) -> SamplingOutputs:
        """Edit logits [rows, vocab] in place, filter and draw one token per row."""
        self._note(inputs)
        rows = SamplingRows(
            inputs.temperature, inputs.top_k, inputs.top_p, inputs.min_p, inputs.uniforms
        )
        drawn = self._sampler.sample(logits, rows, self._edits, torch.get_num_threads())
        self._edits.clear()
        return SamplingOutputs(*drawn)

    def logprobs(self, logits: Tensor, inputs: LogprobInputs) -> LogprobOutputs:
        """Return log-probabilities of chosen and top tokens."""
        wanted = inputs.rows, inputs.token_ids, inputs.num_top
        result = self._sampler.logprobs(logits, *wanted, torch.get_num_threads())
        return LogprobOutputs(result.chosen, result.ranks, result.top_ids, result.top_logprobs)

    def _note(self, inputs: SamplingInputs) -> None:
        """Note the edits of all rows, those of one row in the order of `SamplingInputs`."""
        edits = self._edits
        edits.clear()  # where an error left some
        for row, ids in inputs.allowed:
            edits.keep_only(row, ids)
        for row, ids, adds in inputs.bias:
            edits.add(row, ids, adds)
        for one in inputs.penalties:
            strengths = one.repetition, one.frequency, one.presence
            edits.penalise(one.row, one.token_ids, one.output_counts, strengths)
        for row, ids in inputs.banned:
            edits.ban(row, ids)
        for row, mask in inputs.masks:
            edits.keep_masked(row, mask)
