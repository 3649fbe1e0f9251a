"""Probes and metrics, on both ports.

Alive means that the process answers and its engine has not failed; asleep is alive. Ready means
that a request which comes now is taken: at once, or held while the model wakes for it.
"""

from __future__ import annotations

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.responses import Response

from torpor_engine.api.context import ServerContext
from torpor_engine.api.errors import unavailable
from torpor_engine.api.openapi import errors

_RETRY_SECONDS = 5


def probe_routes(context: ServerContext) -> APIRouter:
    router = APIRouter(tags=["probes"])

    @router.get("/health", responses=errors(503))
    @router.get("/livez", responses=errors(503))
    async def alive() -> dict[str, str]:
        lifecycle = context.core.state().lifecycle
        if lifecycle == "Failed":
            raise unavailable("engine_failed", "The engine has failed.", _RETRY_SECONDS)
        return {"status": lifecycle}

    @router.get("/readyz", responses=errors(503))
    async def ready() -> dict[str, str]:
        lifecycle = context.core.state().lifecycle
        if not context.admission.ready():
            message = f"The server takes no requests now ({lifecycle})."
            raise unavailable("not_ready", message, _RETRY_SECONDS)
        return {"status": lifecycle}

    @router.get(
        "/metrics",
        responses={200: {"content": {"text/plain": {}}}, **errors(401)},
        response_class=Response,
    )
    async def metrics() -> Response:
        return Response(context.metrics.render(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return router
