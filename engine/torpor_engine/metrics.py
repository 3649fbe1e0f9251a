"""What GET /metrics shows: vLLM's names, types and labels, so that its boards and scalers work.

Names of what is not here are left out: images (mm_cache_*) and caches outside of the replica
(external_prefix_cache_*, and the sources of tokens that go with them).

Gauges and totals are read from the core's last statistics when somebody asks; only latencies are
collected here as they happen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from torpor_engine.batch_histogram import BatchHistogram
from torpor_protocol.config import CacheConfig
from torpor_protocol.requests import EngineState, EngineStats

# fmt: off
TTFT_SECONDS = (
    .001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160,
    640, 2560,
)
TOKEN_SECONDS = (
    .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
)
REQUEST_SECONDS = (
    .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
)
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
SLEEP_SECONDS = (.01, .1, 1, 10, 30, 60, 120, 300, 600)
# fmt: on
_SLEEP_STATES = ("awake", "weights_offloaded", "discard_all")


class StatsSource(Protocol):
    def state(self) -> EngineState: ...

    def stats(self) -> EngineStats: ...


class Metrics(Collector):
    """One per server. ``model_name``: the first served name; ``engine``: the replica's number."""

    def __init__(
        self, model_name: str, source: StatsSource, cache: CacheConfig, engine: str = "0"
    ) -> None:
        self._source = source
        self._cache = cache
        self._labels = {"model_name": model_name, "engine": engine}
        self._success: Counter[str] = Counter()
        self._rejections: Counter[str] = Counter()
        self._seen = (-1.0, -1.0)
        self._totals = (0, 0)
        self.registry = CollectorRegistry()
        self.time_to_first_token = self._histogram("time_to_first_token_seconds", TTFT_SECONDS)
        self.inter_token_latency = self._histogram("inter_token_latency_seconds", TOKEN_SECONDS)
        self.request_latency = self._histogram("e2e_request_latency_seconds", REQUEST_SECONDS)
        self.queue_time = self._histogram("request_queue_time_seconds", REQUEST_SECONDS)
        self._iteration_tokens = self._histogram("iteration_tokens_total", STEP_TOKENS)
        self._sleep_seconds = BatchHistogram(
            "vllm:sleep_mode_operation_duration_seconds",
            "Seconds that falling asleep and waking took.",
            SLEEP_SECONDS,
            {},
            extra="operation",
        )
        self.registry.register(self._sleep_seconds)
        self.registry.register(self)

    def step(self, tokens: int, gaps: Mapping[float, int], now: float) -> None:
        """One step's tokens; ``gaps``: time of the token before (0 = none) -> tokens after it."""
        for before, count in gaps.items():
            if before:
                self.inter_token_latency.observe(now - before, count)
        stats = self._source.stats()
        prompt = max(stats.prompt_tokens - self._totals[0], 0)
        self._totals = (stats.prompt_tokens, stats.generation_tokens)
        self._iteration_tokens.observe(tokens + prompt)

    def finished(self, reason: str, seconds: float) -> None:
        """A choice ended; ``reason``: stop, length, abort or error."""
        self._success[reason] += 1
        self.request_latency.observe(seconds)

    def rejected(self, reason: str) -> None:
        self._rejections[reason] += 1

    def watch_sleep(self, state: EngineState) -> None:
        """Note a sleep or a wake that has ended, whoever asked for it."""
        seen = (state.last_sleep_seconds, state.last_wake_seconds)
        for operation, before, seconds in zip(("sleep", "wake"), self._seen, seen, strict=True):
            if seconds >= 0 and seconds != before:
                self._sleep_seconds.observe(seconds, extra=operation)
        self._seen = seen

    def render(self) -> bytes:
        """The text format, version 0.0.4."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        stats, state = self._source.stats(), self._source.state()
        yield self._gauge("num_requests_running", "Requests being computed.", stats.running)
        yield self._gauge("num_requests_waiting", "Requests in the queue.", stats.waiting)
        yield self._waiting_by_reason(stats)
        yield self._gauge("kv_cache_usage_perc", "KV cache in use, 0 to 1.", stats.kv_cache_usage)
        yield self._counter("prefix_cache_queries", "Tokens looked up.", stats.prefix_queries)
        yield self._counter("prefix_cache_hits", "Tokens found in cache.", stats.prefix_hits)
        yield self._counter("num_preemptions", "Requests put back.", stats.preemptions)
        yield self._counter("prompt_tokens", "Tokens of prompts.", stats.prompt_tokens)
        yield self._counter("prompt_tokens_cached", "Those found in cache.", stats.cached_tokens)
        yield from self._prompt_tokens_by_source(stats)
        yield self._counter("generation_tokens", "Tokens made.", stats.generation_tokens)
        yield self._counts("request_success", "finished_reason", self._success, self._labels)
        model = {"model_name": self._labels["model_name"]}
        yield self._counts("admission_rejections", "reason", self._rejections, model)
        yield self._sleep_state(state)
        yield self._cache_info(state)

    def _histogram(self, name: str, bounds: tuple[float, ...]) -> BatchHistogram:
        text = name.replace("_", " ").capitalize() + "."
        histogram = BatchHistogram(f"vllm:{name}", text, bounds, self._labels)
        self.registry.register(histogram)
        return histogram

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _waiting_by_reason(self, stats: EngineStats) -> Metric:
        reasons = {"capacity": stats.waiting - stats.deferred, "deferred": stats.deferred}
        text = "Requests in the queue, by reason."
        return self._gauges("num_requests_waiting_by_reason", text, "reason", reasons)

    def _prompt_tokens_by_source(self, stats: EngineStats) -> Iterator[Metric]:
        """The one cache is that of the ranks, which vLLM calls the device's."""
        cached = stats.cached_tokens
        sources = {"local_compute": stats.prompt_tokens - cached, "local_cache_hit": cached}
        yield self._counts("prompt_tokens_by_source", "source", sources, self._labels)
        device = {"device": cached}
        yield self._counts("prompt_tokens_cached_by_source", "source", device, self._labels)

    def _counts(
        self, name: str, label: str, counts: Mapping[str, int], labels: dict[str, str]
    ) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", f"By {label}.", labels=[*labels, label])
        for value, count in sorted(counts.items()):
            family.add_metric([*labels.values(), value], count)
        return family

    def _sleep_state(self, state: EngineState) -> Metric:
        current = _SLEEP_STATES[min(state.level, 2)] if state.asleep else _SLEEP_STATES[0]
        states = {name: float(name == current) for name in _SLEEP_STATES}
        return self._gauges("engine_sleep_state", "1 for the current.", "sleep_state", states)

    def _gauges(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", text, labels=[*self._labels, label])
        for value, number in values.items():
            family.add_metric([*self._labels.values(), value], number)
        return family

    def _cache_info(self, state: EngineState) -> Metric:
        info = {
            **self._labels,
            "block_size": str(state.block_size or self._cache.block_size),
            "num_gpu_blocks": str(state.kv_blocks),
            "enable_prefix_caching": str(self._cache.prefix_caching),
            "kv_cache_memory_bytes": str(self._cache.kv_cache_memory),
        }
        family = GaugeMetricFamily("vllm:cache_config_info", "The KV cache.", labels=list(info))
        family.add_metric(list(info.values()), 1)
        return family
