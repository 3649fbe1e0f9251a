"""Requests to a sleeping model: held, alive, answered when it wakes, and not held for ever."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from api_server import MODEL, ApiServer, api_server
from engine_builders import engine_config
from fake_core import FakeCore
from raw_http import connected, post, read_all, read_until, status_of
from torpor_engine.api.settings import ApiSettings
from torpor_protocol.config import EngineConfig, WakeConfig

ASK = {"model": MODEL, "prompt": "x", "max_tokens": 4, "seed": 3}
STREAM = {**ASK, "stream": True}
QUICK = ApiSettings(tick_seconds=0.01, keep_alive_seconds=0.05)


def config(**wake: Any) -> EngineConfig:
    return engine_config(model={"max_model_len": 512}, wake=WakeConfig(**wake))


def asleep(*, on_request: bool = True) -> FakeCore:
    core = FakeCore()
    core.wake_on_request = on_request
    core.set_state("Asleep", 2)
    return core


def test_a_request_wakes_the_model_and_gets_the_same_tokens() -> None:
    core = FakeCore()
    with api_server(core) as server:
        before = server.post("/v1/completions", ASK).json()["choices"]
        server.call(lambda: core.set_state("Asleep", 2))
        assert server.get("/readyz").status == 200
        assert server.post("/v1/completions", ASK).json()["choices"] == before
        assert server.call(core.state).lifecycle == "Awake"


def test_a_stream_is_kept_alive_while_the_model_wakes() -> None:
    core = asleep()
    core.wake_seconds = 0.3
    with api_server(core, settings=QUICK) as server, connected(server.url) as connection:
        connection.sendall(post("/v1/completions", STREAM, "Connection: close"))
        begun = read_until(connection, b": keep-alive\n\n")
        assert status_of(begun) == 200
        answer = begun + read_all(connection)
    assert b"data: [DONE]" in answer and answer.count(b": keep-alive") >= 2


@pytest.mark.parametrize("keep_alive_seconds", [0.02, 60.0])
def test_a_wake_that_takes_too_long(keep_alive_seconds: float) -> None:
    settings = ApiSettings(tick_seconds=0.01, keep_alive_seconds=keep_alive_seconds)
    core = asleep(on_request=False)  # it never wakes
    with api_server(core, config=config(timeout_seconds=0.3), settings=settings) as server:
        answer = server.post("/v1/completions", ASK)
        assert (answer.status, answer.error["code"]) == (503, "model_sleeping")
        assert int(answer.headers["retry-after"]) <= 120
        stream = server.post("/v1/completions", STREAM)
        if keep_alive_seconds > 1:
            assert (stream.status, stream.error["code"]) == (503, "model_sleeping")
        else:
            assert stream.status == 200
            assert stream.body.endswith(b"data: [DONE]\n\n")
            assert b'"code":"model_sleeping"' in stream.body
        assert core.aborted == [request.id for request in core.submitted]
        assert server.call(lambda: server.context.admission.unfinished) == 0


def test_time_awake_does_not_count_as_waiting() -> None:
    core = FakeCore()
    core.paused = True
    settings = ApiSettings(tick_seconds=0.01)
    with api_server(core, config=config(timeout_seconds=0.15), settings=settings) as server:
        answers: list[Any] = []
        asking = threading.Thread(
            target=lambda: answers.append(server.post("/v1/completions", ASK))
        )
        asking.start()
        server.until(lambda: bool(core.submitted))
        time.sleep(0.3)  # queued behind others for longer than a wake may take

        def resume() -> None:
            core.paused = False
            core.go()

        server.call(resume)
        asking.join(10)
        assert answers[0].status == 200


def test_requests_do_not_wake_where_that_is_off() -> None:
    core = asleep(on_request=False)
    with api_server(core, config=config(on_request=False)) as server:
        answer = server.post("/v1/completions", ASK)
        assert (answer.status, answer.error["code"]) == (503, "model_sleeping")
        assert answer.headers["retry-after"].isdigit()
        assert server.get("/readyz").status == 503
        assert server.get("/health").status == server.get("/livez").status == 200
        assert server.get("/v1/models").json()["data"][0]["id"] == MODEL
        assert core.submitted == []


def hold(server: ApiServer, number: int) -> list[threading.Thread]:
    threads = [
        threading.Thread(target=server.post, args=("/v1/completions", ASK)) for _ in range(number)
    ]
    for thread in threads:
        thread.start()
    server.until(lambda: server.context.admission.unfinished == number)
    return threads


def test_only_so_many_are_held() -> None:
    core = asleep(on_request=False)
    with api_server(core, config=config(max_held=3)) as server:
        threads = hold(server, 3)
        answer = server.post("/v1/completions", ASK)
        assert (answer.status, answer.error["code"]) == (429, "server_overloaded")
        assert answer.headers["retry-after"].isdigit()

        def wake() -> None:
            core.set_state("Awake")
            core.go()

        server.call(wake)
        for thread in threads:
            thread.join(10)
        assert server.call(lambda: server.context.admission.unfinished) == 0


@pytest.mark.parametrize(
    ("lifecycle", "code"), [("Failed", "engine_failed"), ("Starting", "model_loading")]
)
def test_an_engine_that_cannot_answer(lifecycle: Any, code: str) -> None:
    core = FakeCore()
    core.set_state(lifecycle)
    with api_server(core) as server:
        answer = server.post("/v1/completions", ASK)
        assert (answer.status, answer.error["code"]) == (503, code)
        assert server.get("/readyz").status == 503
        assert server.get("/health").status == (503 if lifecycle == "Failed" else 200)


def test_an_engine_that_fails_ends_what_it_had() -> None:
    core = FakeCore()
    core.paused = True
    with api_server(core) as server, connected(server.url) as connection:
        connection.sendall(post("/v1/completions", STREAM))
        server.until(lambda: bool(core.submitted))
        server.call(lambda: core.set_state("Failed"))
        assert status_of(read_until(connection, b"}}")) == 503
        server.until(lambda: server.context.admission.unfinished == 0)
