"""Tiny random models whose tokens are bytes, as folders that `LLM` and `octavo serve` open.

The weights are those of `tiny_models`, so that transformers tells what every answer must be.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import tiny_models
from octavo_plugins.tokenizers.token_bytes import byte_characters
from tiny_models import FULL, SLIDING, Variant

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BOS, EOS = 256, 257
_SIZES = {"vocab_size": 258, "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": None}
LLAMA = Variant("Llama-bytes", "Llama", options={**_SIZES, "max_position_embeddings": 1024})
MISTRAL = Variant("Mistral-bytes", "Mistral", options={**_SIZES, "sliding_window": 16})
MINISTRAL = Variant(
    "Ministral-bytes",
    "Ministral",
    options={
        **_SIZES, "sliding_window": 16, "head_dim": 16, "layer_types": [SLIDING, FULL, SLIDING],
    },
)  # fmt: skip
GEMMA3 = Variant(
    "Gemma3-bytes",
    "Gemma3",
    options={
        **_SIZES, "sliding_window": 16, "head_dim": 16, "layer_types": [SLIDING, FULL, SLIDING],
        "max_position_embeddings": 1024,
    },
)  # fmt: skip


#: a model without weights: `--load-format dummy` makes them up, the same each time
DUMMY_CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 258,
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "hidden_act": "silu", "bos_token_id": BOS, "eos_token_id": EOS,
    "tie_word_embeddings": False,
}  # fmt: skip


def save_dummy_model(folder: Path, **config: Any) -> Path:
    """Write a model of bytes without weights, to be opened with `--load-format dummy`."""
    save_tokenizer(folder)
    (folder / "config.json").write_text(json.dumps(DUMMY_CONFIG | config))
    return folder


def save_tokenizer(folder: Path) -> Path:
    """Write a tokenizer whose ids 0 to 255 are bytes, then `<s>` and `</s>`; return the folder."""
    vocabulary = {character: byte for byte, character in byte_characters().items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    (folder / "chat_template.jinja").write_text(template)
    return folder


def save_byte_model(variant: Variant, folder: Path, **generation_config: Any) -> str:
    """Write a model with its tokenizer; return the folder as `LLM` takes it."""
    tiny_models.save(variant, folder)
    save_tokenizer(folder)
    (folder / "generation_config.json").write_text(json.dumps(generation_config))
    return str(folder)


def random_prompt(num_tokens: int, seed: int = 0) -> list[int]:
    """Return ids of bytes."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (num_tokens,), generator=generator).tolist()


def expected_logprobs(variant: Variant, token_ids: Sequence[int]) -> list[float]:
    """Return transformers' log-probability of each token but the first, after those before."""
    logits = tiny_models.reference_logits(variant, list(token_ids))
    logprobs = logits.log_softmax(-1)[:-1]
    return logprobs.gather(1, torch.tensor(token_ids[1:])[:, None])[:, 0].tolist()


def values_of(entries: Any, token_ids: Sequence[int]) -> list[float]:
    """Return the values of the tokens themselves from an output's (prompt) logprobs."""
    pairs = zip(entries, token_ids, strict=True)
    return [entry[token_id].logprob for entry, token_id in pairs if entry is not None]
