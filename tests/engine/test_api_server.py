"""Both ports together: bound or refused in one sentence, and ended in order."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from api_server import MODEL, TOKEN, api_server, tiny_tokenizer
from engine_builders import engine_config
from fake_core import FakeCore
from raw_http import connected, post, read_all, read_until
from torpor_engine.api.context import ServerContext
from torpor_engine.api.server import serve
from torpor_engine.api.settings import ApiSettings
from torpor_protocol.errors import ConfigError, PortError
from torpor_protocol.requests import Lifecycle

ASK = {"model": MODEL, "prompt": "x", "max_tokens": 20, "stream": True}


def context(**changes: Any) -> ServerContext:
    fields: dict[str, Any] = {
        "config": engine_config(),
        "served_names": [MODEL],
        "tokenizer": tiny_tokenizer(),
        "core": FakeCore(),
        "admin_token": TOKEN,
    }
    return ServerContext(**(fields | changes))


def run(host: str, port: int, admin_port: int) -> None:
    async def start() -> None:
        stop = asyncio.Event()
        await serve(context(), host, port, "127.0.0.1", admin_port, stop, lambda *_: stop.set())

    asyncio.run(start())


@pytest.mark.parametrize("flag", ["--port", "--admin-port"])
def test_a_port_in_use_is_named_with_its_flag(flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        ports = (taken, 0) if flag == "--port" else (0, taken)
        with pytest.raises(PortError) as caught:
            run("127.0.0.1", *ports)
    assert str(taken) in caught.value.cause and "in use" in caught.value.cause
    assert caught.value.fix.endswith(f"with {flag}.")


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host", "a" * 300])
def test_an_address_that_is_not_here(host: str) -> None:
    with pytest.raises(PortError) as caught:
        run(host, 0, 0)
    assert host in caught.value.cause and "--host" in caught.value.fix


def test_a_server_needs_a_token_and_a_name() -> None:
    with pytest.raises(ConfigError, match="admin token"):
        context(admin_token="")
    with pytest.raises(ConfigError, match="--served-model-name"):
        context(served_names=[])
    assert TOKEN not in repr(context())


def test_nothing_is_left_of_a_server() -> None:
    before = threading.active_count()
    run("127.0.0.1", 0, 0)
    run("localhost", 0, 0)
    assert threading.active_count() == before


def test_what_runs_ends_before_the_server_does() -> None:
    core = FakeCore(step_seconds=0.02)
    with api_server(core) as server:
        connection = open_connection(server.url)
        connection.sendall(post("/v1/completions", ASK))
        begun = read_until(connection, b"data: ")
        # Leaving the block stops the server.
    rest = begun + read_all(connection)
    connection.close()
    assert rest.count(b"data: ") > 3
    assert b'"finish_reason":"length"' in rest and rest.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def open_connection(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def test_what_does_not_end_in_time_gets_an_error() -> None:
    core = FakeCore()
    core.paused = True
    settings = ApiSettings(tick_seconds=0.02, drain_seconds=0.2, keep_alive_seconds=0.02)
    with api_server(core, settings=settings) as server:
        connection = open_connection(server.url)
        connection.sendall(post("/v1/completions", ASK))
        begun = read_until(connection, b": keep-alive")
    rest = begun + read_all(connection)
    connection.close()
    assert b'"code":"shutting_down"' in rest and b"data: [DONE]" in rest
    assert core.aborted == [core.submitted[0].id]


def test_probes_answer_while_the_server_drains() -> None:
    core = FakeCore()
    core.paused = True
    with api_server(core) as server:
        with connected(server.url) as connection:
            connection.sendall(post("/v1/completions", ASK))
            server.until(lambda: bool(core.submitted))
            server.call(server._stop.set)
            server.until(lambda: server.context.admission.draining)
            assert server.get("/health").status == 200
            assert server.get("/readyz").status == 503
            answer = server.post("/v1/completions", ASK)
            assert (answer.status, answer.error["code"]) == (503, "shutting_down")
            assert answer.headers["connection"] == "close"
        server.until(lambda: bool(core.aborted))


def test_a_stopped_server_takes_for_a_while_what_is_still_sent_to_it() -> None:
    times = [100.0]
    settings = ApiSettings(leave_seconds=3.0)
    with api_server(settings=settings, clock=lambda: times[-1]) as server:
        server.call(server._stop.set)
        server.until(lambda: server.context.admission.leaving)
        assert server.get("/readyz").status == 503
        assert server.post("/v1/completions", ASK).status == 200
        times.append(103.0)
        # Leaving the block waits for the end.


@pytest.mark.parametrize("lifecycle", ["Starting", "Failed"])
def test_one_to_which_nothing_is_sent_stops_at_once(lifecycle: Lifecycle) -> None:
    settings = ApiSettings(leave_seconds=3.0)
    with api_server(settings=settings, clock=lambda: 100.0) as server:
        server.call(lambda: server.core.set_state(lifecycle))
        # Leaving the block waits for the end, which no clock that stands still would bring.


def test_keys_of_clients() -> None:
    ask = {"model": MODEL, "prompt": "x", "max_tokens": 1}
    with api_server(api_keys=("key-one", "key-two")) as server:
        for path in ("/health", "/livez", "/readyz"):
            assert server.get(path).status == 200
        for path in ("/v1/models", "/metrics", "/version", "/openapi.json", "/nothing"):
            answer = server.get(path)
            assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
            assert answer.headers["www-authenticate"] == "Bearer"
        for key, status in (("key-two", 200), ("key-one", 200), ("key-on", 401), ("", 401)):
            headers = {"authorization": f"Bearer {key}"}
            assert server.post("/v1/completions", ask, headers).status == status
        assert server.post("/v1/completions", ask, {"authorization": "key-one"}).status == 401
        assert (
            server.post("/v1/completions", ask, {"authorization": "bearer key-one"}).status == 200
        )
