"""The `xgrammar` back end: JSON schemas, regular expressions, choices, GBNF, structural tags.

Knows xgrammar. Does not know requests, logits, or what ends a text.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import xgrammar

from octavo.errors import GrammarError
from octavo.interfaces.grammar import CompiledGrammar, GrammarBackend, GrammarState
from octavo_plugins.grammars.bnf import plain_bnf
from octavo_plugins.grammars.options import XGrammarOptions
from octavo_plugins.grammars.patterns import whole_text
from octavo_plugins.grammars.refusals import cannot, check_length
from octavo_plugins.grammars.spacing import default_spacing, spacing_of
from octavo_plugins.grammars.token_tags import TokenTags
from octavo_plugins.grammars.trial import Trial
from octavo_plugins.grammars.vocabulary import END, exact_tokens
from octavo_plugins.grammars.xgrammar_schemas import plain_schema
from octavo_plugins.grammars.xgrammar_trial import compiled, compiler_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from octavo.interfaces.grammar import GrammarContext, GrammarSpec

#: where xgrammar says in its own source a message comes from
_ORIGIN: Final = re.compile(r"^\[[\d:]+\] \S+:\d+: ", re.MULTILINE)
_MAX_REASON_CHARS: Final = 400
#: what following a text may take altogether, beyond what each token may
_FIRST_S: Final = 1.0


class XGrammar(GrammarBackend):
    """Compiles for one vocabulary: what each token does in each state is found out beforehand.

    Raises GrammarError for a tokenizer whose tokens are not the bytes of the text.
    """

    Options = XGrammarOptions

    def __init__(self, options: XGrammarOptions | None, context: GrammarContext) -> None:
        super().__init__(options, context)
        self._limits = options or XGrammarOptions()
        self._tokens = exact_tokens(context)
        tokens = [*self._tokens, END]
        self._compiler = compiler_of(tokens)
        preamble = json.dumps([one.hex() for one in tokens]).encode()
        self._trial = Trial("xgrammar_trial.py", self._limits, preamble)

    def compile(self, spec: GrammarSpec) -> CompiledGrammar:
        """Compile, first on trial, and see whether a text can begin."""
        check_length(spec, self._limits.max_text_bytes)
        max_s = self._limits.max_compile_s
        tags = TokenTags.of(spec, self.compile, len(self._tokens), max_s)
        return self._compiled(spec) if tags is None else tags

    def _compiled(self, spec: GrammarSpec) -> XGrammarGrammar:
        order = self._order(spec)
        complaint = self._trial.check(json.dumps(order))
        if complaint is not None:
            raise cannot(spec, _reason(complaint))
        try:
            grammar = XGrammarGrammar(
                compiled(self._compiler, order), self._tokens, self._limits.max_token_ms
            )
        except RuntimeError as error:
            raise cannot(spec, _reason(str(error))) from error
        state, mask = grammar.start(), np.zeros(-(-self.context.vocab_size // 32), dtype=np.uint32)
        state.fill_mask(mask)
        if not mask.any() and not state.is_complete:
            raise cannot(spec, "no text has this form")
        return grammar

    def close(self) -> None:
        """End the processes that compile on trial."""
        self._trial.close()

    def _order(self, spec: GrammarSpec) -> dict[str, Any]:
        """Return what is to be compiled. Raises GrammarError for what is not held to."""
        match spec.form:
            case "json_schema":
                schema = plain_schema(_loaded(spec.text, dict, "the JSON schema"))
                return self._schema(schema, spec)
            case "json_object":
                return self._schema({"type": "object"}, spec)
            case "regex":
                return {"kind": "regex", "text": whole_text(spec.text)}
            case "choice":
                return {"kind": "gbnf", "text": _gbnf_of_choices(spec.text)}
            case "gbnf":
                return {"kind": "gbnf", "text": plain_bnf(spec.text, "\\u{:04x}")}
            case "structural_tag":
                tags = _loaded(spec.text, dict, "the structural tag")
                spacing = default_spacing(self._limits.max_indent)
                return {"kind": "structural_tag", "text": _tags(tags), "spacing": spacing}
        raise GrammarError(
            "grammars in Lark are not held to by xgrammar",
            "write GBNF (root ::= ...), or start the engine with --grammar llguidance",
        )

    def _schema(self, schema: dict[str, Any], spec: GrammarSpec) -> dict[str, Any]:
        spacing = spacing_of(spec, self._limits.max_indent)
        return {"kind": "json_schema", "text": json.dumps(schema), "spacing": spacing}


class XGrammarGrammar(CompiledGrammar):
    """A grammar that any number of matchers read, and none changes."""

    def __init__(
        self, grammar: xgrammar.CompiledGrammar, tokens: list[bytes], max_token_ms: float
    ) -> None:
        self._grammar = grammar
        self._tokens = tokens
        self._max_token_s = max_token_ms / 1000

    def start(self) -> XGrammarState:
        """Return the state before the first token."""
        matcher = xgrammar.GrammarMatcher(self._grammar)
        return XGrammarState(matcher, self._tokens, self._max_token_s)


class XGrammarState(GrammarState):
    """A matcher, somewhere in a text.

    Some grammars can be followed in so many ways that each token takes longer than the last. So
    what a text takes is measured: beyond what it may, it is given up.
    """

    def __init__(
        self, matcher: xgrammar.GrammarMatcher, tokens: list[bytes], max_token_s: float
    ) -> None:
        self._matcher = matcher
        self._max_token_s = max_token_s
        self._left_s = _FIRST_S
        self._tokens = tokens
        self._end_word, end_bit = divmod(len(tokens), 32)
        self._last_bits = np.uint32((1 << end_bit) - 1)  # of real tokens
        self._words = np.zeros((1, self._end_word + 1), dtype=np.int32)
        self._bits = self._words.view(np.uint32)[0]

    def fill_mask(self, mask: NDArray[np.uint32]) -> None:
        """Set the bits of the tokens that may come next.

        Raises GrammarError when the text takes longer than it may.
        """
        if self._left_s < 0:
            raise GrammarError(
                "the text cannot be followed any further",
                f"its tokens take more than {self._max_token_s * 1000:g} ms on average",
            )
        started_s = time.thread_time()
        self._matcher.fill_next_token_bitmask(self._words)
        self._left_s -= time.thread_time() - started_s
        bits = self._bits
        bits[self._end_word] &= self._last_bits
        num_words = min(len(mask), len(bits))
        mask[:num_words] = bits[:num_words]
        mask[num_words:] = 0

    def advance(self, token_id: int) -> bool:
        """Follow a token, if it may come next."""
        if not 0 <= token_id < len(self._tokens) or not self._tokens[token_id]:
            return False
        started_s = time.thread_time()
        is_next = bool(self._matcher.accept_token(token_id))
        self._left_s += self._max_token_s - (time.thread_time() - started_s)
        return is_next

    def rollback(self, num_tokens: int) -> None:
        """Undo the last advances."""
        if num_tokens:
            self._matcher.rollback(num_tokens)

    def forced(self) -> list[int]:
        """Return the longest tokens of what must come next."""
        return [*map(int, self._matcher.find_jump_forward_tokens())]

    @property
    def is_complete(self) -> bool:
        """Return whether the text may end here."""
        return bool(self._matcher.is_completed())


def _tags(plain: dict[str, Any]) -> str:
    """Return structural tags as xgrammar reads them, but for JSON, of which the schema is there."""
    tags = [
        {
            "type": "tag",
            "begin": tag["begin"],
            "content": {"type": "json_schema", "json_schema": plain_schema(tag["schema"])},
            "end": tag["end"],
        }
        for tag in plain["tags"]
    ]
    return json.dumps(
        {"type": "structural_tag", "format": {"type": "triggered_tags", **plain, "tags": tags}}
    )


def _gbnf_of_choices(text: str) -> str:
    choices = _loaded(text, list, "the list of choices")
    if not choices or not all(isinstance(one, str) for one in choices):
        raise GrammarError("there must be at least one choice, and every choice must be a text")
    return "root ::= " + " | ".join(f'"{"".join(map(_written, one))}"' for one in choices)


def _written(char: str) -> str:
    is_plain = ord(char) >= 0x80 or char.isalnum()  # noqa: PLR2004 - the end of ASCII
    return char if is_plain else f"\\u{ord(char):04x}"


def _loaded(text: str, kind: type, what: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise GrammarError(f"{what} is not valid JSON", str(error)) from error
    except RecursionError as error:
        raise GrammarError(f"{what} is nested too deeply") from error
    if not isinstance(value, kind):
        name = "an object" if kind is dict else "a list"
        raise GrammarError(f"{what} must be {name}, not {text:.40}")
    return value


def _reason(complaint: str) -> str:
    """Return what xgrammar complains of, in one line, without the place in its own source."""
    return " ".join(_ORIGIN.sub("", complaint).split())[:_MAX_REASON_CHARS]
