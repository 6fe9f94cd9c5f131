"""What requests need beside the model: grammars and adapters, made ready and given to rows.

Knows which store serves which resource. Does not know what either does with it.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

from octavo.errors import AdapterError, GrammarError
from octavo.execution.reasoning import ReasoningRow
from octavo.interfaces.adapter import AdapterSpec
from octavo.interfaces.grammar import GrammarSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.engine.plan import RowAdvance, RowSpec
    from octavo.execution.adapters import AdapterStore
    from octavo.execution.batching import FlatBatch
    from octavo.execution.grammars import GrammarStore
    from octavo.execution.reasoning import Guide
    from octavo.interfaces.executor import Resource


class Resources:
    """The stores of one model; without a store its resources are refused."""

    def __init__(
        self, grammars: GrammarStore | None = None, adapters: AdapterStore | None = None
    ) -> None:
        self._grammars = grammars
        self._adapters = adapters

    def prepare(self, resource: Resource) -> Future[str]:
        """Make a resource ready, as `Executor.prepare`; the future has the error of a refusal."""
        match resource:
            case GrammarSpec() if self._grammars is not None:
                return self._grammars.prepare(resource)
            case AdapterSpec() if self._adapters is not None:
                return self._adapters.prepare(resource)
        refused: Future[str] = Future()
        if isinstance(resource, AdapterSpec):
            refused.set_exception(
                AdapterError(
                    "this engine was started without adapters",
                    "start it with enable-lora",
                    param="lora_request",
                )
            )
        else:
            refused.set_exception(GrammarError("this model was loaded without grammars"))
        return refused

    def discard(self, resource: Resource) -> None:
        """Forget a resource as soon as no row needs it."""
        if isinstance(resource, AdapterSpec) and self._adapters is not None:
            self._adapters.discard(resource)

    def start(self, row: int, spec: RowSpec, token_ids: Sequence[int]) -> Guide | None:
        """Give a row what its request needs. Returns what says which tokens may come, if any."""
        if self._adapters is not None:
            self._adapters.start(row, spec.adapters)
        if self._grammars is None:
            return None
        grammar = None if spec.grammar is None else self._grammars.start(spec)
        guide: Guide | None = grammar
        if spec.reasoning is not None:
            guide = ReasoningRow(spec, grammar, self._grammars.vocab_size)
        if guide is not None:
            guide.commit(token_ids[spec.num_prompt_tokens :])
        return guide

    def end(self, row: int) -> None:
        """Take from a row what its request had."""
        if self._adapters is not None:
            self._adapters.end(row)

    def fill(self, batch: FlatBatch, advances: Sequence[RowAdvance]) -> dict[int, str]:
        """Say for a step which tokens are changed by which adapters.

        Returns by index of the advance why it must fail.
        """
        return {} if self._adapters is None else self._adapters.fill(batch, advances)

    def close(self) -> None:
        """End what prepares resources; twice is fine."""
        if self._grammars is not None:
            self._grammars.close()
        if self._adapters is not None:
            self._adapters.close()
