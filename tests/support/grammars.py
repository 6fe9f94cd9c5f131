"""Grammar back ends on small vocabularies and on SmolLM2's, and texts followed through them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from octavo.config.resolve import resolve
from octavo.engine.plan import RowSpec
from octavo.interfaces.grammar import GrammarContext, GrammarSpec
from octavo.model_files import describe_model, load_tokenizer, locate_model
from octavo.sampling_params import SamplingParams
from octavo_plugins.grammars.llguidance_grammar import LLGuidance
from scripted import VOCAB_SIZE, BytesTokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from octavo.interfaces.grammar import CompiledGrammar, GrammarState
    from octavo.interfaces.tokenizer import Tokenizer


def byte_backend(vocab_size: int = VOCAB_SIZE, options: Any = None) -> LLGuidance:
    """Return a back end whose tokens are bytes and a few words."""
    return LLGuidance(options, GrammarContext(BytesTokenizer(), vocab_size))


def smollm2_tokenizer() -> Tokenizer:
    """Return the tokenizer of the demo model."""
    config = resolve(overrides={"model": "smollm2"})
    return load_tokenizer(config, describe_model(config, locate_model(config)))


def schema_spec(schema: Any) -> GrammarSpec:
    """Return the grammar of a JSON schema."""
    return GrammarSpec("json_schema", json.dumps(schema, ensure_ascii=False))


def row_spec(grammar: GrammarSpec, eos: Sequence[int] = (), **params: Any) -> RowSpec:
    """Return what sampling knows of a request with a grammar."""
    return RowSpec(SamplingParams(max_tokens=1000, **params), 0, 0, 0, tuple(eos), grammar=grammar)


def mask_of(state: GrammarState, vocab_size: int = VOCAB_SIZE) -> np.ndarray:
    """Return which tokens may come next, as bools [vocab]; what it leaves unset would show."""
    mask = np.full(-(-vocab_size // 32), 0xDEADBEEF, dtype=np.uint32)
    state.fill_mask(mask)
    return allowed(mask, vocab_size)


def allowed(mask: np.ndarray, vocab_size: int = VOCAB_SIZE) -> np.ndarray:
    """Return a packed mask as bools [vocab]; bits beyond the vocabulary must be clear."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little").astype(bool)
    assert not bits[vocab_size:].any()
    return bits[:vocab_size]


def follow(
    compiled: CompiledGrammar, token_ids: Sequence[int], vocab_size: int = VOCAB_SIZE
) -> GrammarState | None:
    """Return the state behind tokens, each of which must be in the mask; None when one is not."""
    state = compiled.start()
    for token_id in token_ids:
        is_allowed = bool(mask_of(state, vocab_size)[token_id])
        assert state.advance(token_id) == is_allowed, "mask and state do not agree"
        if not is_allowed:
            return None
    return state


def accepts(
    compiled: CompiledGrammar, token_ids: Sequence[int], vocab_size: int = VOCAB_SIZE
) -> bool:
    """Return whether the tokens are a whole text of the grammar."""
    state = follow(compiled, token_ids, vocab_size)
    return state is not None and state.is_complete
