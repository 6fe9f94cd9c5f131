"""Op sets and attention back ends that are wrong on purpose: each breaks what it is listed with."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mutants import assert_killed, name_of
from octavo.errors import UnsupportedError
from octavo.interfaces.ops import Count
from octavo_plugins.attention.cache_options import TensorAttentionOptions
from octavo_plugins.attention.torch_attention import TorchAttention
from octavo_plugins.ops.torch_ops import TorchOps
from one_thread import one_thread_fixture

one_thread = pytest.fixture(autouse=True, scope="module")(one_thread_fixture)


class WritesAllRows(TorchOps):
    def silu_mul(self, out, gate_up, rows):
        super().silu_mul(out, gate_up, Count(len(out)))


class SwapsGateAndUp(TorchOps):
    def silu_mul(self, out, gate_up, rows):
        gate, up = gate_up.chunk(2, -1)
        super().silu_mul(out, torch.cat((up, gate), -1), rows)


class EpsilonOutside(TorchOps):
    def rms_norm(self, out, x, weight, eps, rows):
        super().rms_norm(out, x, weight, eps + 0.01, rows)


class ErfForTanh(TorchOps):
    """GELU by sigmoid, which is near."""

    def gelu_mul(self, out, gate_up, rows):
        n = rows.value
        gate, up = gate_up[:n].chunk(2, -1)
        out[:n] = gate * torch.sigmoid(1.702 * gate) * up


class NormsTheBatch(TorchOps):
    def rms_norm(self, out, x, weight, eps, rows):
        n = rows.value
        out[:n] = x[:n] / (x[:n].square().mean() + eps).sqrt() * weight


class TakesAnyType(TorchOps):
    def pack_linear(self, blocks):
        if blocks[0].block_type == "IQ9":
            return None
        return super().pack_linear(blocks)


class KeepsTheFile(TorchOps):
    """Multiplies what lies in the file now."""

    def pack_linear(self, blocks):
        self.file = blocks[0].data.view(np.float32)
        return super().pack_linear(blocks)

    def linear(self, out, x, weight, bias, rows):
        super().linear(out, x, weight, bias, rows)
        out[: rows.value, 0] = float(self.file[0, 0])


class LastOfTheLargest(TorchOps):
    def sample(self, logits, inputs):
        drawn = super().sample(logits.flip(-1), inputs)
        drawn.token_ids = logits.shape[-1] - 1 - drawn.token_ids
        return drawn


class SilentNaN(TorchOps):
    def sample(self, logits, inputs):
        drawn = super().sample(logits, inputs)
        drawn.is_bad = drawn.is_bad & False
        return drawn


class ForgetsBans(TorchOps):
    def sample(self, logits, inputs):
        inputs.banned = []
        return super().sample(logits, inputs)


class BiasBeforeMask(TorchOps):
    """Loses the mask's last word."""

    def sample(self, logits, inputs):
        inputs.masks = [(row, mask | np.uint32(2**31)) for row, mask in inputs.masks]
        return super().sample(logits, inputs)


class KeepsOneMore(TorchOps):
    def sample(self, logits, inputs):
        inputs.top_k = np.where(inputs.top_k > 0, inputs.top_k + 1, 0).astype(np.int32)
        return super().sample(logits, inputs)


class HotterThanAsked(TorchOps):
    def sample(self, logits, inputs):
        inputs.temperature = (inputs.temperature * 1.15).astype(np.float32)
        return super().sample(logits, inputs)


class OneNoiseForAll(TorchOps):
    def uniforms(self, seeds, positions, choices, purpose):
        return super().uniforms(seeds, positions * 0 + positions[0], choices, purpose)


class DeafToChoices(TorchOps):
    def uniforms(self, seeds, positions, choices, purpose):
        return super().uniforms(seeds, positions, choices * 0, purpose)


class LogsOfTheLargest(TorchOps):
    """Forgets to normalise."""

    def logprobs(self, logits, inputs):
        out = super().logprobs(logits, inputs)
        out.chosen = out.chosen + np.float32(0.01)
        return out


class NoiseOfTheFirst(TorchOps):
    def sample(self, logits, inputs):
        inputs.uniforms = inputs.uniforms * 0 + inputs.uniforms[0]
        return super().sample(logits, inputs)


class FailsUnnamed(TorchOps):
    def soft_cap(self, x, cap, rows):
        raise NotImplementedError("soft_cap")


OPS = [
    (WritesAllRows, "O1"),
    (SwapsGateAndUp, "O2"),
    (EpsilonOutside, "O2"),
    (ErfForTanh, "O2"),
    (NormsTheBatch, "O3"),
    (TakesAnyType, "O4"),
    (KeepsTheFile, "O5"),
    (LastOfTheLargest, "O6"),
    (SilentNaN, "O6"),
    (ForgetsBans, "O7"),
    (BiasBeforeMask, "O7"),
    (KeepsOneMore, "O7"),
    (HotterThanAsked, "O8"),
    (OneNoiseForAll, "O9"),
    (DeafToChoices, "O9"),
    (LogsOfTheLargest, "O10"),
    (NoiseOfTheFirst, "O11"),
    (FailsUnnamed, "O12"),
]


class OwnAttention(TorchAttention):
    Options = TensorAttentionOptions


class SeesTheFuture(OwnAttention):
    """Takes the last key of the sequence for its own."""

    def forward(self, out, q, cache, spec, batch):
        super().forward(out, q, cache, spec, batch)
        n = batch.num_tokens.value
        out[:n] *= 1 + 1e-4


class WindowOneShort(OwnAttention):
    def forward(self, out, q, cache, spec, batch):
        if spec.window is not None and spec.window > 1:
            spec = type(spec)(
                spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.scale,
                spec.window - 1, spec.softcap,
            )  # fmt: skip
        super().forward(out, q, cache, spec, batch)


def limited(spec, window):
    """Return how a layer attends, with another window."""
    return type(spec)(
        spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.scale, window, spec.softcap
    )


class ForgetsTheFar(OwnAttention):
    """Sees no more than 600 keys, of however many."""

    def forward(self, out, q, cache, spec, batch):
        super().forward(out, q, cache, limited(spec, spec.window or 600), batch)


class SmallWindows(OwnAttention):
    """Has no windows above 96."""

    def forward(self, out, q, cache, spec, batch):
        super().forward(out, q, cache, limited(spec, spec.window and min(spec.window, 96)), batch)


class NoSoftCap(OwnAttention):
    def forward(self, out, q, cache, spec, batch):
        spec = type(spec)(
            spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.scale, spec.window, None
        )
        super().forward(out, q, cache, spec, batch)


class FollowsIds(OwnAttention):
    """Is a little different in every block."""

    def forward(self, out, q, cache, spec, batch):
        super().forward(out, q, cache, spec, batch)
        if batch.num_seqs.value:
            out[0] += 1e-7 * float(batch.block_tables[0, 0])


class ReadsANeighbour(OwnAttention):
    """Adds nothing of a slot that belongs to nobody: unless it is NaN."""

    def forward(self, out, q, cache, spec, batch):
        super().forward(out, q, cache, spec, batch)
        out[: batch.num_tokens.value] += (
            0.0 * cache.k.nan_to_num(1.0).sum() + 0.0 * cache.k[-1].sum()
        )


class LikesWholePrompts(OwnAttention):
    def forward(self, out, q, cache, spec, batch):
        super().forward(out, q, cache, spec, batch)
        if batch.num_tokens.value > 20:
            out[: batch.num_tokens.value] *= 1.001


class SpillsOver(OwnAttention):
    """Writes the key of a step's last token into another slot as well."""

    def write(self, cache, k, v, batch):
        super().write(cache, k, v, batch)
        n = batch.num_tokens.value
        if n:
            cache.k.view(-1, *cache.k.shape[2:]).index_fill_(
                0, (batch.slots[n - 1 : n] * 7 + 3) % (cache.k.shape[0] * cache.k.shape[1]), 9.0
            )


class ClearsTheRest(OwnAttention):
    def forward(self, out, q, cache, spec, batch):
        out.zero_()
        super().forward(out, q, cache, spec, batch)


class HalfTheBytes(OwnAttention):
    def bytes_per_block(self, spec, block_size):
        return super().bytes_per_block(spec, block_size) // 2


class AnyDtype(OwnAttention):
    def allocate(self, spec, num_blocks, block_size):
        try:
            return super().allocate(spec, num_blocks, block_size)
        except UnsupportedError:
            return None


ATTENTIONS = [
    (SeesTheFuture, "T1"),
    (WindowOneShort, "T1"),
    (ForgetsTheFar, "T1"),
    (SmallWindows, "T1"),
    (NoSoftCap, "T1"),
    (FollowsIds, "T2"),
    (ReadsANeighbour, "T3"),
    (LikesWholePrompts, "T4"),
    (SpillsOver, "T5"),
    (ClearsTheRest, "T6"),
    (HalfTheBytes, "T7"),
    (AnyDtype, "T8"),
]


@pytest.mark.parametrize(("mutant", "number"), OPS, ids=name_of)
def test_a_wrong_op_set_is_killed(mutant, number):
    assert_killed("ops", mutant, number)


@pytest.mark.parametrize(("mutant", "number"), ATTENTIONS, ids=name_of)
def test_a_wrong_attention_is_killed(mutant, number):
    assert_killed("attention", mutant, number)
