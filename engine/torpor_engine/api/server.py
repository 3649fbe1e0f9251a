"""Both ports in one event loop, from the bound sockets to the last answer.

The caller owns signals, the loop (uvloop is meant) and the core; it sets ``stop`` to end the
server in order and cancels `serve` to end it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace

import uvicorn
from fastapi import FastAPI

from torpor_engine.api.app import create_admin_app, create_client_app
from torpor_engine.api.context import ServerContext
from torpor_engine.api.errors import unavailable
from torpor_engine.api.housekeeping import Housekeeper
from torpor_engine.api.http_protocol import BoundedProtocol
from torpor_engine.api.listen import BACKLOG, bind, url_of
from torpor_engine.api.open_files import make_room
from torpor_engine.api.settings import ApiSettings

_POLL_SECONDS = 0.05
# For connections to close once every answer is done.
_CLOSE_SECONDS = 5


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers; ``up`` is set when it accepts connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


async def serve(
    context: ServerContext,
    host: str,
    port: int,
    admin_host: str,
    admin_port: int,
    stop: asyncio.Event,
    on_ready: Callable[[str, str], None],
) -> None:
    """Serve until ``stop`` is set, ``leave_seconds`` more if requests are sent here, and until what
    runs has ended, or ``drain_seconds`` have passed.

    ``on_ready`` gets the URLs of both ports, for a client on this machine. Port 0 takes a free one.
    Raises PortError when a port cannot be bound."""
    listeners = _bind_both((host, port), (admin_host, admin_port))
    servers = _servers(context)
    tasks = [
        asyncio.create_task(server.serve([listener]))
        for server, listener in zip(servers, listeners, strict=True)
    ]
    tasks.append(asyncio.create_task(Housekeeper(context).run()))
    urls = [url_of(listener) for listener in listeners]
    try:
        for server in servers:
            await _first(server.up.wait(), tasks)
        on_ready(urls[0], urls[1])
        await _first(stop.wait(), tasks)
        await _first(_leave(context), tasks)
        await _first(_drain(context), tasks)
    except BaseException:
        for server in servers:
            server.force_exit = True
        raise
    finally:
        await _end(servers, tasks)
        context.encoder.close()


def _servers(context: ServerContext) -> list[_Server]:
    """Of the client port and of the admin port."""
    settings = context.settings
    settings = replace(settings, max_connections=make_room(settings.max_connections))
    return [
        _server(create_client_app(context), settings, context.admission.stays),
        _server(create_admin_app(context), settings, lambda: True),
    ]


def _bind_both(client: tuple[str, int], admin: tuple[str, int]) -> list[socket.socket]:
    listener = bind(*client, "--port")
    try:
        return [listener, bind(*admin, "--admin-port")]
    except BaseException:
        listener.close()
        raise


async def _end(servers: list[_Server], tasks: list[asyncio.Task[None]]) -> None:
    """Servers end by themselves once told to; the housekeeper, the last task, is cancelled."""
    for server in servers:
        server.should_exit = True
    tasks[-1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _first(
    wanted: Coroutine[object, object, object], others: list[asyncio.Task[None]]
) -> None:
    """Wait for ``wanted``; one of ``others`` ending before it is an error, and is raised."""
    task = asyncio.create_task(wanted)
    try:
        done, _ = await asyncio.wait([task, *others], return_when=asyncio.FIRST_COMPLETED)
        if task not in done:
            for other in done:
                other.result()
            raise RuntimeError("A server ended before it was told to.")
    finally:
        task.cancel()


async def _leave(context: ServerContext) -> None:
    """Be not ready, and go on for as long as whoever sends requests here may not have heard."""
    sent_here = context.admission.sent_here()
    context.admission.leaving = True
    end = context.clock() + context.settings.leave_seconds
    while sent_here and context.clock() < end and context.core.state().lifecycle != "Failed":
        await asyncio.sleep(_POLL_SECONDS)


async def _drain(context: ServerContext) -> None:
    """Refuse what comes, let what runs end, and end the rest with an error when time is up."""
    context.admission.draining = True
    end = context.clock() + context.settings.drain_seconds
    while context.admission.unfinished and context.clock() < end:
        if context.core.state().lifecycle == "Failed":
            break
        await asyncio.sleep(_POLL_SECONDS)
    error = unavailable("shutting_down", "The server stopped before the answer was complete.", 1)
    for generation in context.router.generations:
        context.router.fail(generation, error)


def _server(app: FastAPI, settings: ApiSettings, keeps: Callable[[], bool]) -> _Server:
    protocol = type(
        "Protocol",
        (BoundedProtocol,),
        {
            "receive_seconds": settings.receive_seconds,
            "stall_seconds": settings.stall_seconds,
            "max_connections": settings.max_connections,
            "keeps": staticmethod(keeps),
        },
    )
    return _Server(
        uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            lifespan="off",
            backlog=BACKLOG,
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=settings.idle_connection_seconds,
            timeout_graceful_shutdown=_CLOSE_SECONDS,
        )
    )
