"""What /metrics shows: counts of the engine's own, and times as the server's clients see them.

Each metric has two names: `octavo:NAME`, and vLLM's `vllm:NAME`, so that dashboards made for it
keep working. Knows counters and Prometheus. Does not know HTTP, text or how the engine counts.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from octavo.engine.messages import EngineStats

PREFIXES = ("octavo:", "vllm:")
FINISH_REASONS = ("stop", "length", "abort", "error")

_TTFT_BUCKETS_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_ITL_BUCKETS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
    5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_E2E_BUCKETS_S = (
    0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0,
    240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip

_TOKEN_BUCKETS = tuple(float(one * 10**power) for power in range(6) for one in (1, 2, 5))

#: name at the engine -> name at /metrics, what it counts
_COUNTERS = {
    "prompt_tokens": ("prompt_tokens", "prompt tokens computed"),
    "generated_tokens": ("generation_tokens", "tokens generated"),
    "preemptions": ("num_preemptions", "requests preempted for want of KV cache"),
    "prefix_queries_tokens": ("prefix_cache_queries", "prompt tokens looked up in the cache"),
    "prefix_hits_tokens": ("prefix_cache_hits", "prompt tokens found in the prefix cache"),
    "draft_tokens": ("spec_decode_num_draft_tokens", "tokens drafted and verified"),
    "accepted_tokens": ("spec_decode_num_accepted_tokens", "drafted tokens that were right"),
}
_GAUGES = {
    "num_running": ("num_requests_running", "sequences in the running batch"),
    "num_waiting": ("num_requests_waiting", "sequences that wait to run"),
    "kv_usage": ("kv_cache_usage_perc", "share of KV cache blocks in use; 1 is all of them"),
}
_HISTOGRAMS = {
    "time_to_first_token_seconds": ("from a request's arrival to its first token", _TTFT_BUCKETS_S),
    "inter_token_latency_seconds": ("from one token of a sequence to the next", _ITL_BUCKETS_S),
    "e2e_request_latency_seconds": ("from a request's arrival to its end", _E2E_BUCKETS_S),
    "request_decode_time_seconds": ("from a sequence's first token to its last", _E2E_BUCKETS_S),
    "request_time_per_output_token_seconds": (
        "mean time of a sequence's tokens after the first",
        _ITL_BUCKETS_S,
    ),
    "request_prompt_tokens": ("prompt tokens of a sequence", _TOKEN_BUCKETS),
    "request_generation_tokens": ("tokens generated for a sequence", _TOKEN_BUCKETS),
}


class Histogram:
    """Counts of observations by upper bound. `observe` costs a bisection."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Add an observation; a clock that stepped back counts as zero."""
        value = max(0.0, value)
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def cumulative(self) -> tuple[list[tuple[str, float]], float]:
        """Return Prometheus' buckets, each with all that is at most its bound, and the sum."""
        total = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        return buckets, self._sum


class ModelMetrics:
    """The counts of one served model. Counters never fall, also when its engine is replaced."""

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name
        self.is_up = False
        self.finished = dict.fromkeys(FINISH_REASONS, 0)
        self.histograms = {name: Histogram(bounds) for name, (_, bounds) in _HISTOGRAMS.items()}
        self._counters = dict.fromkeys(_COUNTERS, 0)
        self._last = dict.fromkeys(_COUNTERS, 0)
        self.gauges = dict.fromkeys(_GAUGES, 0.0)

    def first_token(self, seconds: float) -> None:
        """Note a sequence's time to its first token."""
        self.histograms["time_to_first_token_seconds"].observe(seconds)

    def next_tokens(self, seconds: float, num_tokens: int) -> None:
        """Note that a sequence got more tokens so long after its last ones."""
        gap_s = seconds / num_tokens
        self.histograms["inter_token_latency_seconds"].observe(gap_s, num_tokens)

    def sequence_finished(self, reason: str, seconds: float) -> None:
        """Note the end of a sequence, and how long after its arrival that was."""
        self.finished[reason] = self.finished.get(reason, 0) + 1
        self.histograms["e2e_request_latency_seconds"].observe(seconds)

    def sequence_measured(self, num_prompt: int, num_output: int, decode_s: float) -> None:
        """Note the tokens of a sequence that ended by itself, and the time from first to last."""
        found = self.histograms
        found["request_prompt_tokens"].observe(num_prompt)
        found["request_generation_tokens"].observe(num_output)
        found["request_decode_time_seconds"].observe(decode_s)
        if num_output > 1:
            found["request_time_per_output_token_seconds"].observe(decode_s / (num_output - 1))

    def take_stats(self, stats: EngineStats | None) -> None:
        """Take the engine's snapshot; None when there is no engine now."""
        self.is_up = stats is not None
        for name in _GAUGES:
            value = 0.0 if stats is None else float(getattr(stats, name))
            self.gauges[name] = max(0.0, value)
        if stats is None:
            return
        for name in _COUNTERS:
            count = int(getattr(stats, name))
            # a count below the last one is that of another engine, which began at zero
            last = self._last[name] if count >= self._last[name] else 0
            self._counters[name] += count - last
            self._last[name] = count

    def counter(self, name: str) -> int:
        """Return a counter by the engine's name for it."""
        return self._counters[name]


class ServerMetrics(Collector):
    """All served models, as Prometheus sees them, in a registry of its own."""

    def __init__(self, models: Iterable[ModelMetrics]) -> None:
        self._models = tuple(models)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def exposition(self) -> bytes:
        """Return the text that a scrape gets."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric under both names."""
        for prefix in PREFIXES:
            yield from self._gauges(prefix)
            yield from self._counters(prefix)
            yield from self._histograms(prefix)

    def _gauges(self, prefix: str) -> Iterator[Metric]:
        for key, (name, text) in _GAUGES.items():
            gauge = GaugeMetricFamily(prefix + name, text, labels=_LABELS)
            for model in self._models:
                gauge.add_metric(_labels(model), model.gauges[key])
            yield gauge
        if prefix == PREFIXES[0]:
            up = GaugeMetricFamily(f"{prefix}engine_up", "1 when the engine runs", labels=_LABELS)
            for model in self._models:
                up.add_metric(_labels(model), float(model.is_up))
            yield up

    def _counters(self, prefix: str) -> Iterator[Metric]:
        for key, (name, text) in _COUNTERS.items():
            counter = CounterMetricFamily(prefix + name, text, labels=_LABELS)
            for model in self._models:
                counter.add_metric(_labels(model), model.counter(key))
            yield counter
        success = CounterMetricFamily(
            f"{prefix}request_success",
            "sequences that ended, by reason",
            labels=(*_LABELS, "finished_reason"),
        )
        for model in self._models:
            for reason, count in model.finished.items():
                success.add_metric([*_labels(model), reason], count)
        yield success

    def _histograms(self, prefix: str) -> Iterator[Metric]:
        for name, (text, _) in _HISTOGRAMS.items():
            family = HistogramMetricFamily(prefix + name, text, labels=_LABELS)
            for model in self._models:
                buckets, total = model.histograms[name].cumulative()
                family.add_metric(_labels(model), buckets, total)
            yield family


_LABELS = ("model_name", "engine")


def _labels(model: ModelMetrics) -> list[str]:
    return [model.model_name, "0"]
