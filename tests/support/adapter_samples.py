"""PEFT's adapters, and others that nobody can serve: samples of the conformance kit."""

from __future__ import annotations

import functools
import json

import torch

from format_samples import folder
from octavo.testing.tensors.adapters import AdapterSample, GoodAdapter
from peft_folders import CONFIG, WEIGHTS, Lora, merged, write_adapter

MODULE = "model.layers.{}.self_attn.{}_proj.weight"
GOOD = {
    "plain": Lora(),
    "stabilised": Lora(seed=1, is_rank_stabilised=True, dtype=torch.bfloat16),
    "by-patterns": Lora(seed=2, ranks={"q_proj": 2, "1.self_attn.v_proj": 7}, alphas={"v_proj": 3}),
    "halves": Lora(seed=3, dtype=torch.float16, alpha=-2),
}
NAME = "base_model.model.model.layers.0.self_attn.q_proj"
BAD = {
    "biases": Lora(config={"bias": "all"}),
    "DoRA": Lora(config={"use_dora": True}),
    "another method": Lora(config={"peft_type": "IA3"}),
    "a rank of nothing": Lora(config={"r": 0}),
    "a field that nobody knows": Lora(config={"no_such_field": 3}),
    "a pattern that never ends": Lora(config={"rank_pattern": {"(a+)+$": 4}}),
    "another rank than it says": Lora(config={"rank_pattern": {"q_proj": 3}}),
    "a bias among its tensors": Lora(tensors={f"{NAME}.bias": torch.ones(6)}),
    "a whole weight": Lora(tensors={"base_model.model.lm_head.weight": torch.ones(6, 6)}),
    "half a pair": Lora(tensors={"base_model.model.m.lora_A.weight": torch.ones(4, 6)}),
    "what is no number": Lora(
        tensors={
            "base_model.model.m.lora_A.weight": torch.full((4, 6), torch.nan),
            "base_model.model.m.lora_B.weight": torch.ones(6, 4),
        }
    ),
}


@functools.cache
def peft_adapters() -> AdapterSample:
    generator = torch.Generator().manual_seed(5)
    names = [MODULE.format(layer, side) for layer in range(2) for side in "qv"]
    weights = {name: torch.randn(10, 6, generator=generator) for name in names}
    root = folder("adapters")
    good = []
    for name, lora in GOOD.items():
        path = write_adapter(root / name, weights, lora)
        zeros = {one: torch.zeros(10, 6, dtype=torch.float64) for one in weights}
        changes = {one: w.numpy() for one, w in merged(zeros, (path, lora, 1.0)).items()}
        good.append(GoodAdapter(path, changes))
    bad = {
        what: write_adapter(root / f"bad {number}", weights, lora)
        for number, (what, lora) in enumerate(BAD.items())
    }
    empty = root / "empty"
    write_adapter(empty, {}, Lora())
    bad["no tensors"] = empty
    other = write_adapter(root / "list", weights, Lora())
    (other / CONFIG).write_text(json.dumps([1]))
    bad["a config that is a list"] = other
    lacking = write_adapter(root / "lacking", weights, Lora())
    (lacking / WEIGHTS).unlink()
    bad["no weights"] = lacking
    return AdapterSample(good, bad)
