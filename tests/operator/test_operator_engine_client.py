"""The client of the admin port, against a real HTTP server on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from aiohttp import web

from torpor_operator.engine_client import EngineClient, EngineError
from torpor_operator.metrics import Metrics
from torpor_operator.model import EngineCall

HERE = "127.0.0.1"
T = TypeVar("T")


class FakeEngine:
    """Notes what it is asked, and answers with ``status`` and ``body``."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.status = 200
        self.body = '{"lifecycle": "Awake"}'

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path_qs}")
        if request.headers.get("Authorization") != "Bearer sesame":
            return web.json_response({"error": {"message": "The token is wrong."}}, status=401)
        return web.Response(status=self.status, body=self.body.encode())


def with_engine(use: Callable[[FakeEngine, EngineClient], Awaitable[T]]) -> T:
    async def run() -> T:
        engine = FakeEngine()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", engine.answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, HERE, 0)
        await site.start()
        client = EngineClient(Metrics(), port=runner.addresses[0][1])
        try:
            return await use(engine, client)
        finally:
            await client.close()
            await runner.cleanup()

    return asyncio.run(run())


def test_the_state_is_what_the_engine_says() -> None:
    async def use(engine: FakeEngine, client: EngineClient) -> None:
        view = await client.view(HERE, "sesame", 7.0)
        assert view.state == {"lifecycle": "Awake"}
        assert (view.error, view.at) == ("", 7.0)
        assert engine.asked == ["GET /state"]

    with_engine(use)


@pytest.mark.parametrize("body", ["", "[1]", "<html>", '"x"'])
def test_an_answer_that_makes_no_sense_is_an_error_of_the_view(body: str) -> None:
    async def use(engine: FakeEngine, client: EngineClient) -> None:
        engine.body = body
        view = await client.view(HERE, "sesame", 7.0)
        assert view.state is None
        assert "/state" in view.error

    with_engine(use)


def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    async def use(engine: FakeEngine, client: EngineClient) -> None:
        engine.body = '{"message": "' + "x" * 5_000_000 + '"}'
        view = await client.view(HERE, "sesame", 7.0)
        assert view.state is None
        assert "longer" in view.error

    with_engine(use)


def test_a_refusal_comes_with_the_engines_own_words() -> None:
    async def use(engine: FakeEngine, client: EngineClient) -> None:
        assert (await client.view(HERE, "mellon", 7.0)).error == "The token is wrong."
        engine.status = 503
        engine.body = '{"error": {"message": "Host memory does not suffice."}}'
        with pytest.raises(EngineError, match="Host memory does not suffice"):
            await client.carry_out(EngineCall(0, HERE, "sleep", level=1), "sesame")
        engine.body = "?"
        with pytest.raises(EngineError, match="status 503"):
            await client.carry_out(EngineCall(0, HERE, "wake"), "sesame")

    with_engine(use)


@pytest.mark.parametrize(
    ("call", "request_line"),
    [
        (EngineCall(0, HERE, "sleep", level=2), "POST /sleep?level=2&mode=wait"),
        (EngineCall(0, HERE, "wake"), "POST /wake_up"),
        (EngineCall(0, HERE, "on_call", value=True), "PUT /on_call?value=true"),
        (EngineCall(0, HERE, "on_call", value=False), "PUT /on_call?value=false"),
    ],
)
def test_each_call_is_the_request_that_the_engine_knows(
    call: EngineCall, request_line: str
) -> None:
    async def use(engine: FakeEngine, client: EngineClient) -> None:
        await client.carry_out(call, "sesame")
        assert engine.asked == [request_line]

    with_engine(use)


def test_an_engine_that_is_not_there_is_an_error_of_the_view() -> None:
    async def run() -> str:
        with socket.socket() as unused:
            unused.bind((HERE, 0))
            client = EngineClient(Metrics(), port=unused.getsockname()[1])
            try:
                return (await client.view(HERE, "sesame", 7.0)).error
            finally:
                await client.close()

    assert HERE in asyncio.run(run())
