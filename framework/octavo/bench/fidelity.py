"""A workload on a real model in real time, and the same one simulated by what its steps cost.

Knows how both engines are built, so that all but the model is alike. Does not know how to print.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Self

from octavo.bench.arrivals import Arrival
from octavo.bench.costs import CostMeter
from octavo.bench.simulation import RealClock, simulate, summary
from octavo.config.resolve import resolve
from octavo.engine.build import build_engine
from octavo.errors import ConfigError
from octavo.openmp import let_threads_sleep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from octavo.bench.simulation import Simulation
    from octavo.config.resolved import ResolvedComponent, ResolvedConfig
    from octavo.engine.messages import EngineInfo

#: what is compared of two runs, and which numbers of each
METRICS: Final = ("ttft_ms", "itl_ms", "tpot_ms", "latency_ms")
STATISTICS: Final = ("mean", "p95")
#: a request that is not counted: buffers are touched for the first time
_WARM_UP: Final = Arrival(0.0, list(range(10, 42)), 8)


class RealRun:
    """Owns an engine of the configured model. A context manager.

    `config` chooses the executor that simulates. Without a table in its options the costs of
    steps are measured here and now, on an engine of their own.
    """

    def __init__(self, config: ResolvedConfig) -> None:
        """Measure the costs and load the model. Raises ConfigError, and the errors of loading."""
        if config.model.name is None:
            raise ConfigError(
                "there is nothing real to compare with: no model was named",
                "name one: octavo simulate smollm2 --against-real --rate 2 --num-prompts 40",
            )
        let_threads_sleep()
        self._config = config
        self._folder = TemporaryDirectory(prefix="octavo-costs-")
        real = _with_executor(config, _resolved(config, "auto"))
        self._simulated = config.chosen["executor"]
        if not self._simulated.options:
            costs = _measure_costs(real, Path(self._folder.name) / "costs.json")
            self._simulated = _resolved(config, {"use": self._simulated.name, "costs": str(costs)})
        self._engine = build_engine(real)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the engine."""
        self._engine.close()
        self._folder.cleanup()

    @property
    def info(self) -> EngineInfo:
        """Return what the engine says of itself."""
        return self._engine.info

    def play(self, arrivals: Sequence[Arrival]) -> Simulation:
        """Play the workload on the model, in real time."""
        clock = RealClock()
        simulate(self._engine, clock, [_WARM_UP])
        self._engine.reset_prefix_cache()
        return simulate(self._engine, clock, arrivals)

    def play_simulated(self, arrivals: Sequence[Arrival]) -> Simulation:
        """Play the workload without the model, on as many blocks."""
        sizes = {
            "num_gpu_blocks_override": self._engine.core.allocator.counts().total,
            "max_model_len": self._engine.info.max_model_len,
        }
        config = _with_executor(self._config, self._simulated).with_changes(engine=sizes)
        executor = config.build("executor")
        clock = executor.clock()
        if clock is None:
            name = self._simulated.name
            raise ConfigError(f"the executor '{name}' has no time of its own (--executor)")
        engine = build_engine(config, executor)
        try:
            return simulate(engine, clock, arrivals)
        finally:
            engine.close()


def errors(real: Simulation, simulated: Simulation) -> dict[str, dict[str, float]]:
    """Return by how much simulated means and percentiles differ, as shares of the real ones."""
    found: dict[str, dict[str, float]] = {}
    for metric in METRICS:
        truth, guess = (summary(getattr(one, metric)()) for one in (real, simulated))
        if truth and guess:
            found[metric] = {name: guess[name] / truth[name] - 1 for name in STATISTICS}
    return found


def _resolved(config: ResolvedConfig, executor: str | Mapping[str, str]) -> ResolvedComponent:
    overrides = {"model": config.model.name, "executor": executor}
    return resolve(overrides=overrides).chosen["executor"]


def _with_executor(config: ResolvedConfig, executor: ResolvedComponent) -> ResolvedConfig:
    return config.model_copy(update={"chosen": {**config.chosen, "executor": executor}})


def _measure_costs(config: ResolvedConfig, path: Path) -> Path:
    """Write what steps cost, measured on an engine whose steps nothing bounds or shortens."""
    free = {"max_step_ms": None, "enable_prefix_caching": False}
    engine = build_engine(config.with_changes(engine=free))
    try:
        CostMeter(engine).measure().write(path)
    finally:
        engine.close()
    return path
