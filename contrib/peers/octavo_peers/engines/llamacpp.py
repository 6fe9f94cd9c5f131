"""llama.cpp's batch API through llama-cpp-python's low-level bindings.

All prompts first, in batches of `n_batch` tokens, then one token of every sequence a step, as
llama.cpp's own `llama-batched-bench` does. A shared prefix is computed once, in a sequence of its
own, and copied into the others.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import llama_cpp
from llama_cpp import llama_cpp as api

from octavo_peers.engines.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from octavo_peers.work import Case, Job

_BATCH_TOKENS: Final = 2048
#: a sequence's part of the KV cache is a multiple of this
_PAD_TOKENS: Final = 256
#: all positions of a sequence
_ALL: Final = -1
#: of GGML_LOG_LEVEL: lines of this or more are printed; 5 continues the line before
_WARNING_LEVEL: Final = 3
_CONTINUATION_LEVEL: Final = 5


@api.llama_log_callback
def _print_warning(level: int, text: bytes, _: object) -> None:
    if _WARNING_LEVEL <= level < _CONTINUATION_LEVEL:
        sys.stderr.write(text.decode(errors="replace"))


class LlamaCppEngine(Engine):
    """Options are fields of `llama_context_params`."""

    def __init__(self, job: Job) -> None:
        self._num_threads, self._options = job.num_threads, dict(job.options)
        known = {name for name, *_ in api.llama_context_params._fields_}
        if unknown := set(self._options) - known:
            raise ValueError(f"llama_context_params has no {', '.join(sorted(unknown))}")
        api.llama_log_set(_print_warning, None)
        api.llama_backend_init()
        params = api.llama_model_default_params()
        params.n_gpu_layers = 0
        self._model = api.llama_model_load_from_file(job.model.encode(), params)
        if not self._model:
            raise ValueError(f"llama.cpp cannot load {job.model}")
        self._sampler = api.llama_sampler_init_greedy()
        self._batch_tokens = int(self._options.get("n_batch", _BATCH_TOKENS))
        self._batch = api.llama_batch_init(self._batch_tokens, 0, 1)
        self._context: Any = None
        self._prefix: list[int] = []
        self._num_seqs = 0
        self._open_context(1, _PAD_TOKENS)

    def version(self) -> str:
        """Return the version of llama-cpp-python."""
        return str(llama_cpp.__version__)

    def prepare(self, case: Case, prefix: list[int]) -> None:
        """Make a context of the case's size, and compute the prefix."""
        self._open_context(case.num_seqs + bool(prefix), case.seq_tokens)
        self._prefix = prefix
        if prefix:
            # the last sequence holds it, and nothing else
            self._decode([(token, i, case.num_seqs, False) for i, token in enumerate(prefix)])

    def generate(self, prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
        """Prefill all prompts, then decode them in step."""
        memory = api.llama_get_memory(self._context)
        num_cached = len(self._prefix)
        for seq in range(len(prompts)):
            api.llama_memory_seq_rm(memory, seq, _ALL, _ALL)
            if num_cached:
                api.llama_memory_seq_cp(memory, self._num_seqs - 1, seq, _ALL, _ALL)
        latest = self._decode(
            (prompt[i], i, seq, i == len(prompt) - 1)
            for seq, prompt in enumerate(prompts)
            for i in range(num_cached, len(prompt))
        )
        outputs = [[token] for token in latest]
        for step in range(num_tokens - 1):
            latest = self._decode(
                (token, len(prompts[seq]) + step, seq, True) for seq, token in enumerate(latest)
            )
            for output, token in zip(outputs, latest, strict=True):
                output.append(token)
        return outputs

    def close(self) -> None:
        """Free what was made."""
        api.llama_free(self._context)
        api.llama_batch_free(self._batch)
        api.llama_sampler_free(self._sampler)
        api.llama_model_free(self._model)

    def _open_context(self, num_seqs: int, seq_tokens: int) -> None:
        """Make a context for so many sequences, each with a cache of its own."""
        if self._context:
            api.llama_free(self._context)
        params = api.llama_context_default_params()
        params.n_ctx = num_seqs * -(-seq_tokens // _PAD_TOKENS) * _PAD_TOKENS
        params.n_batch = self._batch_tokens
        params.n_seq_max = num_seqs
        params.n_threads = params.n_threads_batch = self._num_threads
        params.kv_unified = False
        for name, value in self._options.items():
            setattr(params, name, value)
        self._context = api.llama_init_from_model(self._model, params)
        if not self._context:
            raise MemoryError(f"llama.cpp makes no context for {num_seqs} x {seq_tokens} tokens")
        self._num_seqs = num_seqs

    def _decode(self, rows: Iterable[tuple[int, int, int, bool]]) -> list[int]:
        """Compute (token, position, sequence, is sampled) rows; return the sampled ids."""
        sampled: list[int] = []
        batch, wanted = self._batch, []
        batch.n_tokens = 0
        for token, position, seq, is_sampled in rows:
            i = batch.n_tokens
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, seq
            batch.logits[i] = is_sampled
            batch.n_tokens = i + 1
            if is_sampled:
                wanted.append(i)
            if batch.n_tokens == self._batch_tokens:
                sampled += self._run_batch(wanted)
                wanted = []
        if batch.n_tokens:
            sampled += self._run_batch(wanted)
        return sampled

    def _run_batch(self, wanted: list[int]) -> list[int]:
        """Compute the batch, leave it empty, and return the greedy ids of the rows wanted."""
        if code := api.llama_decode(self._context, self._batch):
            raise RuntimeError(f"llama_decode returned {code}")
        self._batch.n_tokens = 0
        if not wanted:
            api.llama_synchronize(self._context)
        return [api.llama_sampler_sample(self._sampler, self._context, row) for row in wanted]
