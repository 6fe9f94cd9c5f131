"""The sampler-stage kind, and the plain data with which an op set samples.

A stage is one small step between logits and token. Stock stages are *native*: the op set runs
them fused over the whole batch from `SamplingInputs`; their `apply` is the reference. A request
with a stage that is not native takes the per-row path, and slows nobody else.

Knows logits, parameters and token history. Does not know models, blocks or the schedule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from torch import Tensor

    from octavo.sampling_params import SamplingParams


def no_noise(purpose: int) -> float:
    """Stand in for the noise of a row that has none, as in `new_state`."""
    raise AssertionError(f"a row without noise was asked for that of purpose {purpose}")


@dataclass(slots=True)
class SamplingRow:
    """What a stage may read of the row it works on.

    `output_ids` includes the drafts before this row. `bad_words_ids` are the words of
    `params.bad_words` as token ids. `state` is what `new_state` or `advance` of this stage
    returned last. `uniform(purpose)` is a number in [0, 1): a function of the request's seed, its
    choice, the output position of this row's token, and the purpose alone. Purpose 0 is the draw
    itself; a stage that rolls dice takes a number of its own, such as `zlib.crc32` of its name.
    """

    params: SamplingParams
    prompt_ids: Sequence[int]
    output_ids: Sequence[int]
    eos_token_ids: Sequence[int] = ()
    bad_words_ids: Sequence[Sequence[int]] = ()
    state: Any = None
    uniform: Callable[[int], float] = no_noise


class SamplerStage(ABC):
    """One stage. A pure function of (row, its parameters, history, the request's state).

    P1  `apply` changes the logits of its row and nothing else.
    P2  an inactive stage changes nothing.
    P3  masked tokens are -inf afterwards and are never drawn.
    P4  the state of a request is in what `new_state` and `advance` return, never in the stage;
        neither changes the state it was given, as a draft may be taken back.
    P5  NaN, infinity, and a row with nothing left stay, so that the op set reports them.
    P6  the same row gets the same bits: no clock, no dice but `row.uniform`, no other row matters.
    P7  behind drafts it does what it does without them; what is taken back leaves no trace.
    P8  fields of `SamplingParams` keep their meaning: exactly the right tokens are left.
    P9  bias, penalties and temperature change logits by as much as they say.
    """

    #: position in the pipeline: edits of raw logits < 100 <= temperature < 200 <= truncation
    position: int = 150
    #: True when op sets run this stage fused, from `SamplingInputs`
    is_native: bool = False
    #: names of the fields of `SamplingParams` (or keys of its `extra_args`) that it reads. It tells
    #: readers and tests, and lets no request give a key: that takes `Component(params=Model)`, a
    #: subclass of `octavo.plugin.options.RequestParams` with a field for each
    parameters: tuple[str, ...] = ()

    def __init__(self, options: Any = None) -> None:
        self.options = options

    @abstractmethod
    def is_active(self, params: SamplingParams) -> bool:
        """Return whether these parameters ask for this stage."""

    @abstractmethod
    def apply(self, logits: Tensor, row: SamplingRow) -> None:
        """Edit logits [vocab] float32 in place."""

    def new_state(self, row: SamplingRow) -> Any:
        """Return the state of a request before its first token; None when there is none."""
        del row
        return None

    def advance(self, row: SamplingRow, logits: Tensor, token_id: int) -> Any:
        """Return the state after `token_id`, drawn from logits [vocab] that all stages edited."""
        del logits, token_id
        return row.state


@dataclass(slots=True)
class PenaltyRow:
    """Penalties of one row.

    `output_counts[i]` is how often `token_ids[i]` stands in the output: 0 for tokens of the
    prompt alone.
    """

    row: int
    token_ids: np.ndarray  # int64 [n], distinct: prompt and output
    output_counts: np.ndarray  # int32 [n]
    repetition: float
    frequency: float
    presence: float


@dataclass(slots=True)
class SamplingInputs:
    """What one draw per row needs.

    Order of work: allowed, bias, penalties, banned, masks, then temperature, min-p, top-k, top-p
    (of the renormalised rest), which is vLLM's order.

    `uniforms` is the row's noise in [0, 1), multiples of 2**-53: a function of (seed, choice,
    output position, purpose) alone. A token is drawn from the weights that filters leave by
    halving the range of ids [0, 2**L), L = ceil(log2(vocab)), L times: at level j, noise u_j
    enters the upper half if u_j * (weight of both halves) >= weight of the lower one, and a half
    of weight 0 never. u_j comes from Philox4x32-10 with key u * 2**53 and counter
    (j // 2, 0, 0, 1): (w0 >> 5) * 2**26 + (w1 >> 6), times 2**-53, of its words 0 and 1 where j
    is even, 2 and 3 where j is odd. So every op set draws the same, up to rounding near u_j.

    top_k <= 0, top_p >= 1 and min_p <= 0 are off; temperature 0 is greedy.
    """

    temperature: np.ndarray  # float32 [rows]
    top_k: np.ndarray  # int32 [rows]
    top_p: np.ndarray  # float64 [rows]: in float32, 0.3 is more than three of ten equal tokens
    min_p: np.ndarray  # float64 [rows]
    uniforms: np.ndarray  # float64 [rows]
    penalties: list[PenaltyRow] = field(default_factory=list)
    bias: list[tuple[int, np.ndarray, np.ndarray]] = field(default_factory=list)  # row, ids, adds
    allowed: list[tuple[int, np.ndarray]] = field(default_factory=list)  # row, ids
    banned: list[tuple[int, np.ndarray]] = field(default_factory=list)  # row, ids
    #: row, uint32 [ceil(vocab / 32)]: bit t % 32 of word t // 32 allows token t
    masks: list[tuple[int, np.ndarray]] = field(default_factory=list)


@dataclass(slots=True)
class SamplingOutputs:
    """`is_bad[i]`: row i held NaN or nothing that may be drawn; its token id is 0 then."""

    token_ids: np.ndarray  # int64 [rows]
    is_bad: np.ndarray  # bool [rows]


@dataclass(slots=True)
class LogprobInputs:
    """Which log-probabilities are wanted. Row i of `rows` reads logits row rows[i]."""

    rows: np.ndarray  # int64 [n]
    token_ids: np.ndarray  # int64 [n]: the chosen tokens
    num_top: np.ndarray  # int32 [n]: how many of the most probable; -1 = all


@dataclass(slots=True)
class LogprobOutputs:
    """The log-probabilities of each wanted row.

    Of the chosen token, with its rank (1 = best), and of the top tokens: best first, ties by
    lower id.
    """

    chosen: np.ndarray  # float32 [n]
    ranks: np.ndarray  # int64 [n]
    top_ids: list[np.ndarray]  # n x int64 [num_top[i]]
    top_logprobs: list[np.ndarray]  # n x float32 [num_top[i]]
