"""The control of one replica: its state, sleep, wake and drain. On the admin port only.

Asking for what is already so is no error; the core sees to that, and answers when it is done.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import orjson
from fastapi import APIRouter, Query
from starlette.responses import Response

from torpor_engine.api.context import ServerContext
from torpor_engine.api.core_link import Command
from torpor_engine.api.errors import unavailable
from torpor_engine.api.openapi import errors
from torpor_protocol.requests import (
    CommandReply,
    DrainCommand,
    OnCallCommand,
    SleepCommand,
    SleepMode,
    SleepTag,
    WakeCommand,
)

_RETRY_SECONDS = 5
_AWAKE = frozenset({"Awake", "Starting", "Recovering", "Failed"})


def admin_routes(context: ServerContext) -> APIRouter:
    router = APIRouter(tags=["admin"], responses=errors(400, 401, 503))
    _add_views(router, context)
    _add_commands(router, context)
    return router


def _add_views(router: APIRouter, context: ServerContext) -> None:
    @router.get("/state")
    async def state() -> Response:
        shown = msgspec.to_builtins(context.core.state())
        shown.pop("type", None)
        shown["served_names"] = context.served_names
        shown["unfinished"] = context.admission.unfinished
        shown["refusing"] = context.admission.draining
        return _json(shown)

    @router.get("/is_sleeping")
    async def is_sleeping() -> Response:
        return _json({"is_sleeping": _is_asleep(context)})


def _add_commands(router: APIRouter, context: ServerContext) -> None:
    async def carry_out(command: Command, answer: dict[str, Any]) -> Response:
        reply = await context.core.command(command)
        context.metrics.watch_sleep(context.core.state())
        if reply.error:
            message = f"{reply.error} {reply.fix}".strip()
            raise unavailable("command_failed", message, _RETRY_SECONDS)
        status = {"status": "sleeping" if _is_asleep(context) else "awake"}
        return _json({**status, **answer, **_measured(reply)})

    @router.post("/sleep")
    async def sleep(
        level: Annotated[int, Query(ge=1, le=3)] = 1, mode: Annotated[SleepMode, Query()] = "wait"
    ) -> Response:
        command = SleepCommand(call=0, level=level, mode=mode)
        return await carry_out(command, {"level": level})

    @router.post("/wake_up")
    async def wake_up(tags: Annotated[list[SleepTag], Query()] = []) -> Response:  # noqa: B006
        wanted = tuple(dict.fromkeys(tags))
        command = WakeCommand(call=0, tags=wanted)
        return await carry_out(command, {"tags": wanted})

    @router.put("/on_call")
    async def on_call(value: Annotated[bool, Query()]) -> Response:
        if not value and context.core.state().on_call:
            context.admission.called_off()
        return await carry_out(OnCallCommand(call=0, value=value), {"on_call": value})

    @router.post("/drain")
    async def drain() -> Response:
        context.admission.draining = True
        return await carry_out(DrainCommand(call=0), {"status": "drained"})


def _is_asleep(context: ServerContext) -> bool:
    """Also while falling asleep, waking, and after a wake of one tag only."""
    state = context.core.state()
    return bool(state.asleep) or state.lifecycle not in _AWAKE


def _measured(reply: CommandReply) -> dict[str, Any]:
    return {"seconds": reply.seconds, "memory": msgspec.to_builtins(reply.memory)}


def _json(value: dict[str, Any]) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")
