"""vLLM on CPUs through `LLM.generate`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from octavo_peers.engines.engine import Engine

if TYPE_CHECKING:
    from octavo_peers.work import Job


class VllmEngine(Engine):
    """Options are keywords of vLLM's `LLM`; its `VLLM_CPU_...` variables win over ours."""

    def __init__(self, job: Job) -> None:
        cores = sorted(os.sched_getaffinity(0))[: job.num_threads]
        # as it is, vLLM leaves one core idle and takes 4 GiB for KV with a warning
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", ",".join(map(str, cores)))
        os.environ.setdefault("VLLM_CPU_NUM_OF_RESERVED_CPU", "0")
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "4")
        import vllm  # noqa: PLC0415 - it reads these variables while it is imported

        self._version: str = vllm.__version__
        self._params = vllm.SamplingParams
        settings = {
            "skip_tokenizer_init": True,
            "enable_prefix_caching": job.is_prefix_shared,
            "max_num_seqs": job.max_num_seqs,
            "max_model_len": job.max_seq_tokens,
        }
        self._llm = vllm.LLM(job.model, **{**settings, **job.options})

    def version(self) -> str:
        """Return the version of vLLM."""
        return self._version

    def generate(self, prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
        """Generate for all prompts in one call."""
        params = self._params(
            temperature=0.0, max_tokens=num_tokens, ignore_eos=True, detokenize=False
        )
        outputs = self._llm.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False
        )
        return [list(output.outputs[0].token_ids) for output in outputs]
