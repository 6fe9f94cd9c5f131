"""The architecture kind: a model family, from config to forward pass.

Calls only the ops and the attention it is handed, writes only into the step's buffers. Does not
know requests, sampling, file formats or which op set it runs on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from octavo.interfaces.attention import Attention, AttentionBatch, CacheSpec, StateSpec
    from octavo.interfaces.ops import Count, OpSet


@dataclass(frozen=True, slots=True)
class RotaryConfig:
    """Rotary embedding as Hugging Face configs describe it (`rope_parameters`/`rope_scaling`).

    `scaling` holds the raw mapping (`rope_type`, `factor`, ...); `frequency_factors` divides the
    inverse frequencies one by one (GGUF `rope_freqs.weight`).
    """

    head_dim: int
    theta: float
    scaling: Mapping[str, Any] = field(default_factory=dict)
    partial_factor: float = 1.0
    original_max_positions: int | None = None
    frequency_factors: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """One parameter: which checkpoint tensors make it, joined along the first dimension.

    `shapes` are the expected shapes of the sources, one each. `is_optional`: may be absent
    altogether (a bias), all sources or none.
    """

    name: str
    kind: Literal["linear", "embedding", "vector"]
    sources: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    is_optional: bool = False
    #: how the sources are split between ranks: by rows (outputs), by columns (inputs), or not
    split: Literal["none", "rows", "columns"] = "none"
    #: added to each value of a vector, for families whose files hold norms less one
    offset: float = 0.0


@dataclass(slots=True)
class StepBuffers:
    """The persistent buffers of a step, which every forward pass reads and writes.

    `logit_rows[i]` is the flat token whose logits go to row i of `logits`.
    """

    num_tokens: Count
    num_rows: Count
    token_ids: Tensor  # int64 [max_tokens]
    positions: Tensor  # int64 [max_tokens]
    hidden: Tensor  # [max_tokens, hidden]: the final, normalised hidden states
    logit_rows: Tensor  # int64 [max_rows]
    logits: Tensor  # [max_rows, vocab]
    groups: list[AttentionBatch]  # one per group of layers with equal reach
    batches: list[AttentionBatch]  # one per layer: its group's
    caches: list[Any]  # one per layer

    @property
    def attention(self) -> AttentionBatch:
        """Return the batch of the first group: the only one of most models."""
        return self.groups[0]


class Architecture(ABC):
    """A model family.

    M1  parity with transformers on tiny random configs.
    M2  every checkpoint tensor is used once, every parameter is written once; what is missing,
        misshapen or left over is told by its name.
    M3  prefill(n + m) = prefill(n), then m decodes.
    M4  a forward pass calls only the handed ops and attention, and writes into step buffers: a
        step that was recorded and is replayed has the same bits.
    M5  a config that it cannot serve is refused with ModelLoadError, which names the key.
    M6  logits of a token depend on its own sequence alone, whatever else is in the batch.
    M7  two models share nothing, and a config is only read.
    """

    #: False when a forward pass decides anything by what its buffers hold
    is_recordable: bool = True
    #: names in a config's `architectures` that this class serves
    served: tuple[str, ...] = ()
    #: fnmatch patterns of checkpoint tensors that may be ignored in silence
    ignored: tuple[str, ...] = ("*.rotary_emb.inv_freq", "rope_freqs.weight")

    def __init__(self, config: Mapping[str, Any], ops: OpSet, attention: Attention) -> None:
        self.config = config
        self.ops = ops
        self.attention = attention
        self.weights: dict[str, Any] = {}

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Return the number of logits."""

    @property
    @abstractmethod
    def hidden_size(self) -> int:
        """Return the width of a hidden state."""

    @property
    @abstractmethod
    def max_positions(self) -> int:
        """Return the longest context that config and rope scaling allow."""

    @abstractmethod
    def parameters(self) -> Sequence[ParameterSpec]:
        """Return all parameters. The loader packs them into `self.weights[spec.name]`."""

    @abstractmethod
    def cache_specs(self) -> Sequence[CacheSpec | StateSpec]:
        """Return what each layer caches."""

    @abstractmethod
    def prepare(self, max_tokens: int, max_rows: int, max_positions: int) -> None:
        """Allocate the step's working buffers and tables. Called once, after loading."""

    @abstractmethod
    def forward(self, step: StepBuffers) -> None:
        """From step.token_ids to step.hidden, through all layers."""

    @abstractmethod
    def project(self, out: Tensor, hidden: Tensor, rows: Count) -> None:
        """Set out = head(hidden).  hidden: [cap, hidden], out: [cap, vocab]."""

    @abstractmethod
    def logits(self, step: StepBuffers) -> None:
        """Gather step.hidden at step.logit_rows and project into step.logits."""
