"""A caller's prompt and parameters become engine requests, or one clear error.

Knows the tokenizer, the model's defaults and the engine's limits. Does not know HTTP, chat
templates, or the engine itself; imports neither torch nor transformers.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from octavo.engine.messages import EngineRequest
from octavo.errors import RequestError
from octavo.frontend.beams import SearchRules, search_rules
from octavo.frontend.checks import (
    check_can_generate,
    check_capacity,
    check_choice,
    check_context,
    check_params,
    check_pooled,
    check_priority,
    check_prompt_ids,
)
from octavo.frontend.defaults import GenerationDefaults
from octavo.frontend.prompts import Prompt, parse_prompt, without_surrogates
from octavo.frontend.request_params import DeclaredParams
from octavo.frontend.words import bad_words_ids, with_clean_texts
from octavo.interfaces.grammar import ReasoningSpec
from octavo.lora import adapter_uses
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.engine.messages import EngineInfo
    from octavo.frontend.pooling import PoolingPlan
    from octavo.interfaces.grammar import GrammarSpec
    from octavo.interfaces.parser import ReasoningMarks
    from octavo.interfaces.tokenizer import Tokenizer
    from octavo.lora import Adapters

_SEED_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a caller asks. `arrival_s` is on the engine's clock (monotonic seconds).

    `add_special_tokens` puts BOS and the like around a text; a rendered chat template already
    has them. `metadata` reaches scheduling policies. `reasoning` tells where the reasoning of the
    answer ends: there its form begins, and its budget is counted. `visible_markers` are special
    tokens that belong to the text even where such tokens are skipped. With `pooling` a vector is
    wanted and no text; `params` are those of the plan then. With `length_penalty` the choices are
    the best texts of a beam search, `params.n` wide.
    """

    request_id: str
    prompt: Prompt
    params: SamplingParams
    arrival_s: float
    priority: int = 0
    lora_request: Adapters = None
    add_special_tokens: bool = True
    reasoning: ReasoningMarks | None = None
    visible_markers: frozenset[str] = frozenset()
    pooling: PoolingPlan | None = None
    length_penalty: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckedParams:
    """Parameters that were found good, and what follows from them whatever the prompt.

    `given` are those of the caller. The first choice has `params`, all further ones `others`:
    prompt logprobs are the same for all, and one computes them, unless nothing else is wanted.
    """

    given: SamplingParams
    params: SamplingParams
    others: SamplingParams
    eos_token_ids: tuple[int, ...]
    stop_token_ids: frozenset[int]
    bad_words_ids: tuple[tuple[int, ...], ...]
    grammar: GrammarSpec | None


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call that was found good, and its engine requests: one a choice, ids `<id>-<choice>`.

    With `search` others are run in their stead (`octavo.frontend.beam_search`).
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    checked: CheckedParams
    arrival_s: float
    requests: list[EngineRequest]
    visible_ids: frozenset[int] = frozenset()
    search: SearchRules | None = None

    @property
    def params(self) -> SamplingParams:
        """Return the parameters of the first choice."""
        return self.checked.params


class Preprocessor:
    """Checks and tokenises. Thread-safe, except that seeds are drawn in the order of calls.

    Unseeded requests get a seed from the own generator of the engine (`seed`), or from the
    operating system when that is None; the process's global generators are never touched.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        info: EngineInfo,
        defaults: GenerationDefaults | None = None,
        *,
        declared: DeclaredParams | None = None,
        seed: int | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.info = info
        self.defaults = defaults or GenerationDefaults()
        self.declared = declared or DeclaredParams()
        # no secrets are drawn from it
        self._seeds = random.SystemRandom() if seed is None else random.Random(seed)  # noqa: S311
        ends = tokenizer.eos_token_ids | set(self.defaults.eos_token_ids)
        self.eos_token_ids = tuple(sorted(i for i in ends if i < info.vocab_size))

    def prepare(self, call: Call, checked: CheckedParams | None = None) -> PreparedCall:
        """Return the engine requests of a call. Raises RequestError, a ValueError.

        `checked` is what an earlier prompt came with: it holds for this one too where both have
        the same `SamplingParams`, and then lists as long as the vocabulary are gone through once.
        """
        prompt = parse_prompt(call.prompt)
        check_priority(call.priority)
        if checked is None or checked.given is not call.params:
            checked = self._check(call.params)
        params = checked.params
        token_ids = prompt.token_ids
        if token_ids is None:
            token_ids = self.encode(prompt.text or "", add_special_tokens=call.add_special_tokens)
        token_ids = params.truncated(token_ids)
        check_prompt_ids(token_ids, self.info)
        base = self._engine_request(call, checked, token_ids)
        base.cache_salt = prompt.cache_salt
        base.reasoning = self._reasoning(call.reasoning, checked)
        return PreparedCall(
            request_id=call.request_id,
            prompt=prompt.text,
            prompt_token_ids=token_ids,
            checked=checked,
            arrival_s=call.arrival_s,
            requests=_choices(base, checked),
            visible_ids=self._ids_of(call.visible_markers),
            search=search_rules(call, self.eos_token_ids, self.info),
        )

    def _check(self, given: SamplingParams) -> CheckedParams:
        if not isinstance(given, SamplingParams):
            raise RequestError(
                f"sampling_params must be a SamplingParams, not {type(given).__name__}",
                param="sampling_params",
            )
        params = with_clean_texts(given)
        check_params(params, self.info)
        extra_args = self.declared.checked(params, self.tokenizer)
        if extra_args is not None:
            params = replace(params, extra_args=extra_args)
        others = params
        if params.prompt_logprobs is not None and params.n > 1 and params.max_tokens != 0:
            others = copy.copy(params)
            others.prompt_logprobs = None
        grammar = self._grammar(params)
        # a text of a given form has to end where there is nothing else to say
        is_endless = params.ignore_eos and grammar is None
        eos_token_ids = () if is_endless else self.eos_token_ids
        bad_ids = bad_words_ids(params, self.tokenizer, self.info.vocab_size)
        check_choice(params, eos_token_ids, bad_ids, self.info)
        stop_ids = frozenset(params.stop_token_ids or ())
        return CheckedParams(given, params, others, eos_token_ids, stop_ids, bad_ids, grammar)

    def default_sampling_params(self) -> SamplingParams:
        """Return the parameters of a caller who gave none: the model's own defaults."""
        return self.defaults.sampling_params()

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Return the ids of a text. One that brings its own BOS gets no second one (B44)."""
        token_ids = self.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        bos = self.tokenizer.bos_token_id
        has_two = add_special_tokens and bos is not None and token_ids[:2] == [bos, bos]
        return token_ids[1:] if has_two else token_ids

    def _max_tokens(self, params: SamplingParams, num_prompt_tokens: int) -> int:
        """Return how many tokens may be generated. Raises when the request cannot fit."""
        check_context(num_prompt_tokens, params.max_tokens, self.info.max_model_len)
        check_capacity(num_prompt_tokens, params.max_tokens, self.info.capacity_tokens)
        if params.max_tokens is not None:
            return params.max_tokens
        limit = min(self.info.max_model_len, self.info.capacity_tokens) - num_prompt_tokens
        default = self.defaults.max_new_tokens
        return limit if default is None else min(limit, default)

    def _engine_request(
        self, call: Call, checked: CheckedParams, token_ids: list[int]
    ) -> EngineRequest:
        params = checked.params
        if call.pooling is None:
            check_can_generate(is_possible=self.defaults.can_generate)
            max_tokens = self._max_tokens(params, len(token_ids))
        else:
            max_tokens = check_pooled(len(token_ids), self.info)
        seed = self._seeds.getrandbits(64) if params.seed is None else params.seed & _SEED_MASK
        return EngineRequest(
            request_id=call.request_id,
            prompt_token_ids=token_ids,
            params=params,
            max_tokens=max_tokens,
            seed=seed,
            arrival_s=call.arrival_s,
            priority=call.priority,
            eos_token_ids=checked.eos_token_ids,
            stop_token_ids=checked.stop_token_ids,
            bad_words_ids=checked.bad_words_ids,
            grammar=checked.grammar,
            adapters=adapter_uses(call.lora_request),
            pooling=None if call.pooling is None else call.pooling.mode,
            metadata=call.metadata,
        )

    def _grammar(self, params: SamplingParams) -> GrammarSpec | None:
        """Return the form that the text is to have, if one is asked for."""
        if params.structured_outputs is None:
            return None
        if not self.eos_token_ids:
            raise RequestError(
                "structured_outputs: this model has no token that ends a text",
                param="structured_outputs",
            )
        grammar = params.structured_outputs.to_grammar()
        whitespace = grammar.whitespace and without_surrogates(grammar.whitespace)
        return replace(grammar, text=without_surrogates(grammar.text), whitespace=whitespace)

    def _reasoning(
        self, marks: ReasoningMarks | None, checked: CheckedParams
    ) -> ReasoningSpec | None:
        """Return what the engine must know of the reasoning: nothing, where nothing depends on it.

        Raises RequestError where its end cannot be told.
        """
        budget = checked.params.thinking_token_budget
        if budget is None and checked.grammar is None:
            return None
        if marks is None and budget is None:
            return None
        end_ids = self._mark_ids(marks.end) if marks is not None else ()
        if marks is None or not end_ids:
            param = "thinking_token_budget" if budget is not None else "structured_outputs"
            raise RequestError(
                f"{param}: nothing tells where the reasoning of this model ends",
                "choose the parser of its family",
                param=param,
            )
        return ReasoningSpec(end_ids, marks.is_open, budget, self._mark_ids(marks.start))

    def _ids_of(self, markers: frozenset[str]) -> frozenset[int]:
        """Return the ids of those markers that are tokens of the model."""
        found = map(self.tokenizer.token_to_id, markers)
        return frozenset(token_id for token_id in found if token_id is not None)

    def _mark_ids(self, text: str) -> tuple[int, ...]:
        """Return the ids of a mark; none, where they are not all tokens of the model."""
        ids = tuple(self.tokenizer.encode(text, add_special_tokens=False))
        return ids if max(ids, default=0) < self.info.vocab_size else ()


def _choices(base: EngineRequest, checked: CheckedParams) -> list[EngineRequest]:
    """Return one request a choice."""
    return [
        replace(
            base,
            request_id=f"{base.request_id}-{choice}",
            choice=choice,
            params=checked.others if choice else checked.params,
            metadata=dict(base.metadata),
        )
        for choice in range(checked.params.n)
    ]
