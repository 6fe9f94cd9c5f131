"""The same weights in transformers: what every comparison on a real model is made with."""

from __future__ import annotations

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from octavo.config.resolve import resolve
from octavo.model_files import locate_model, open_checkpoint
from octavo_kernels.reference.dequantize import dequantize


def load_twin(model: str) -> PreTrainedModel:
    """Return a transformers model (float32) with the dequantised weights of `model`."""
    config = resolve(overrides={"model": model})
    checkpoint = open_checkpoint(config, locate_model(config))
    settings = {k: v for k, v in checkpoint.config.items() if k != "architectures"}
    state = {}
    for name in checkpoint.names():
        blocks = checkpoint.blocks(name)
        data = torch.from_numpy(blocks.data)
        state[name] = dequantize(blocks.block_type, data, blocks.columns).reshape(blocks.shape)
    twin = AutoModelForCausalLM.from_config(AutoConfig.for_model(**settings), dtype=torch.float32)
    missing, unexpected = twin.load_state_dict(state, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    twin.tie_weights()
    checkpoint.close()
    return twin.eval()
