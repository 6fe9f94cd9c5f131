"""Runs no model: a step takes what a table says, on a clock of its own, and yields made-up tokens.

Scheduling, chunks, preemption, prefix caching and drafts are all real; so are lengths, as a
request never stops before its last token. A day of traffic takes minutes.

Knows plans and costs. Does not know the machine's clock, weights or text.
"""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from octavo.engine.plan import RowError, StepResult
from octavo.errors import ConfigError, GrammarError
from octavo.execution.cost_table import CostTable
from octavo.interfaces.adapter import AdapterSpec
from octavo.interfaces.executor import CacheGroup, Executor, ExecutorFacts, StepCosts
from octavo.model_files import describe_model, locate_model
from octavo.plugin.options import ComponentOptions, deprecated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from octavo.config.resolved import ResolvedConfig
    from octavo.engine.plan import RowAdvance, RowStart, StepPlan
    from octavo.interfaces.executor import Resource

_MASK: Final = (1 << 64) - 1
#: of the hash FNV-1a (Fowler, Noll, Vo), over whole tokens
_OFFSET, _PRIME = 0xCBF29CE484222325, 0x100000001B3
#: what a model has that nobody has named
_VOCAB_SIZE: Final = 32_000
_MODEL_LEN: Final = 8192
_NO_LOGITS: Final = (
    "a simulated model has no logits: no logprobs, processors or grammars, and no embeddings"
)


class SimulatedOptions(ComponentOptions):
    """Options of `simulated`: a table of costs, or numbers in its place."""

    costs: Path | None = Field(None, description="table written by `octavo bench costs`")
    fixed_ms: float | None = Field(None, gt=0, description="milliseconds of every step")
    per_token_ms: float = Field(0.0, ge=0, description="milliseconds of each token of a step")
    per_context_ms: float = Field(
        0.0, ge=0, description="milliseconds of each pair of a token and a position before it"
    )
    per_sequence_ms: float = Field(
        0.0, ge=0, description="milliseconds of each sequence of a step after the first"
    )
    num_blocks: int = Field(
        4096,
        ge=2,
        description="blocks of KV cache; num-gpu-blocks-override goes before",
        json_schema_extra=deprecated("say num-gpu-blocks-override, as for every executor"),
    )
    vocab_size: int | None = Field(
        None, ge=8, description=f"default: the named model's, or else {_VOCAB_SIZE}"
    )
    max_model_len: int | None = Field(
        None,
        ge=1,
        description=f"longest sequence; default: the named model's, or else {_MODEL_LEN}",
    )


class VirtualClock:
    """Seconds that pass only when somebody lets them."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let so much time pass."""
        self.now_s += max(0.0, seconds)


class _Row:
    """A running request: a hash over all its tokens, which says what comes next."""

    __slots__ = ("_barred", "_seed", "_state", "error")

    def __init__(self, start: RowStart) -> None:
        spec, params = start.spec, start.spec.params
        # the noise of a request that is not greedy depends on its seed and choice
        self._seed = 0 if params.temperature == 0 else hash_of((spec.seed & _MASK, spec.choice))
        self._barred = frozenset(spec.eos_token_ids) | frozenset(params.stop_token_ids or ())
        self._state = hash_of(start.token_ids)
        asks_logits = params.logprobs is not None or params.prompt_logprobs is not None
        has_error = asks_logits or params.logits_processors or spec.pooling
        self.error = RowError(_NO_LOGITS, is_refused=True) if has_error else None

    def next_token(self, vocab_size: int) -> int:
        """Return the token after those so far, and append it. It ends no request."""
        mixed = ((self._state ^ self._seed) * _PRIME) & _MASK
        token_id = (mixed ^ mixed >> 32) % vocab_size
        while token_id in self._barred:
            token_id = (token_id + 1) % vocab_size
        self._state = ((self._state ^ token_id) * _PRIME) & _MASK  # as `hash_of` goes on
        return token_id


class SimulatedExecutor(Executor):
    """A model that costs what a table says. Options: `SimulatedOptions`."""

    Options = SimulatedOptions

    def __init__(self, options: SimulatedOptions | None = None) -> None:
        super().__init__(options)
        self._options = options or SimulatedOptions()
        self._clock = VirtualClock()
        self._busy_until_s = 0.0
        self._table = CostTable(StepCosts.linear(0.0, 0.0))
        self._vocab_size = _VOCAB_SIZE
        self._rows: dict[int, _Row] = {}

    def start(self, config: ResolvedConfig) -> ExecutorFacts:
        """Read the table, and of a named model's config its sizes. Raises ConfigError."""
        options, settings = self._options, config.engine
        self._table = table_of(options)
        sizes: dict[str, Any] = {}
        if config.model.name is not None:
            sizes = dict(describe_model(config, locate_model(config)).config)
        self._vocab_size = options.vocab_size or sizes.get("vocab_size") or _VOCAB_SIZE
        longest = sizes.get("max_position_embeddings") or _MODEL_LEN
        return ExecutorFacts(
            (settings.num_gpu_blocks_override or options.num_blocks) + 1,
            settings.max_model_len or options.max_model_len or longest,
            self._vocab_size,
            self._table.costs,
            groups=(CacheGroup(),),
            max_logit_rows=settings.max_num_seqs + settings.max_num_batched_tokens,
        )

    def clock(self) -> VirtualClock:
        """Return the clock on which steps take their time."""
        return self._clock

    def submit(self, plan: StepPlan) -> SimulatedStep:
        """Begin a step as soon as those before it are over."""
        result = self._run(plan)
        start_s = max(self._clock(), self._busy_until_s)
        self._busy_until_s = start_s + self._table.predict_ms(plan) / 1000
        return SimulatedStep(self._clock, self._busy_until_s, result)

    def _run(self, plan: StepPlan) -> StepResult:
        for number in (*plan.ends, *plan.pauses):
            del self._rows[number]
        for start in plan.starts:
            self._rows[start.row] = _Row(start)
        token_ids: list[tuple[int, ...]] = []
        result = StepResult(plan.step, token_ids)
        rows, vocab_size = self._rows, self._vocab_size
        for index, advance in enumerate(plan.advances):
            row = rows[advance.row]
            if row.error is not None:
                result.errors[index] = row.error
                token_ids.append(())
            elif not advance.is_sampling:
                token_ids.append(())
            elif advance.drafts:
                token_ids.append(self._accept(row, advance))
            else:
                token_ids.append((row.next_token(vocab_size),))
        return result

    def _accept(self, row: _Row, advance: RowAdvance) -> tuple[int, ...]:
        """Return the row's tokens as far as the drafts agree, and the one after."""
        accepted = [row.next_token(self._vocab_size)]
        for draft in advance.drafts:
            if draft != accepted[-1]:
                break
            accepted.append(row.next_token(self._vocab_size))
        return tuple(accepted)

    def prepare(self, resource: Resource) -> Future[str]:
        """Take any adapter for what its name and path say; no grammar can be held to."""
        future: Future[str] = Future()
        if isinstance(resource, AdapterSpec):
            future.set_result(f"{resource.name} {resource.path}")
        else:
            future.set_exception(GrammarError(_NO_LOGITS))
        return future

    def close(self) -> None:
        """Forget the rows."""
        self._rows.clear()


class SimulatedStep:
    """A step that is over at a given time."""

    __slots__ = ("_clock", "_end_s", "_result")

    def __init__(self, clock: VirtualClock, end_s: float, result: StepResult) -> None:
        self._clock, self._end_s, self._result = clock, end_s, result

    def is_done(self) -> bool:
        """Return whether the step is over by now."""
        return self._clock() >= self._end_s

    def result(self) -> StepResult:
        """Let time pass until the step is over, and return its result."""
        self._clock.sleep(self._end_s - self._clock())
        return self._result


def table_of(options: SimulatedOptions) -> CostTable:
    """Return the costs that options ask for. Raises ConfigError unless there are some."""
    if (options.costs is None) == (options.fixed_ms is None):
        raise ConfigError(
            "the executor 'simulated' needs to know what steps cost, in one way",
            "a table: --executor.costs FILE, written by `octavo bench costs MODEL --output FILE`",
            "or numbers: --executor.fixed-ms 20 --executor.per-token-ms 0.5",
        )
    if options.costs is not None:
        return CostTable.read(options.costs)
    fixed_ms = options.fixed_ms or 0.0
    costs = StepCosts(((0, fixed_ms), (1, fixed_ms + options.per_token_ms)), options.per_context_ms)
    return CostTable(costs, options.per_sequence_ms)


def hash_of(numbers: Iterable[int], state: int = _OFFSET) -> int:
    """Return a hash of numbers that follow those of an earlier hash."""
    for number in numbers:
        state = ((state ^ number) * _PRIME) & _MASK
    return state
