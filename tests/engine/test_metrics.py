"""Metrics: vLLM's names, types and labels, and numbers that are right."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from api_server import MODEL, ApiServer, api_server, tiny_tokenizer
from fake_core import FakeCore, hashed, says
from raw_http import connected, post
from torpor_engine.batch_histogram import BatchHistogram
from torpor_engine.metrics import Metrics
from torpor_protocol.config import CacheConfig
from torpor_protocol.requests import EngineState, EngineStats, Started, StepOutputs

REPLICA = {"model_name": MODEL, "engine": "0"}
# Name on the wire: type, and the labels beside those of the replica.
CONTRACT = {
    "vllm:num_requests_running": ("gauge", set()),
    "vllm:num_requests_waiting": ("gauge", set()),
    "vllm:num_requests_waiting_by_reason": ("gauge", {"reason"}),
    "vllm:kv_cache_usage_perc": ("gauge", set()),
    "vllm:engine_sleep_state": ("gauge", {"sleep_state"}),
    "vllm:prefix_cache_queries": ("counter", set()),
    "vllm:prefix_cache_hits": ("counter", set()),
    "vllm:num_preemptions": ("counter", set()),
    "vllm:prompt_tokens": ("counter", set()),
    "vllm:prompt_tokens_cached": ("counter", set()),
    "vllm:prompt_tokens_by_source": ("counter", {"source"}),
    "vllm:prompt_tokens_cached_by_source": ("counter", {"source"}),
    "vllm:generation_tokens": ("counter", set()),
    "vllm:request_success": ("counter", {"finished_reason"}),
    "vllm:time_to_first_token_seconds": ("histogram", set()),
    "vllm:inter_token_latency_seconds": ("histogram", set()),
    "vllm:e2e_request_latency_seconds": ("histogram", set()),
    "vllm:request_queue_time_seconds": ("histogram", set()),
    "vllm:iteration_tokens_total": ("histogram", set()),
    "vllm:cache_config_info": ("gauge", {"block_size", "num_gpu_blocks"}),
}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server() as running:
        yield running


def scrape(text: bytes) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text.decode())}


def value(families: dict[str, Metric], sample: str, **labels: str) -> float:
    found = [
        entry.value
        for family in families.values()
        for entry in family.samples
        if entry.name == sample and labels.items() <= entry.labels.items()
    ]
    assert len(found) == 1, (sample, labels, found)
    return float(found[0])


def test_names_types_and_labels(server: ApiServer) -> None:
    server.post("/v1/completions", {"prompt": "x", "max_tokens": 3})
    answer = server.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = scrape(answer.body)
    for name, (kind, extra) in CONTRACT.items():
        family = families[name]
        assert family.type == kind, name
        assert family.documentation
        for sample in family.samples:
            assert REPLICA.items() <= sample.labels.items(), sample
            assert extra <= sample.labels.keys(), sample
            assert not sample.name.endswith("_created")


def test_rejections_and_sleep_have_labels_of_their_own(server: ApiServer) -> None:
    server.admin("POST", "/sleep?level=2")
    server.admin("POST", "/wake_up")
    server.admin("POST", "/drain")
    server.post("/v1/completions", {"prompt": "x"})
    families = scrape(server.get("/metrics").body)
    [rejection] = families["vllm:admission_rejections"].samples
    assert rejection.labels == {"model_name": MODEL, "reason": "shutting_down"}
    name = "vllm:sleep_mode_operation_duration_seconds"
    for operation, seconds in (("sleep", 0.5), ("wake", 0.25)):
        assert value(families, f"{name}_count", operation=operation) == 1
        assert value(families, f"{name}_sum", operation=operation) == seconds
    assert all("model_name" not in sample.labels for sample in families[name].samples)


@pytest.mark.parametrize(
    ("level", "state"), [(0, "awake"), (1, "weights_offloaded"), (2, "discard_all")]
)
def test_sleep_state(server: ApiServer, level: int, state: str) -> None:
    if level:
        server.admin("POST", f"/sleep?level={level}")
    families = scrape(server.get("/metrics").body)
    shown = {s.labels["sleep_state"]: s.value for s in families["vllm:engine_sleep_state"].samples}
    assert shown == {
        name: float(name == state) for name in ("awake", "weights_offloaded", "discard_all")
    }


def test_what_requests_leave(server: ApiServer) -> None:
    server.core.script = hashed
    server.post("/v1/completions", {"prompt": "x", "max_tokens": 5, "n": 2, "stream": True})
    server.core.script = says(tiny_tokenizer().encode("the end"))
    server.post("/v1/completions", {"prompt": "x", "max_tokens": 50})
    server.core.paused = True
    with connected(server.url) as connection:
        connection.sendall(post("/v1/completions", {"prompt": "x"}))
        server.until(lambda: server.context.admission.unfinished == 1)
    server.until(lambda: server.context.admission.unfinished == 0)
    families = scrape(server.get("/metrics").body)
    answer_tokens = len(tiny_tokenizer().encode("the end"))
    for reason, count in (("length", 2), ("stop", 1), ("abort", 1)):
        assert value(families, "vllm:request_success_total", finished_reason=reason) == count
    assert value(families, "vllm:time_to_first_token_seconds_count") == 3
    assert value(families, "vllm:request_queue_time_seconds_count") == 3
    assert value(families, "vllm:e2e_request_latency_seconds_count") == 4
    assert value(families, "vllm:inter_token_latency_seconds_count") == 2 * 4 + answer_tokens - 1
    assert value(families, "vllm:generation_tokens_total") == 10 + answer_tokens
    assert value(families, "vllm:iteration_tokens_total_sum") == 10 + answer_tokens


class Source:
    """The core's last words, as a test wants them."""

    def __init__(self) -> None:
        self.known = EngineState(lifecycle="Awake")
        self.numbers = EngineStats()

    def state(self) -> EngineState:
        return self.known

    def stats(self) -> EngineStats:
        return self.numbers


def test_numbers_of_the_core() -> None:
    source = Source()
    source.numbers = EngineStats(
        running=3,
        waiting=7,
        kv_cache_usage=0.25,
        prefix_queries=100,
        prefix_hits=40,
        preemptions=2,
        prompt_tokens=60,
        generation_tokens=11,
    )
    source.known = EngineState(lifecycle="Awake", kv_blocks=99, block_size=32)
    families = scrape(Metrics("m", source, CacheConfig()).render())
    expected = {
        "vllm:num_requests_running": 3,
        "vllm:num_requests_waiting": 7,
        "vllm:kv_cache_usage_perc": 0.25,
        "vllm:prefix_cache_queries_total": 100,
        "vllm:prefix_cache_hits_total": 40,
        "vllm:num_preemptions_total": 2,
        "vllm:prompt_tokens_total": 60,
        "vllm:generation_tokens_total": 11,
    }
    assert {name: value(families, name) for name in expected} == expected
    [info] = families["vllm:cache_config_info"].samples
    assert (info.value, info.labels["num_gpu_blocks"], info.labels["block_size"]) == (1, "99", "32")


@pytest.mark.parametrize(("waiting", "deferred"), [(0, 0), (7, 0), (7, 5), (3, 3)])
def test_reasons_add_up_to_what_waits(waiting: int, deferred: int) -> None:
    source = Source()
    source.numbers = EngineStats(waiting=waiting, deferred=deferred)
    families = scrape(Metrics("m", source, CacheConfig()).render())
    name = "vllm:num_requests_waiting_by_reason"
    assert value(families, name, reason="capacity") == waiting - deferred
    assert value(families, name, reason="deferred") == deferred
    assert value(families, "vllm:num_requests_waiting") == waiting


def test_sources_add_up_to_the_prompt_tokens() -> None:
    source = Source()
    source.numbers = EngineStats(prompt_tokens=60, cached_tokens=48)
    families = scrape(Metrics("m", source, CacheConfig()).render())
    by_source = "vllm:prompt_tokens_by_source_total"
    assert value(families, by_source, source="local_compute") == 12
    assert value(families, by_source, source="local_cache_hit") == 48
    assert value(families, "vllm:prompt_tokens_cached_total") == 48
    assert value(families, "vllm:prompt_tokens_cached_by_source_total", source="device") == 48
    assert value(families, "vllm:prompt_tokens_total") == 60


def test_a_step_counts_its_prompt_tokens() -> None:
    source = Source()
    metrics = Metrics("m", source, CacheConfig())
    source.numbers = EngineStats(prompt_tokens=100, generation_tokens=4)
    metrics.step(4, {0.0: 4}, now=10.0)
    metrics.step(4, {10.0: 3, 9.5: 1}, now=10.5)
    families = scrape(metrics.render())
    assert value(families, "vllm:iteration_tokens_total_sum") == 108
    assert value(families, "vllm:inter_token_latency_seconds_count") == 4
    assert value(families, "vllm:inter_token_latency_seconds_sum") == 2.5
    assert value(families, "vllm:inter_token_latency_seconds_bucket", le="0.5") == 3


def test_the_same_sleep_is_counted_once() -> None:
    metrics = Metrics("m", Source(), CacheConfig())
    state = EngineState(lifecycle="Asleep", last_sleep_seconds=2.0)
    for _ in range(3):
        metrics.watch_sleep(state)
    metrics.watch_sleep(EngineState("Awake", last_sleep_seconds=2.0, last_wake_seconds=3.0))
    families = scrape(metrics.render())
    name = "vllm:sleep_mode_operation_duration_seconds_count"
    assert value(families, name, operation="sleep") == 1
    assert value(families, name, operation="wake") == 1


def test_batches_are_what_single_observations_would_be() -> None:
    bounds = (0.1, 0.5, 1.0, 2.0)
    rng = random.Random(0)
    observed = [
        (rng.choice([0.0, 0.1, 0.3, 0.5, 1.7, 2.0, 9.0]), rng.randint(1, 5)) for _ in range(50)
    ]
    ours = BatchHistogram("t", "Text.", bounds, {"a": "b"})
    registry = CollectorRegistry()
    registry.register(ours)
    theirs_registry = CollectorRegistry()
    theirs = Histogram("t", "Text.", ["a"], buckets=bounds, registry=theirs_registry).labels("b")
    for number, count in observed:
        ours.observe(number, count)
        for _ in range(count):
            theirs.observe(number)
    expected = {
        (s.name, s.labels.get("le")): s.value
        for f in text_string_to_metric_families(generate_latest(theirs_registry).decode())
        for s in f.samples
        if not s.name.endswith("_created")
    }
    got = {
        (s.name, s.labels.get("le")): s.value
        for f in text_string_to_metric_families(generate_latest(registry).decode())
        for s in f.samples
    }
    assert got == pytest.approx(expected)


def test_time_in_the_queue_ends_where_the_first_step_begins(server: ApiServer) -> None:
    server.core.paused = True
    with connected(server.url) as connection:
        connection.sendall(post("/v1/completions", {"prompt": "x"}))
        server.until(lambda: bool(server.core.submitted))
        [request] = server.core.submitted
        news = StepOutputs(b"", b"", started=[Started(request.id, 0)], step_seconds=3600.0)
        server.call(lambda: server.core.on_outputs(news))
        families = scrape(server.get("/metrics").body)
    assert value(families, "vllm:request_queue_time_seconds_count") == 1
    assert value(families, "vllm:request_queue_time_seconds_sum") == 0


def test_scrapes_do_not_see_each_other(server: ApiServer) -> None:
    """Two servers in one process share no registry."""
    with api_server(FakeCore(), names=("other",)) as other:
        other.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
        assert b'model_name="other"' in other.get("/metrics").body
        assert b'model_name="other"' not in server.get("/metrics").body
