"""What a caller asks of a request: vLLM's names, defaults and meaning.

Knows the valid ranges. Does not know the model: what depends on it (ids within the vocabulary,
lengths within the context) is checked by `octavo.frontend.preprocess`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from octavo.repetition import RepetitionDetectionParams
from octavo.structured_outputs import StructuredOutputsParams
from octavo.values import (
    require,
    require_finite,
    require_int,
    require_ints,
    require_machine_int,
    require_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

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
#: ids of which the logprobs are told beside that of the token drawn
MAX_LOGPROB_TOKEN_IDS = 128
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
    `logprob_token_ids` take the place of the likeliest tokens in the logprobs: `logprobs` is 0.
    With `stream_interval` each output of a stream but the first and the last has so many tokens.
    `truncate_prompt_tokens` cuts a prompt at its beginning, or its end with `truncation_side`
    "right". `repetition_detection` ends a text that goes round in circles.
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
    truncation_side: str = "left"
    logprob_token_ids: list[int] | None = None
    stream_interval: int | None = None
    repetition_detection: RepetitionDetectionParams | None = None
    structured_outputs: StructuredOutputsParams | None = None
    thinking_token_budget: int | None = None
    extra_args: dict[str, Any] | None = None
    logits_processors: list[Callable[..., Any]] | None = None

    def __post_init__(self) -> None:
        self._check_types()
        self._check_ranges()
        self._check_lists()
        self._check_shapes()
        if self.logprob_token_ids:
            self.logprobs = 0
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

    def truncated(self, token_ids: list[int]) -> list[int]:
        """Return as many ids of a prompt as are to be kept, of the side that is to be kept."""
        num_kept = self.truncate_prompt_tokens
        if num_kept is None:
            return token_ids
        return token_ids[:num_kept] if self.truncation_side == "right" else token_ids[-num_kept:]

    def _check_types(self) -> None:
        for name in ("n", "top_k", "min_tokens"):
            require_machine_int(name, getattr(self, name))
        for name in (
            "max_tokens", "logprobs", "prompt_logprobs", "truncate_prompt_tokens",
            "thinking_token_budget", "stream_interval",
        ):  # fmt: skip
            if getattr(self, name) is not None:
                require_machine_int(name, getattr(self, name))
        if self.seed is not None:
            require_int("seed", self.seed)
        for name in (
            "presence_penalty", "frequency_penalty", "repetition_penalty", "temperature",
            "top_p", "min_p",
        ):  # fmt: skip
            require_finite(name, getattr(self, name))
        form = self.structured_outputs
        is_form = form is None or isinstance(form, StructuredOutputsParams)
        require(is_form, "structured_outputs", form, "a StructuredOutputsParams")

    def _check_ranges(self) -> None:
        require(1 <= self.n <= MAX_NUM_CHOICES, "n", self.n, f"between 1 and {MAX_NUM_CHOICES}")
        require(
            0 <= self.temperature <= MAX_TEMPERATURE,
            "temperature",
            self.temperature,
            "between 0 and 2",
        )
        require(0 < self.top_p <= 1, "top_p", self.top_p, "above 0 and at most 1")
        require(self.top_k >= -1, "top_k", self.top_k, "-1 or 0 (off), or at least 1")
        require(0 <= self.min_p <= 1, "min_p", self.min_p, "between 0 and 1")
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            require(-MAX_PENALTY <= value <= MAX_PENALTY, name, value, "between -2 and 2")
        require(
            MIN_REPETITION_PENALTY <= self.repetition_penalty <= MAX_REPETITION_PENALTY,
            "repetition_penalty", self.repetition_penalty, "between 0.01 and 100",
        )  # fmt: skip
        if self.max_tokens is not None:
            require(self.max_tokens >= 0, "max_tokens", self.max_tokens, "at least 1")
            require(
                self.max_tokens > 0 or self.prompt_logprobs is not None,
                "max_tokens", self.max_tokens, "at least 1 (0 needs prompt_logprobs)",
            )  # fmt: skip
            require(
                self.min_tokens <= self.max_tokens,
                "min_tokens", self.min_tokens, f"at most max_tokens ({self.max_tokens})",
            )  # fmt: skip
        require(self.min_tokens >= 0, "min_tokens", self.min_tokens, "at least 0")
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            require(value is None or value >= -1, name, value, "at least 0, or -1 for all")
        budget = self.thinking_token_budget
        require(budget is None or budget >= -1, "thinking_token_budget", budget, "at least -1")
        low, high = _SEED_RANGE
        require(self.seed is None or low <= self.seed <= high, "seed", self.seed, "a 64-bit int")
        require(
            self.truncate_prompt_tokens is None or self.truncate_prompt_tokens >= 1,
            "truncate_prompt_tokens", self.truncate_prompt_tokens, "at least 1",
        )  # fmt: skip

    def _check_shapes(self) -> None:
        """Check what shapes the outputs."""
        circles = self.repetition_detection
        is_good = circles is None or isinstance(circles, RepetitionDetectionParams)
        require(is_good, "repetition_detection", circles, "a RepetitionDetectionParams")
        side, interval = self.truncation_side, self.stream_interval
        require(side in ("left", "right"), "truncation_side", side, "'left' or 'right'")
        require(interval is None or interval >= 1, "stream_interval", interval, "at least 1")
        num_ids, limit = len(self.logprob_token_ids or ()), MAX_LOGPROB_TOKEN_IDS
        require(num_ids <= limit, "logprob_token_ids", num_ids, f"<= {limit} long")

    def _check_lists(self) -> None:
        stops = self.stop_strings
        require(len(stops) <= MAX_STOP_STRINGS, "stop", len(stops), f"<= {MAX_STOP_STRINGS} long")
        for text in stops:
            require_text("stop", text)
        require(not stops or self.detokenize, "stop", list(stops), "used with detokenize=True")
        for name in ("stop_token_ids", "allowed_token_ids", "logprob_token_ids"):
            require_ints(name, getattr(self, name) or ())
        require(
            self.allowed_token_ids is None or len(self.allowed_token_ids) > 0,
            "allowed_token_ids", self.allowed_token_ids, "None, or a list that is not empty",
        )  # fmt: skip
        words = self.bad_words or ()
        require(len(words) <= MAX_BAD_WORDS, "bad_words", len(words), f"<= {MAX_BAD_WORDS} long")
        for word in words:
            require_text("bad_words", word)
        for name, texts in (("stop", stops), ("bad_words", words)):
            num_chars = sum(map(len, texts))
            valid = f"at most {MAX_WORDS_CHARS} characters together"
            require(num_chars <= MAX_WORDS_CHARS, name, num_chars, valid)
        require_ints("logit_bias", self.logit_bias or ())
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
        require_machine_int("beam_width", self.beam_width)
        is_good = 1 <= self.beam_width <= MAX_NUM_CHOICES
        require(is_good, "beam_width", self.beam_width, f"between 1 and {MAX_NUM_CHOICES}")
        require_finite("length_penalty", self.length_penalty)
        is_good = abs(self.length_penalty) <= MAX_LENGTH_PENALTY
        require(is_good, "length_penalty", self.length_penalty, "between -10 and 10")
        is_good = self.max_tokens != 0
        require(is_good, "max_tokens", self.max_tokens, "at least 1")
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


def _require_biases(biases: Collection[float]) -> None:
    is_good = set(map(type, biases)) <= {int, float}
    if is_good and all(-MAX_LOGIT_BIAS <= bias <= MAX_LOGIT_BIAS for bias in biases):
        return
    for bias in biases:
        require_finite("logit_bias", bias)
        is_good = -MAX_LOGIT_BIAS <= bias <= MAX_LOGIT_BIAS
        require(is_good, "logit_bias", bias, "between -100 and 100")
