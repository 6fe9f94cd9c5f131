"""Octavo through `LLM.generate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import octavo
from octavo import LLM, SamplingParams
from octavo_peers.engines.engine import Engine

if TYPE_CHECKING:
    from octavo_peers.work import Job


class OctavoEngine(Engine):
    """Options are keywords of `LLM`."""

    def __init__(self, job: Job) -> None:
        settings = {
            "max_num_seqs": job.max_num_seqs,
            "enable_prefix_caching": job.is_prefix_shared,
            "threads": job.num_threads,
        }
        self._llm = LLM(job.model, **{**settings, **job.options})

    def version(self) -> str:
        """Return the version of octavo."""
        return octavo.__version__

    def generate(self, prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
        """Generate for all prompts in one call."""
        params = SamplingParams(
            temperature=0.0, max_tokens=num_tokens, ignore_eos=True, detokenize=False
        )
        outputs = self._llm.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False
        )
        for output in outputs:
            if (error := output.outputs[0].error) is not None:
                raise RuntimeError(error)
        return [output.outputs[0].token_ids for output in outputs]

    def close(self) -> None:
        """Close the model."""
        self._llm.close()
