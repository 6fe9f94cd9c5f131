"""A workload on a real model in real time, and the same one simulated by what its steps cost.

Knows how both engines are built, so that all but the model is alike. Does not know how to print.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Self

from octavo.bench.arrivals import Arrival
from octavo.bench.costs import CostMeter
from octavo.bench.simulation import RealClock, simulate
from octavo.bench.summaries import summary
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
#: of measuring costs, before and again after
_ROUNDS: Final = 3
#: a request that is not counted: buffers are touched for the first time
_WARM_UP: Final = Arrival(0.0, list(range(10, 42)), 8)


class RealRun:
    """Owns an engine of the configured model. A context manager.

    `config` chooses the executor that simulates. Without a table in its options the costs of
    steps are measured on the model, half of them before the workload is played and half after it:
    machines that others use as well are not equally fast all the time.
    """

    def __init__(self, config: ResolvedConfig) -> None:
        """Load the model. Raises ConfigError, and the errors of loading."""
        if config.model.name is None:
            raise ConfigError(
                "there is nothing real to compare with: no model was named",
                "name one: octavo simulate smollm2 --against-real --rate 2 --num-prompts 40",
            )
        let_threads_sleep()
        self._config = config
        self._engine = build_engine(_with_executor(config, _resolved(config, "auto")))
        self._meter = CostMeter(self._engine)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the engine."""
        self._engine.close()

    @property
    def info(self) -> EngineInfo:
        """Return what the engine says of itself."""
        return self._engine.info

    def play(self, arrivals: Sequence[Arrival]) -> Simulation:
        """Play the workload on the model, in real time."""
        clock = RealClock()
        simulate(self._engine, clock, [_WARM_UP])
        self._measure()
        self._engine.reset_prefix_cache()
        result = simulate(self._engine, clock, arrivals)
        self._measure()
        return result

    def _measure(self) -> None:
        if not self._config.chosen["executor"].options:
            self._meter.sample(_ROUNDS)

    def play_simulated(self, arrivals: Sequence[Arrival]) -> Simulation:
        """Play the workload without the model, on as many blocks, after it was played with it."""
        with TemporaryDirectory(prefix="octavo-costs-") as folder:
            return self._play_simulated(arrivals, self._costed(Path(folder) / "costs.json"))

    def _costed(self, path: Path) -> ResolvedComponent:
        """Return the executor that simulates, with the costs that were measured."""
        chosen = self._config.chosen["executor"]
        if chosen.options:
            return chosen
        self._meter.table().write(path)
        return _resolved(self._config, {"use": chosen.name, "costs": str(path)})

    def _play_simulated(
        self, arrivals: Sequence[Arrival], simulated: ResolvedComponent
    ) -> Simulation:
        sizes = {
            "num_gpu_blocks_override": self._engine.core.allocator.counts().total,
            "max_model_len": self._engine.info.max_model_len,
        }
        config = _with_executor(self._config, simulated).with_changes(engine=sizes)
        executor = config.build("executor")
        clock = executor.clock()
        if clock is None:
            name = simulated.name
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
