"""The grammar kind: which tokens may come next, so that a text has a given form.

Grammars are compiled away from the engine's steps, then one state follows each request. Knows
token ids and bytes of tokens. Does not know logits, requests or HTTP.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

    from octavo.interfaces.tokenizer import Tokenizer

GrammarForm = Literal[
    "json_schema", "json_object", "regex", "choice", "lark", "gbnf", "structural_tag"
]


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """What a text must look like: plain data, equal specs are one grammar.

    `text` is the JSON text of a schema, a regular expression that the whole text must match, a
    JSON array of choices, a grammar in Lark or GBNF, or what `octavo.structural_tags` makes of
    structural tags; empty for `json_object`. `whitespace` is a regular
    expression of what may stand between the parts of JSON, where it may; "" lets nothing stand
    there, and None is the back end's own choice.
    """

    form: GrammarForm
    text: str = ""
    whitespace: str | None = None


@dataclass(frozen=True, slots=True)
class ReasoningSpec:
    """Where the reasoning of a text ends, and its form begins: plain data.

    `end_ids` are the tokens that end the reasoning. `is_open`: the output begins inside of it;
    else it begins with `start_ids`, if it comes at all. `budget` is how many tokens there may be
    between the two marks, None for any number; then the end is forced.
    """

    end_ids: tuple[int, ...]
    is_open: bool
    budget: int | None = None
    start_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GrammarContext:
    """What a back end is built with. `vocab_size` is the number of logits."""

    tokenizer: Tokenizer
    vocab_size: int


class GrammarBackend(ABC):
    """Compiles grammars for one vocabulary. `compile` may be called from any thread.

    G1  a text is complete exactly when the grammar accepts it, and then it has the form; every
        prefix of an accepted text is allowed token by token, however it is tokenised.
    G2  what cannot be compiled, or not held to, is refused with GrammarError: never ignored.
    G3  `rollback(n)` after n `advance`s restores the state; two states share nothing.
    G4  compiling is bounded in time and memory.
    G5  a mask allows exactly the tokens that `advance` follows; one that it does not changes
        nothing.
    G6  the tokens of `forced()` may come one after the other, and no other text may.
    G7  markers, ends of texts and ids outside of the vocabulary are in no mask and not followed;
        where structural tags name special tokens, these and all around their tags are.
    """

    def __init__(self, options: Any, context: GrammarContext) -> None:
        self.options = options
        self.context = context

    @abstractmethod
    def compile(self, spec: GrammarSpec) -> CompiledGrammar:
        """Return the compiled grammar. Raises `octavo.errors.GrammarError`, a RequestError."""

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """End what was started; twice is fine. Compiled grammars go on."""


class CompiledGrammar(ABC):
    """A grammar, ready to be followed by any number of requests."""

    @abstractmethod
    def start(self) -> GrammarState:
        """Return the state before the first token."""


class GrammarState(ABC):
    """Where one text is in its grammar. End-of-sequence tokens are not part of it."""

    @abstractmethod
    def fill_mask(self, mask: np.ndarray) -> None:
        """Set the bits of the tokens that may come next, clear all others.

        mask: uint32 [ceil(vocab / 32)]; token t is bit t % 32 of word t // 32. No special and no
        end-of-sequence token is set: whether the text may end is `is_complete`. Raises
        `octavo.errors.GrammarError` when the text cannot be followed within the limits.
        """

    @abstractmethod
    def advance(self, token_id: int) -> bool:
        """Follow a token. False, and nothing changed, when it may not come next."""

    @abstractmethod
    def rollback(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` advances."""

    @abstractmethod
    def forced(self) -> list[int]:
        """Return tokens that must come next, possibly none: guesses for drafts, not promises."""

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """Return whether the text may end here."""
