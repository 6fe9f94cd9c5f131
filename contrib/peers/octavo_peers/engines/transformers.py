"""Hugging Face transformers through `generate`: one batch, no paging, no prefix cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import transformers

from octavo_peers.engines.engine import Engine

if TYPE_CHECKING:
    from octavo_peers.work import Job


class TransformersEngine(Engine):
    """Options are keywords of `from_pretrained`."""

    def __init__(self, job: Job) -> None:
        torch.set_num_threads(job.num_threads)
        self._model = transformers.AutoModelForCausalLM.from_pretrained(job.model, **job.options)

    def version(self) -> str:
        """Return the version of transformers."""
        return str(transformers.__version__)

    def generate(self, prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
        """Generate for all prompts, which are equally long, as one batch."""
        ids = torch.tensor(prompts)  # [sequences, tokens]
        self._model.generation_config.eos_token_id = None
        with torch.inference_mode():
            outputs = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=num_tokens,
                do_sample=False,
                pad_token_id=0,
            )
        new: list[list[int]] = outputs[:, ids.shape[1] :].tolist()
        return new
