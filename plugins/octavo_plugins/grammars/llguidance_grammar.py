"""The `llguidance` back end: JSON schemas, expressions, choices, Lark, GBNF, structural tags.

Knows llguidance. Does not know requests, logits, or what ends a text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import llguidance
import numpy as np

from octavo.errors import GrammarError
from octavo.interfaces.grammar import CompiledGrammar, GrammarBackend, GrammarState
from octavo_plugins.grammars.llguidance_vocabulary import Vocabulary
from octavo_plugins.grammars.options import LLGuidanceOptions
from octavo_plugins.grammars.refusals import cannot, check_length
from octavo_plugins.grammars.sources import source_of
from octavo_plugins.grammars.token_tags import TokenTags
from octavo_plugins.grammars.trial import Trial

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from octavo.interfaces.grammar import GrammarContext, GrammarSpec

#: where llguidance repeats the grammar below its message
_EXCERPT: Final = re.compile(r"^ *\d+ \| ", re.MULTILINE)
_TOO_DEEP: Final = re.compile(r'parse "%json": recursion limit|lark grammar too deeply nested')
_PLACE: Final = re.compile(r"^at \d+\(\d+\): ")
_IN_SCHEMA: Final = re.compile(r'.*failed to (?:compile JSON schema|parse "%json"): ', re.DOTALL)
_IN_REGEX: Final = re.compile(r".*^error: ", re.DOTALL | re.MULTILINE)
_MAX_REASON_CHARS: Final = 400


class LLGuidance(GrammarBackend):
    """Compiles for one vocabulary, which becomes llguidance's tree of tokens here, once.

    Raises GrammarError for a tokenizer whose tokens are not the bytes of the text.
    """

    Options = LLGuidanceOptions

    def __init__(self, options: LLGuidanceOptions | None, context: GrammarContext) -> None:
        super().__init__(options, context)
        self._limits = options or LLGuidanceOptions()
        self._vocabulary = Vocabulary(context)
        self._trial = Trial("trial_process.py", self._limits)
        self._parser_limits = llguidance.LLParserLimits(
            max_lexer_states=self._limits.max_states, verbose_errors=False
        )

    def compile(self, spec: GrammarSpec) -> CompiledGrammar:
        """Compile, first on trial, and find out what may come first."""
        check_length(spec, self._limits.max_text_bytes)
        max_s = self._limits.max_compile_s
        tags = TokenTags.of(spec, self.compile, self._vocabulary.size, max_s)
        return self._compiled(spec) if tags is None else tags

    def _compiled(self, spec: GrammarSpec) -> LLGuidanceGrammar:
        source = source_of(spec, self._limits.max_indent)
        complaint = self._trial.check(source)
        if complaint is not None:
            raise cannot(spec, reason_of(complaint))
        matcher = llguidance.LLMatcher(
            self._vocabulary.library, source, log_level=0, limits=self._parser_limits
        )
        grammar = LLGuidanceGrammar(matcher, self._vocabulary)
        if matcher.is_error():
            raise cannot(spec, reason_of(matcher.get_error()))
        # the first step is the dearest: what it finds out is kept for all texts
        num_words = -(-self.context.vocab_size // 32)
        grammar.start().fill_mask(np.zeros(num_words, dtype=np.uint32))
        return grammar

    def close(self) -> None:
        """End the processes that compile on trial."""
        self._trial.close()


class LLGuidanceGrammar(CompiledGrammar):
    """A matcher before the first token, of which each text follows a copy.

    Copies share what was found out about the grammar's states, and nothing of where they are.
    """

    def __init__(self, matcher: llguidance.LLMatcher, vocabulary: Vocabulary) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary

    def start(self) -> LLGuidanceState:
        """Return the state before the first token."""
        return LLGuidanceState(self._matcher.deep_copy(), self._vocabulary)


class LLGuidanceState(GrammarState):
    """A matcher, somewhere in a text."""

    def __init__(self, matcher: llguidance.LLMatcher, vocabulary: Vocabulary) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._end_word, end_bit = divmod(vocabulary.size, 32)
        self._end_mask = np.uint32(1 << end_bit)
        self._words = np.zeros(self._end_word + 1, dtype=np.uint32)
        self._address = self._words.ctypes.data

    def fill_mask(self, mask: NDArray[np.uint32]) -> None:
        """Set the bits of the tokens that may come next.

        Raises GrammarError when the grammar has grown beyond its limits.
        """
        words = self._words
        self._matcher.unsafe_compute_mask_ptr(self._address, words.nbytes)
        if self._matcher.is_error():
            raise GrammarError(
                "the text cannot be followed any further", reason_of(self._matcher.get_error())
            )
        words[self._end_word] &= ~self._end_mask
        num_words = min(len(mask), len(words))
        mask[:num_words] = words[:num_words]
        mask[num_words:] = 0

    def advance(self, token_id: int) -> bool:
        """Follow a token, if it may come next."""
        if not self._vocabulary.has_bytes(token_id):
            return False
        return self._matcher.try_consume_tokens([token_id]) == 1

    def rollback(self, num_tokens: int) -> None:
        """Undo the last advances."""
        if num_tokens and not self._matcher.rollback(num_tokens):
            raise GrammarError("the text cannot be taken back", self._matcher.get_error())

    def forced(self) -> list[int]:
        """Return the tokens of the bytes that must come next."""
        data = self._matcher.compute_ff_bytes()
        return self._vocabulary.guess(data) if data else []

    @property
    def is_complete(self) -> bool:
        """Return whether the text may end here."""
        return self._matcher.is_accepting()


def reason_of(message: str) -> str:
    """Return what llguidance complains of, in one line, without its excerpt of the grammar."""
    if message.startswith("NoExtensionBias"):
        return "no text has this form"
    if _TOO_DEEP.search(message):
        return "it is nested too deeply"
    excerpt = _EXCERPT.search(message)
    text = message[: excerpt.start()] if excerpt else message
    for prefix in (_IN_SCHEMA, _IN_REGEX, _PLACE):
        text = prefix.sub("", text, count=1)
    return " ".join(text.replace("<non-verbose/>", "").split())[:_MAX_REASON_CHARS]
