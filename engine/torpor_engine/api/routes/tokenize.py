"""POST /tokenize and POST /detokenize."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from torpor_engine.api.context import ServerContext
from torpor_engine.api.errors import invalid
from torpor_engine.api.openapi import BODY_ERRORS, json_body
from torpor_engine.api.schemas.tokenize import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
)
from torpor_engine.api.validate import check_model, validate


def tokenize_routes(context: ServerContext) -> APIRouter:
    router = APIRouter(tags=["tokens"])
    encoder, tokenizer = context.encoder, context.tokenizer

    async def token_ids(asked: TokenizeRequest) -> list[int]:
        if asked.messages is not None:
            add_prompt = asked.add_generation_prompt is not False
            return (await encoder.messages(asked.messages, add_generation_prompt=add_prompt)).ids
        special = asked.add_special_tokens is not False
        return await encoder.text(asked.prompt or "", special=special)

    @router.post(
        "/tokenize",
        responses={200: {"model": TokenizeResponse}, **BODY_ERRORS},
        openapi_extra=json_body(TokenizeRequest),
    )
    async def tokenize(request: Request) -> Response:
        asked = validate(TokenizeRequest, await context.bodies.read_object(request))
        check_model(asked.model, context.served_names)
        ids = await token_ids(asked)
        answer = TokenizeResponse(
            count=len(ids),
            max_model_len=encoder.limits.max_tokens,
            tokens=ids,
            token_strs=[tokenizer.token_text(token).text for token in ids]
            if asked.return_token_strs
            else None,
        )
        return Response(answer.model_dump_json(), media_type="application/json")

    @router.post(
        "/detokenize",
        responses={200: {"model": DetokenizeResponse}, **BODY_ERRORS},
        openapi_extra=json_body(DetokenizeRequest),
    )
    async def detokenize(request: Request) -> Response:
        asked = validate(DetokenizeRequest, await context.bodies.read_object(request))
        check_model(asked.model, context.served_names)
        if any(token >= encoder.limits.vocab_size for token in asked.tokens):
            raise invalid(f"A token id is not below {encoder.limits.vocab_size}.", "tokens")
        answer = DetokenizeResponse(prompt=tokenizer.decode(asked.tokens))
        return Response(answer.model_dump_json(), media_type="application/json")

    return router
