"""What a caller asks of a request: vLLM's names, defaults and meaning.

Knows the valid ranges. Does not know the model: what depends on it (ids within the vocabulary,
lengths within the context) is checked by `octavo.frontend.preprocess`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from octavo.errors import RequestError
from octavo.structured_outputs import StructuredOutputsParams

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

MAX_NUM_CHOICES = 128
MAX_TEMPERATURE = 2.0
#: what is smaller is 0: all but the likeliest tokens are lost, and devices would divide by zero
MIN_TEMPERATURE = 1e-20
MAX_PENALTY = 2.0
#: what is smaller makes infinities of logits, in the number types of devices
MIN_REPETITION_PENALTY = 0.01
MAX_REPETITION_PENALTY = 100.0
MAX_LOGIT_BIAS = 100.0
MAX_LENGTH_PENALTY = 10.0
MAX_STOP_STRINGS = 64
MAX_BAD_WORDS = 1024
#: of all stop strings together, and of all bad words: each is prepared before others have a turn
MAX_WORDS_CHARS = 20_000
_SEED_RANGE = (-(2**63), 2**64 - 1)


class RequestOutputKind(Enum):
    """What each output of a stream holds."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


@dataclass(slots=True)
class SamplingParams:
    """How to sample. Raises `RequestError` (a ValueError, with `.param`) for a bad value.

    `temperature` 0 is greedy, as is one below `MIN_TEMPERATURE`. `top_k` 0 or -1, `top_p` 1 and
    `min_p` 0 are off. `max_tokens` None means up to the context. `logits_processors` (in process
    only) are callables `f(output_ids, logits)` or `f(prompt_ids, output_ids, logits)` that return
    logits [vocab].
    `structured_outputs` gives the text a form, whose end wins over `min_tokens`, `ignore_eos`.
    `thinking_token_budget` is how many tokens of reasoning there may be; -1 and None are any.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    truncate_prompt_tokens: int | None = None
    structured_outputs: StructuredOutputsParams | None = None
    thinking_token_budget: int | None = None
    extra_args: dict[str, Any] | None = None
    logits_processors: list[Callable[..., Any]] | None = None

    def __post_init__(self) -> None:
        self._check_types()
        self._check_ranges()
        self._check_lists()
        if self.seed == -1:
            self.seed = None
        if self.thinking_token_budget == -1:
            self.thinking_token_budget = None
        if self.temperature < MIN_TEMPERATURE:
            self.temperature = 0.0

    @property
    def stop_strings(self) -> Sequence[str]:
        """Return the stop strings as a sequence."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else self.stop

    def _check_types(self) -> None:
        for name in ("n", "top_k", "min_tokens"):
            _require_machine_int(name, getattr(self, name))
        for name in (
            "max_tokens", "logprobs", "prompt_logprobs", "truncate_prompt_tokens",
            "thinking_token_budget",
        ):  # fmt: skip
            if getattr(self, name) is not None:
                _require_machine_int(name, getattr(self, name))
        if self.seed is not None:
            _require_int("seed", self.seed)
        for name in (
            "presence_penalty", "frequency_penalty", "repetition_penalty", "temperature",
            "top_p", "min_p",
        ):  # fmt: skip
            _require_finite(name, getattr(self, name))
        form = self.structured_outputs
        is_form = form is None or isinstance(form, StructuredOutputsParams)
        _require(is_form, "structured_outputs", form, "a StructuredOutputsParams")

    def _check_ranges(self) -> None:
        _require(1 <= self.n <= MAX_NUM_CHOICES, "n", self.n, f"between 1 and {MAX_NUM_CHOICES}")
        _require(
            0 <= self.temperature <= MAX_TEMPERATURE,
            "temperature",
            self.temperature,
            "between 0 and 2",
        )
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "above 0 and at most 1")
        _require(self.top_k >= -1, "top_k", self.top_k, "-1 or 0 (off), or at least 1")
        _require(0 <= self.min_p <= 1, "min_p", self.min_p, "between 0 and 1")
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            _require(-MAX_PENALTY <= value <= MAX_PENALTY, name, value, "between -2 and 2")
        _require(
            MIN_REPETITION_PENALTY <= self.repetition_penalty <= MAX_REPETITION_PENALTY,
            "repetition_penalty", self.repetition_penalty, "between 0.01 and 100",
        )  # fmt: skip
        if self.max_tokens is not None:
            _require(self.max_tokens >= 0, "max_tokens", self.max_tokens, "at least 1")
            _require(
                self.max_tokens > 0 or self.prompt_logprobs is not None,
                "max_tokens", self.max_tokens, "at least 1 (0 needs prompt_logprobs)",
            )  # fmt: skip
            _require(
                self.min_tokens <= self.max_tokens,
                "min_tokens", self.min_tokens, f"at most max_tokens ({self.max_tokens})",
            )  # fmt: skip
        _require(self.min_tokens >= 0, "min_tokens", self.min_tokens, "at least 0")
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            _require(value is None or value >= -1, name, value, "at least 0, or -1 for all")
        budget = self.thinking_token_budget
        _require(budget is None or budget >= -1, "thinking_token_budget", budget, "at least -1")
        low, high = _SEED_RANGE
        _require(self.seed is None or low <= self.seed <= high, "seed", self.seed, "a 64-bit int")
        _require(
            self.truncate_prompt_tokens is None or self.truncate_prompt_tokens >= 1,
            "truncate_prompt_tokens", self.truncate_prompt_tokens, "at least 1",
        )  # fmt: skip

    def _check_lists(self) -> None:
        stops = self.stop_strings
        _require(len(stops) <= MAX_STOP_STRINGS, "stop", len(stops), f"<= {MAX_STOP_STRINGS} long")
        for text in stops:
            _require_text("stop", text)
        _require(not stops or self.detokenize, "stop", list(stops), "used with detokenize=True")
        for name in ("stop_token_ids", "allowed_token_ids"):
            _require_ints(name, getattr(self, name) or ())
        _require(
            self.allowed_token_ids is None or len(self.allowed_token_ids) > 0,
            "allowed_token_ids", self.allowed_token_ids, "None, or a list that is not empty",
        )  # fmt: skip
        words = self.bad_words or ()
        _require(len(words) <= MAX_BAD_WORDS, "bad_words", len(words), f"<= {MAX_BAD_WORDS} long")
        for word in words:
            _require_text("bad_words", word)
        for name, texts in (("stop", stops), ("bad_words", words)):
            num_chars = sum(map(len, texts))
            valid = f"at most {MAX_WORDS_CHARS} characters together"
            _require(num_chars <= MAX_WORDS_CHARS, name, num_chars, valid)
        _require_ints("logit_bias", self.logit_bias or ())
        _require_biases((self.logit_bias or {}).values())


@dataclass(slots=True)
class BeamSearchParams:
    """How to search for the likeliest texts. Raises `RequestError` for a bad value.

    `beam_width` texts are followed, and as many are found. They are ordered by
    `cum_logprob / num_tokens ** length_penalty`, with the prompt's tokens counted and an end of
    sequence not, as in vLLM. `stop` and `stop_token_ids` end a text as they do elsewhere.

    `temperature` is taken because vLLM has it, and changes nothing, there as here: logprobs are
    those of the model.
    """

    beam_width: int
    max_tokens: int | None
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0
    include_stop_str_in_output: bool = False
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None

    def __post_init__(self) -> None:
        _require_machine_int("beam_width", self.beam_width)
        is_good = 1 <= self.beam_width <= MAX_NUM_CHOICES
        _require(is_good, "beam_width", self.beam_width, f"between 1 and {MAX_NUM_CHOICES}")
        _require_finite("length_penalty", self.length_penalty)
        is_good = abs(self.length_penalty) <= MAX_LENGTH_PENALTY
        _require(is_good, "length_penalty", self.length_penalty, "between -10 and 10")
        is_good = self.max_tokens != 0
        _require(is_good, "max_tokens", self.max_tokens, "at least 1")
        self.sampling()

    def sampling(self, **others: Any) -> SamplingParams:
        """Return the parameters of a call whose choices are to be the texts found."""
        return SamplingParams(
            n=self.beam_width,
            max_tokens=self.max_tokens,
            ignore_eos=self.ignore_eos,
            temperature=self.temperature,
            include_stop_str_in_output=self.include_stop_str_in_output,
            stop=self.stop,
            stop_token_ids=self.stop_token_ids,
            **others,
        )


def _require(is_good: bool, param: str, value: object, valid: str) -> None:
    if not is_good:
        raise RequestError(f"{param} must be {valid}, not {_shown(value)}", param=param)


def _shown(value: object) -> str:
    try:
        return f"{value!r:.80}"
    except ValueError:  # Python writes out no int of thousands of digits
        return "a number of thousands of digits"


def _require_int(param: str, value: object) -> None:
    is_good = isinstance(value, int) and not isinstance(value, bool)
    _require(is_good, param, value, "an integer")


def _require_machine_int(param: str, value: object) -> None:
    """Refuse what does not fit 64 bits: it means nothing, and messages could not hold it."""
    _require_int(param, value)
    is_good = isinstance(value, int) and -(2**63) <= value < 2**63
    _require(is_good, param, value, "a 64-bit integer")


def _require_ints(param: str, values: Iterable[object]) -> None:
    if set(map(type, values)) <= {int}:  # lists may be as long as the vocabulary
        return
    for value in values:
        _require_int(param, value)


def _require_biases(biases: Collection[float]) -> None:
    is_good = set(map(type, biases)) <= {int, float}
    if is_good and all(-MAX_LOGIT_BIAS <= bias <= MAX_LOGIT_BIAS for bias in biases):
        return
    for bias in biases:
        _require_finite("logit_bias", bias)
        is_good = -MAX_LOGIT_BIAS <= bias <= MAX_LOGIT_BIAS
        _require(is_good, "logit_bias", bias, "between -100 and 100")


def _require_text(param: str, value: object) -> None:
    _require(isinstance(value, str) and value != "", param, value, "non-empty strings")


def _require_finite(param: str, value: object) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_good = is_number and -math.inf < value < math.inf  # type: ignore[operator]
    _require(is_good, param, value, "a finite number")
