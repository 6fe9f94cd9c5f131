"""Tiny models that make vectors: with the files of sentence-transformers, and what they must be.

transformers tells what every vector must be, by the hidden states behind its last norm.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tokenizers import Tokenizer, processors

import tiny_models
from byte_models import EOS, save_byte_model

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tiny_models import Variant

_TYPES = "sentence_transformers.models"


def write_pooling(folder: Path, *, is_normalized: bool = True, **modes: bool) -> None:
    """Write `modules.json` and `1_Pooling/config.json` as sentence-transformers does."""
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    if is_normalized:
        modules.append(("2_Normalize", "Normalize"))
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"{_TYPES}.{kind}"}
        for i, (path, kind) in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    content = {
        "word_embedding_dimension": 64,
        **{f"pooling_mode_{name}": is_on for name, is_on in modes.items()},
        "include_prompt": True,
    }
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(content))


def append_end(folder: Path) -> None:
    """Have the tokenizer of bytes put its end behind every text."""
    path = folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", EOS)]
    )
    tokenizer.save(str(path))


def save_embedding_model(variant: Variant, folder: Path, **config: Any) -> str:
    """Write a model that sums a text up at the end that its tokenizer appends."""
    save_byte_model(variant, folder)
    append_end(folder)
    write_pooling(folder, cls_token=False, mean_tokens=False, lasttoken=True)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return str(folder)


@torch.no_grad()
def expected_vector(
    variant: Variant, token_ids: Sequence[int], mode: str, dimensions: int | None = None
) -> np.ndarray:
    """Return transformers' vector of length 1 for a prompt, as float64."""
    model = tiny_models.reference_model(variant).model
    states = model(torch.tensor([list(token_ids)])).last_hidden_state[0].double()
    vector = states[-1] if mode == "last" else states.mean(0)
    vector = vector[:dimensions]
    return (vector / vector.norm()).numpy()


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of the angle between two vectors."""
    a, b = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))
