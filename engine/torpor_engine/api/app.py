"""The two applications: what clients may call, and what only the operator may.

Two ports instead of two prefixes: a NetworkPolicy can tell ports apart, and a path that a client
port does not have cannot be reached through it by any mistake.
"""

from __future__ import annotations

from fastapi import FastAPI

from torpor_engine.api.context import ServerContext
from torpor_engine.api.handlers import add_handlers
from torpor_engine.api.middleware import BearerAuth, RequestId
from torpor_engine.api.openapi import install_openapi
from torpor_engine.api.routes.admin import admin_routes
from torpor_engine.api.routes.generate import generate_routes
from torpor_engine.api.routes.models import model_routes, torpor_version
from torpor_engine.api.routes.probes import probe_routes
from torpor_engine.api.routes.tokenize import tokenize_routes
from torpor_engine.api.schemas.chat import ChatCompletionRequest
from torpor_engine.api.schemas.completion import CompletionRequest
from torpor_engine.api.schemas.tokenize import DetokenizeRequest, TokenizeRequest

_BODIES = (CompletionRequest, ChatCompletionRequest, TokenizeRequest, DetokenizeRequest)


def create_client_app(context: ServerContext) -> FastAPI:
    """OpenAI's API, probes and metrics; keys are asked for only where the context has some."""
    app = _app("Torpor", context.api_keys)
    for router in (generate_routes, model_routes, tokenize_routes, probe_routes):
        app.include_router(router(context))
    install_openapi(app, _BODIES)
    return app


def create_admin_app(context: ServerContext) -> FastAPI:
    """State, sleep, wake, drain, probes and metrics; everything but the probes needs the token."""
    app = _app("Torpor admin", (context.admin_token,))
    app.include_router(admin_routes(context))
    app.include_router(probe_routes(context))
    install_openapi(app, ())
    return app


def _app(title: str, keys: tuple[str, ...]) -> FastAPI:
    """No documentation pages: they load scripts from elsewhere. No redirects: they trust Host."""
    app = FastAPI(
        title=title,
        version=torpor_version(),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    add_handlers(app)
    if keys:
        app.add_middleware(BearerAuth, keys=keys)
    app.add_middleware(RequestId)
    return app
