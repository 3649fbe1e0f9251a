"""POST /v1/completions and POST /v1/chat/completions."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from torpor_engine.api.answer import Answer, StreamedAnswer
from torpor_engine.api.context import ServerContext
from torpor_engine.api.draft import Drafter
from torpor_engine.api.generation import Generation
from torpor_engine.api.middleware import request_id
from torpor_engine.api.openapi import BODY_ERRORS, Responses, json_body
from torpor_engine.api.schemas.answers import ChatCompletion, Completion
from torpor_engine.api.schemas.chat import ChatCompletionRequest
from torpor_engine.api.schemas.completion import CompletionRequest

_EVENT = {
    "type": "object",
    "description": "One server-sent event: a chunk, an error, or [DONE].",
    "required": ["data"],
    "properties": {"data": {"type": "string"}},
}
_STREAM = {"text/event-stream": {"schema": _EVENT}}
_COMPLETION: Responses = {200: {"model": Completion, "content": _STREAM}, **BODY_ERRORS}
_CHAT: Responses = {200: {"model": ChatCompletion, "content": _STREAM}, **BODY_ERRORS}


def generate_routes(context: ServerContext) -> APIRouter:
    router = APIRouter(tags=["generate"])
    drafter = Drafter(context)

    def answer(generation: Generation) -> Response:
        kind = StreamedAnswer if generation.job.delivery.stream else Answer
        return kind(context, generation)

    @router.post(
        "/v1/completions", responses=_COMPLETION, openapi_extra=json_body(CompletionRequest)
    )
    async def create_completion(request: Request) -> Response:
        body = await context.bodies.read_object(request)
        return answer(await drafter.completion(body, request_id(request.scope)))

    @router.post(
        "/v1/chat/completions", responses=_CHAT, openapi_extra=json_body(ChatCompletionRequest)
    )
    async def create_chat_completion(request: Request) -> Response:
        body = await context.bodies.read_object(request)
        return answer(await drafter.chat(body, request_id(request.scope)))

    return router
