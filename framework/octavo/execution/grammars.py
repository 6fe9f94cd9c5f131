"""Grammars of one model: compiled beside the steps, then followed by rows of the batch.

Knows grammar back ends, token ids and masks. Does not know logits, the schedule or HTTP.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from octavo.errors import GrammarError, OctavoError
from octavo.interfaces.grammar import GrammarContext
from octavo.model_files import describe_model, load_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from octavo.config.resolved import ResolvedConfig
    from octavo.engine.plan import RowSpec
    from octavo.interfaces.grammar import (
        CompiledGrammar,
        GrammarBackend,
        GrammarSpec,
        GrammarState,
    )

_MAX_COMPILED: Final = 128
_NUM_THREADS: Final = 2
_PARAM: Final = "structured_outputs"


class GrammarStore:
    """Compiles grammars in threads of its own and keeps the ones used last.

    `build` makes the back end. It is called in such a thread with the first grammar, since
    reading a tokenizer takes time, and again with the next one if it failed.
    """

    def __init__(
        self,
        build: Callable[[], GrammarBackend],
        vocab_size: int,
        *,
        max_compiled: int = _MAX_COMPILED,
    ) -> None:
        self._build = build
        self._vocab_size = vocab_size
        self._max_compiled = max_compiled
        self._lock = threading.Lock()
        self._backend: GrammarBackend | None = None
        self._backend_lock = threading.Lock()
        self._compiled: OrderedDict[GrammarSpec, CompiledGrammar] = OrderedDict()
        self._pending: dict[GrammarSpec, Future[str]] = {}
        self._pool: ThreadPoolExecutor | None = None

    @classmethod
    def of(cls, config: ResolvedConfig, path: Path, vocab_size: int) -> GrammarStore:
        """Return the store of the model at `path`. Nothing is read before the first grammar."""

        def build() -> GrammarBackend:
            tokenizer = load_tokenizer(config, describe_model(config, path))
            backend: GrammarBackend = config.build(
                "grammar", context=GrammarContext(tokenizer, vocab_size)
            )
            return backend

        return cls(build, vocab_size)

    def prepare(self, spec: GrammarSpec) -> Future[str]:
        """Compile a grammar, if it is not there. The future yields its digest.

        It raises GrammarError with the reason when there can be no such grammar. Requests for
        one grammar share the work.
        """
        with self._lock:
            if spec in self._compiled:
                self._compiled.move_to_end(spec)
                ready: Future[str] = Future()
                ready.set_result(digest_of(spec))
                return ready
            if spec not in self._pending:
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(_NUM_THREADS, "octavo-grammar")
                self._pending[spec] = self._pool.submit(self._make, spec)
            return self._pending[spec]

    @property
    def vocab_size(self) -> int:
        """Return the number of logits."""
        return self._vocab_size

    def start(self, spec: RowSpec) -> GrammarRow:
        """Return the place of a row before its text. `commit` brings it behind what there is.

        Never raises, as the others of the batch must not suffer: a row that cannot be followed
        says so in `masks`. A grammar that was prepared and had to go is compiled again, here.
        """
        if spec.grammar is None:
            raise AssertionError("a row without a grammar has no place in one")
        return GrammarRow(partial(self._get, spec.grammar), spec, self._vocab_size)

    def close(self) -> None:
        """End the threads and what the back end has started; twice is fine."""
        with self._lock:
            pool, self._pool = self._pool, None
            self._compiled.clear()
        if self._backend is not None:
            self._backend.close()  # what is being compiled ends early
        if pool is not None:
            pool.shutdown(cancel_futures=True)
        if self._backend is not None:
            self._backend.close()

    def _get(self, spec: GrammarSpec, worn_out: CompiledGrammar | None) -> CompiledGrammar:
        """Return a compiled grammar: another one than `worn_out`."""
        with self._lock:
            compiled = self._compiled.get(spec)
        if compiled is None or compiled is worn_out:
            compiled = self._compile(spec)
        return compiled

    def _make(self, spec: GrammarSpec) -> str:
        try:
            self._compile(spec)
        finally:
            with self._lock:
                self._pending.pop(spec, None)
        return digest_of(spec)

    def _compile(self, spec: GrammarSpec) -> CompiledGrammar:
        try:
            compiled = self._ready_backend().compile(spec)
        except GrammarError as error:
            raise GrammarError(error.headline, *error.facts, param=_PARAM) from error
        except OctavoError as error:
            raise GrammarError(
                "this model's texts cannot be given a form",
                error.headline,
                *error.facts,
                param=_PARAM,
            ) from error
        with self._lock:
            self._compiled[spec] = compiled
            while len(self._compiled) > self._max_compiled:
                self._compiled.popitem(last=False)
        return compiled

    def _ready_backend(self) -> GrammarBackend:
        with self._backend_lock:
            if self._backend is None:
                self._backend = self._build()
            return self._backend


class GrammarRow:
    """Where the text of one row is in its grammar, and what may end it.

    The text may end where its grammar says that it is complete, by an end-of-sequence token or
    one of `stop_token_ids`. `min_tokens` and `ignore_eos` put the end off as long as there is
    something else to say: where the grammar allows nothing but the end, the text ends (B71).

    `get` returns the compiled grammar: another one than it is given, as one grammar's work is
    shared by all rows that follow it, and may come to its limits over another row's text.
    """

    def __init__(
        self,
        get: Callable[[CompiledGrammar | None], CompiledGrammar],
        spec: RowSpec,
        vocab_size: int,
    ) -> None:
        params = spec.params
        self._get = get
        self._num_words = -(-vocab_size // 32)
        self._min_tokens = params.min_tokens
        self._is_end_late = params.ignore_eos
        self._ends = frozenset(spec.eos_token_ids) | frozenset(params.stop_token_ids or ())
        self._end_bits = bits_of(self._ends, vocab_size)
        self._inner_bits = ~bits_of(frozenset(spec.eos_token_ids), vocab_size)
        self._compiled: CompiledGrammar | None = None
        self._state: GrammarState | None = None
        self._token_ids: list[int] = []
        self._is_over = False
        self._num_at_start = -1  # tokens that were followed when the state was last made anew

    def masks(self, drafts: Sequence[int], num_before: int = 0) -> list[NDArray[np.uint32]]:
        """Return which tokens may come next, and which after each of the drafts.

        `num_before` tokens of the output came before the form; `min_tokens` counts them.

        Masks are uint32 [ceil(vocab / 32)]. There are `len(drafts) + 1`, or fewer: none behind a
        draft that may not come, and an empty one where only a draft leads to a dead end. The
        state stays where it is. Raises GrammarError for a text that cannot be followed.
        """
        while True:
            try:
                return self._masks(self._ready_state(), drafts, num_before)
            except GrammarError as error:
                if self._num_at_start == len(self._token_ids):  # a fresh state was no better
                    raise GrammarError(error.headline, *error.facts, param=_PARAM) from error
                self._state = None

    def commit(self, token_ids: Sequence[int]) -> None:
        """Follow tokens that are part of the output now. What goes wrong is said by `masks`."""
        for token_id in token_ids:
            if self._is_over:
                return
            state = self._state
            if state is not None and not state.advance(token_id):
                if token_id in self._ends and state.is_complete:
                    self._is_over = True
                    return
                self._state = None
            self._token_ids.append(token_id)

    def forced(self, limit: int) -> list[int]:
        """Return up to `limit` tokens that are bound to come, to be offered as drafts."""
        if self._state is None or self._is_over or limit <= 0:
            return []
        return self._state.forced()[:limit]

    def _ready_state(self) -> GrammarState:
        """Return the state behind the committed tokens, made anew if there is none."""
        if self._state is not None:
            return self._state
        self._num_at_start = len(self._token_ids)
        self._compiled = self._get(self._compiled)
        state = self._compiled.start()
        for token_id in self._token_ids:
            if not state.advance(token_id):
                raise GrammarError(f"token {token_id} of the output is not in its grammar")
        self._state = state
        return state

    def _masks(
        self, state: GrammarState, drafts: Sequence[int], num_before: int
    ) -> list[NDArray[np.uint32]]:
        found = [self._mask(state, num_before)]
        if not found[0].any():
            raise GrammarError("no token of the vocabulary goes on with the text as it has to")
        for draft in drafts:
            if not allows(found[-1], draft) or not state.advance(draft):
                break
            found.append(self._mask(state, num_before + len(found)))
        state.rollback(len(found) - 1)
        return found

    def _mask(self, state: GrammarState, num_others: int) -> NDArray[np.uint32]:
        mask = np.empty(self._num_words, dtype=np.uint32)
        state.fill_mask(mask)
        mask &= self._inner_bits  # what ends texts of this model is no part of one
        if self._is_end_late or len(self._token_ids) + num_others < self._min_tokens:
            others = mask & ~self._end_bits
            if others.any():
                return others
        if state.is_complete:
            mask |= self._end_bits
        return mask


def bits_of(token_ids: frozenset[int], vocab_size: int) -> NDArray[np.uint32]:
    """Return a mask that allows the given tokens; ids outside the vocabulary are left out."""
    bits = np.zeros(-(-vocab_size // 32), dtype=np.uint32)
    for token_id in token_ids:
        if 0 <= token_id < vocab_size:
            bits[token_id // 32] |= np.uint32(1 << token_id % 32)
    return bits


def digest_of(spec: GrammarSpec) -> str:
    """Return a text that stands for a grammar: equal grammars have equal ones."""
    return hashlib.sha256(repr(spec).encode("utf-8", "surrogatepass")).hexdigest()


def allows(mask: NDArray[np.uint32], token_id: int) -> bool:
    """Return whether a token is in a mask; an id outside of it is not."""
    word = token_id // 32
    return 0 <= word < len(mask) and bool(mask[word] >> np.uint32(token_id % 32) & 1)
