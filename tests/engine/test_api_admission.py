"""The bound on unfinished choices: who comes in, who is told to come back, and when."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from api_server import MODEL, ApiServer, api_server
from engine_builders import engine_config
from fake_core import FakeCore
from torpor_engine.api.admission import (
    HELD_WHILE_RECOVERING,
    MAX_RETRY_AFTER,
    TAKEN_OFF_CALL,
    Admission,
)
from torpor_engine.api.errors import ApiError
from torpor_engine.metrics import Metrics
from torpor_protocol.config import CacheConfig, SchedulerConfig, WakeConfig
from torpor_protocol.requests import EngineState, Lifecycle

ASK = {"model": MODEL, "prompt": "x", "max_tokens": 4}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def admission(
    lifecycle: Lifecycle = "Awake",
    *,
    wake: WakeConfig | None = None,
    last_wake: float = -1.0,
    on_call: bool = True,
) -> tuple[Admission, Clock]:
    """Two may run, three may wait; asleep, four are held."""
    config = engine_config(wake=wake or WakeConfig(max_held=4), max_num_seqs=2)
    core = FakeCore()
    clock = Clock()
    state = EngineState(lifecycle, last_wake_seconds=last_wake, on_call=on_call)
    metrics = Metrics("m", core, CacheConfig())
    return Admission(config, lambda: state, metrics, clock, max_queued=3), clock


def refusal(gate: Admission, choices: int = 1) -> ApiError | None:
    try:
        gate.enter(choices)
    except ApiError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("lifecycle", "room"),
    [
        ("Awake", 5),
        ("Recovering", 5),
        ("Asleep", 4),
        ("Waking", 4),
        ("Sleeping", 4),
        ("Draining", 4),
        ("Starting", 0),
        ("Failed", 0),
    ],
)
def test_room_by_what_the_engine_does(lifecycle: Lifecycle, room: int) -> None:
    gate, _ = admission(lifecycle)
    for _ in range(room):
        assert refusal(gate) is None
    error = refusal(gate)
    assert error is not None
    assert error.status == (429 if room else 503)
    assert 1 <= int(error.headers["Retry-After"]) <= MAX_RETRY_AFTER
    if room:
        gate.leave()
        assert refusal(gate) is None


@pytest.mark.parametrize(("lifecycle", "taken"), [("Asleep", False), ("Waking", True)])
def test_requests_that_may_not_wake(lifecycle: Lifecycle, taken: bool) -> None:
    gate, _ = admission(lifecycle, wake=WakeConfig(on_request=False), last_wake=12.3)
    error = refusal(gate)
    assert (error is None) == taken
    if error is not None:
        assert (error.status, error.code) == (503, "model_sleeping")
        assert error.headers["Retry-After"] == "13"
    assert not gate.ready()


@pytest.mark.parametrize("lifecycle", ["Awake", "Draining", "Sleeping", "Asleep", "Waking"])
@pytest.mark.parametrize("on_call", [False, True])
def test_a_replica_that_is_not_on_call_is_not_ready(lifecycle: Lifecycle, on_call: bool) -> None:
    gate, _ = admission(lifecycle, on_call=on_call)
    assert gate.ready() == on_call
    error = refusal(gate)
    assert (error is None) == (on_call or lifecycle in ("Awake", "Waking"))


@pytest.mark.parametrize("on_request", [False, True])
def test_a_request_that_was_under_way_when_the_replica_went_off_call(on_request: bool) -> None:
    wake = WakeConfig(max_held=4, on_request=on_request)
    gate, clock = admission("Asleep", wake=wake, on_call=False)
    gate.called_off()
    clock.now += TAKEN_OFF_CALL - 0.1
    assert not gate.ready()
    assert (refusal(gate) is None) == on_request
    clock.now += 0.1
    error = refusal(gate)
    assert error is not None and error.code == "model_sleeping"


def test_all_or_none_of_a_request() -> None:
    gate, _ = admission()
    assert refusal(gate, 3) is None
    error = refusal(gate, 3)
    assert error is not None and error.status == 429
    assert gate.unfinished == 3
    assert refusal(gate, 2) is None


def test_what_can_never_fit_is_no_matter_of_time() -> None:
    gate, _ = admission()
    error = refusal(gate, 6)
    assert error is not None and error.status == 400


def test_retry_after_follows_the_measured_rate() -> None:
    gate, clock = admission()
    gate.enter(5)
    for _ in range(20):
        clock.now += 3.0
        gate.leave()
        gate.enter(1)
    error = refusal(gate, 4)  # four must end first, three seconds apart
    assert error is not None and error.headers["Retry-After"] == "12"
    for _ in range(5):
        gate.leave()
    clock.now += 10_000.0  # an idle night is no measure
    gate.enter(5)
    gate.leave()
    gate.enter(1)
    error = refusal(gate, 4)
    assert error is not None and int(error.headers["Retry-After"]) <= MAX_RETRY_AFTER


def test_a_recovery_leaves_the_replica_ready_only_for_a_while() -> None:
    gate, clock = admission("Recovering")
    assert gate.ready(), "a Service without endpoints would refuse what is held here"
    clock.now += HELD_WHILE_RECOVERING - 1
    assert gate.ready()
    clock.now += 1
    assert not gate.ready()
    assert refusal(gate) is None


def test_leaving_takes_what_comes_and_is_not_ready() -> None:
    gate, _ = admission()
    assert gate.stays() and gate.sent_here()
    gate.leaving = True
    assert not gate.ready() and not gate.stays()
    assert refusal(gate) is None


def test_requests_are_under_way_for_a_while_to_one_that_was_called_off() -> None:
    gate, clock = admission("Asleep", on_call=False)
    assert not gate.sent_here() and not gate.stays()
    gate.called_off()
    assert gate.sent_here()
    clock.now += TAKEN_OFF_CALL
    assert not gate.sent_here()


def test_draining_takes_nothing() -> None:
    gate, _ = admission()
    assert gate.ready()
    gate.draining = True
    error = refusal(gate)
    assert error is not None and (error.status, error.code) == (503, "shutting_down")
    assert (error.headers["Retry-After"], error.headers["Connection"]) == ("1", "close")
    assert not gate.ready()


@pytest.fixture
def small() -> Iterator[ApiServer]:
    core = FakeCore(max_num_seqs=8)
    core.paused = True
    config = engine_config(model={"max_model_len": 512}, max_num_seqs=8)
    with api_server(core, config=config, max_queued=56) as server:
        yield server


def test_a_thousand_requests_against_a_bound_of_64(small: ApiServer) -> None:
    """What is taken ends; the rest is told to come back, and leaves nothing."""
    statuses: Counter[int] = Counter()
    retry: set[str] = set()
    lock = threading.Lock()
    asked = threading.Semaphore(0)

    def ask(number: int) -> None:
        for i in range(number):
            answer = small.post("/v1/completions", {**ASK, "seed": i})
            with lock:
                statuses[answer.status] += 1
                retry.add(answer.headers.get("retry-after", ""))
            asked.release()

    threads = [threading.Thread(target=ask, args=(10,)) for _ in range(100)]
    for thread in threads:
        thread.start()
    small.until(lambda: small.context.admission.unfinished == 64, 30)
    assert asked.acquire(timeout=10)  # somebody was refused while it was full

    def resume() -> None:
        small.core.paused = False
        small.core.go()

    assert small.call(lambda: len(small.core.submitted)) == 64
    small.call(resume)
    for thread in threads:
        thread.join(60)
    assert statuses[200] + statuses[429] == 1000
    assert statuses[200] >= 64 and statuses[429] >= 1
    assert all(value.isdigit() for value in retry - {""})
    assert small.call(lambda: small.context.admission.unfinished) == 0
    assert small.call(lambda: len(small.context.router.generations)) == 0
    metrics = small.get("/metrics").body.decode()
    [line] = [line for line in metrics.splitlines() if line.startswith("vllm:admission_rejections")]
    assert float(line.split()[-1]) == statuses[429]


def test_a_request_of_many_choices_takes_many_places(small: ApiServer) -> None:
    held: list[Any] = []
    fields = {**ASK, "prompt": ["a", "b"], "n": 16}
    thread = threading.Thread(target=lambda: held.append(small.post("/v1/completions", fields)))
    thread.start()
    small.until(lambda: small.context.admission.unfinished == 32)
    too_much = small.post("/v1/completions", {**fields, "prompt": ["a", "b", "c"]})
    assert (too_much.status, too_much.error["code"]) == (429, "server_overloaded")
    never = small.post("/v1/completions", {**fields, "prompt": ["a"] * 5})
    assert never.status == 400

    def resume() -> None:
        small.core.paused = False
        small.core.go()

    small.call(resume)
    thread.join(20)
    assert held[0].status == 200


def test_a_prompt_that_is_refused_gives_its_place_back(small: ApiServer) -> None:
    for _ in range(100):
        answer = small.post("/v1/completions", {**ASK, "prompt": "word " * 600})
        assert answer.error["code"] == "context_length_exceeded"
    assert small.call(lambda: small.context.admission.unfinished) == 0


def test_the_bound_is_the_schedulers_unless_told() -> None:
    core = FakeCore()
    config = engine_config()
    gate = Admission(config, core.state, Metrics("m", core, CacheConfig()), Clock())
    assert gate.capacity == config.scheduler.max_num_seqs + SchedulerConfig().max_queued
