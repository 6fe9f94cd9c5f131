"""OpenVINO GenAI's continuous batching."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import openvino
import openvino_genai

from octavo_peers.engines.engine import Engine

if TYPE_CHECKING:
    from octavo_peers.work import Job

#: of its KV cache on CPUs
_BLOCK_TOKENS: Final = 32
_MAX_BATCHED_TOKENS: Final = 2048
#: where the KV cache's size may be said instead
_SIZES: Final = ("cache_size", "num_kv_blocks")


class OpenVinoEngine(Engine):
    """Options are attributes of `SchedulerConfig`, and properties of the CPU device else."""

    def __init__(self, job: Job) -> None:
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.max_num_batched_tokens = _MAX_BATCHED_TOKENS
        scheduler.max_num_seqs = job.max_num_seqs
        scheduler.enable_prefix_caching = job.is_prefix_shared
        if not any(name in job.options for name in _SIZES):
            scheduler.num_kv_blocks = _num_blocks(job)
        properties: dict[str, Any] = {"INFERENCE_NUM_THREADS": job.num_threads}
        for name, value in job.options.items():
            if hasattr(scheduler, name):
                setattr(scheduler, name, value)
            else:
                properties[name] = value
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(
            job.model, scheduler, "CPU", properties
        )

    def version(self) -> str:
        """Return the version of OpenVINO GenAI."""
        return str(openvino_genai.__version__).partition("-")[0]

    def generate(self, prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
        """Generate for all prompts in one call."""
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = num_tokens
        config.ignore_eos = True
        config.do_sample = False
        tensors = [openvino.Tensor(np.array([prompt], dtype=np.int64)) for prompt in prompts]
        results = self._pipeline.generate(tensors, [config] * len(prompts))
        return [list(result.m_generation_ids[0]) for result in results]


def _num_blocks(job: Job) -> int:
    """Return the blocks that the largest case needs: a call must never wait for memory."""
    needed = max(case.num_seqs * (case.seq_tokens // _BLOCK_TOKENS + 2) for case in job.cases)
    # prefixes stay cached beside what runs
    return needed + sum(case.num_prefix_tokens // _BLOCK_TOKENS + 1 for case in job.cases)
