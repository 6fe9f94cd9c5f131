"""Model families that are wrong on purpose."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from family_samples import config_of, gemmas, hybrids, llamas
from mutants import assert_killed, name_of
from octavo.testing.tensors.model_cases import FamilySample
from octavo_plugins.architectures.gemma import Gemma
from octavo_plugins.architectures.linear_hybrid import LinearHybrid
from octavo_plugins.architectures.llama import Llama
from one_thread import one_thread_fixture

one_thread = pytest.fixture(autouse=True, scope="module")(one_thread_fixture)


def one(variant, **changes):
    """The sample of one config."""
    return lambda: FamilySample((config_of(variant) | changes,))


class NextWindow(Llama):
    """Sees one position more than its window."""

    def prepare(self, *sizes):
        super().prepare(*sizes)
        for layer in self._layers:
            if layer.attention.window:
                layer.attention = replace(layer.attention, window=layer.attention.window + 1)


class ForgetsToScale(Gemma):
    def prepare(self, *sizes):
        super().prepare(*sizes)
        self._gemma = replace(self._gemma, embedding_scale=1.0)


class OtherDecay(LinearHybrid):
    def prepare(self, *sizes):
        super().prepare(*sizes)
        self._decay = self._decay.flip(0)


class LoadsNoBias(Llama):
    """Reads biases, and leaves them where they are."""

    def prepare(self, *sizes):
        super().prepare(*sizes)
        for layer in self._layers:
            layer.output_bias = None


class TwiceTheSame(Llama):
    def parameters(self):
        specs = super().parameters()
        return [*specs, replace(specs[-1], name="head_again")]


class AllOptional(Llama):
    def parameters(self):
        return [replace(spec, is_optional=True) for spec in super().parameters()]


class IgnoresWeights(Llama):
    ignored = ("*.weight_scale", "*.lora_A.*")


class CountsFromZero(Llama):
    """Every step begins at position 0."""

    def forward(self, step):
        step.positions[: step.num_tokens.value] -= step.positions[0].item()
        super().forward(step)


class OneCacheForAll(Llama):
    """All layers keep their keys in the memory of the first."""

    def forward(self, step):
        caches, step.caches = step.caches, [step.caches[0]] * len(step.caches)
        super().forward(step)
        step.caches = caches


class AddsByItself(Llama):
    def logits(self, step):
        super().logits(step)
        step.logits += 0


class BuffersOfItsOwn(Llama):
    """Makes a buffer in each step."""

    def _transform(self, layer, normed, rows):
        self._work.gate_up = torch.zeros_like(self._work.gate_up)
        super()._transform(layer, normed, rows)


class LooksAtCounts(Llama):
    """Leaves the last layer out for single tokens, as it is found to do little."""

    def _transform(self, layer, normed, rows):
        if rows.value > 6 or layer is not self._layers[-1]:
            super()._transform(layer, normed, rows)


class TakesAnyRope(Llama):
    def __init__(self, config, ops, attention):
        plain = {k: v for k, v in config.items() if k not in {"rope_parameters", "rope_scaling"}}
        super().__init__(plain, ops, attention)


class TakesAnyActivation(Llama):
    def __init__(self, config, ops, attention):
        super().__init__({**config, "hidden_act": "silu"}, ops, attention)


class NumbersAsTheyAre(Llama):
    def __init__(self, config, ops, attention):
        super().__init__(config, ops, attention)
        self.half = config["intermediate_size"] // 2 + int(config["initializer_range"] * 100)


class OffersMore(Llama):
    served = ("LlamaForCausalLM", "Phi3ForCausalLM")
    offers = ("LlamaForCausalLM",)


class LastRowForAll(Llama):
    """The last token of a batch is everybody's."""

    def logits(self, step):
        rows = step.num_rows.value
        if rows > 20:
            step.logit_rows[rows - 2] = step.logit_rows[rows - 1]
        super().logits(step)


class Saving(Llama):
    """Norms otherwise in each third step, whosever it is."""

    STEPS = []

    def forward(self, step):
        self.STEPS.append(step)
        kept = self._layers
        if len(self.STEPS) % 3 == 0:
            self._layers = [*kept[:-1], replace(kept[-1], input_norm=kept[0].input_norm + 1)]
            self._layers[-2] = replace(kept[-2], next_norm=self._layers[-1].input_norm)
        super().forward(step)
        self._layers = kept


class WritesConfig(Llama):
    def __init__(self, config, ops, attention):
        config.setdefault("head_dim", 16)
        config["head_dim_was_read"] = True
        super().__init__(config, ops, attention)


MUTANTS = [
    (NextWindow, "M1", one("Mistral-window")),
    (ForgetsToScale, "M1", gemmas),
    (OtherDecay, "M1", hybrids),
    (LoadsNoBias, "M2", llamas),
    (TwiceTheSame, "M2", one("Llama-2")),
    (AllOptional, "M2", one("Llama-2")),
    (IgnoresWeights, "M2", one("Llama-2")),
    (CountsFromZero, "M3", one("Llama-2")),
    (OneCacheForAll, "M3", one("Llama-2")),
    (AddsByItself, "M4", one("Llama-2")),
    (BuffersOfItsOwn, "M4", one("Llama-2")),
    (LooksAtCounts, "M4", one("Llama-2")),
    (LooksAtCounts, "M6", one("Llama-2")),
    (TakesAnyRope, "M5", one("Llama-2")),
    (TakesAnyActivation, "M5", llamas),
    (NumbersAsTheyAre, "M5", one("Llama-2")),
    (OffersMore, "M5", one("Llama-2")),
    (LastRowForAll, "M6", one("Llama-2")),
    (Saving, "M7", one("Llama-2")),
    (WritesConfig, "M7", one("Llama-2")),
]


@pytest.mark.parametrize(("mutant", "number", "sample"), MUTANTS, ids=name_of)
def test_a_wrong_family_is_killed(mutant, number, sample):
    assert_killed("architecture", mutant, number, sample=sample)
