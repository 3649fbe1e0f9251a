"""GET /v1/models, GET /v1/models/{id} and GET /version. A sleeping model stays in the list."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from fastapi import APIRouter

from torpor_engine.api.context import ServerContext
from torpor_engine.api.openapi import errors
from torpor_engine.api.schemas.answers import Model, ModelList, Version
from torpor_engine.api.validate import check_model


def torpor_version() -> str:
    try:
        return version("torpor")
    except PackageNotFoundError:  # run from a checkout that was not installed
        return "0"


def model_routes(context: ServerContext) -> APIRouter:
    router = APIRouter(tags=["models"])

    def described(name: str) -> Model:
        length = context.config.model.max_model_len
        return Model(id=name, created=context.created, root=name, max_model_len=length)

    @router.get("/v1/models", responses=errors(401))
    async def list_models() -> ModelList:
        return ModelList(data=[described(name) for name in context.served_names])

    @router.get("/v1/models/{model_id:path}", responses=errors(401, 404))
    async def get_model(model_id: str) -> Model:
        return described(check_model(model_id, context.served_names))

    @router.get("/version", responses=errors(401))
    async def get_version() -> Version:
        return Version(version=torpor_version())

    return router
