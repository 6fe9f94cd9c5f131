"""A tiny model of made-up weights, for components that are tried beside a model.

Knows a config and settings of the engine. Does not know what is tried.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: a llama of two layers, whose tokens are bytes
MODEL: Mapping[str, Any] = MappingProxyType(
    {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 258,
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "bos_token_id": 256,
        "eos_token_id": 257, "tie_word_embeddings": False,
    }
)  # fmt: skip
SIZES: Mapping[str, Any] = MappingProxyType(
    {
        "max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": 256, "block_size": 16,
        "num_gpu_blocks_override": 40, "threads": 1,
    }
)  # fmt: skip


@contextmanager
def settings_beside(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Give settings of an engine, with those that are given, on the model that they name.

    Without a "model" among them it is the made-up one, which is there as long as the block lasts.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(dict(MODEL)), encoding="utf-8")
        model = {} if "model" in given else {"model": folder, "load_format": "dummy"}
        yield {**SIZES, **model, **given}
