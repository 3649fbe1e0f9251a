"""A checked request to a job, in the order that costs least: fields, then room, then tokens.

Whoever is refused for want of room has cost no tokenization, and a request that is wrong takes no
room.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from torpor_engine.api.context import ServerContext
from torpor_engine.api.errors import invalid
from torpor_engine.api.generation import Generation
from torpor_engine.api.job import Delivery, Job, Kind, TextRules
from torpor_engine.api.prompts import Prompt, split_prompts
from torpor_engine.api.sampling import sampling_params
from torpor_engine.api.schemas.chat import ChatCompletionRequest
from torpor_engine.api.schemas.completion import DEFAULT_MAX_TOKENS, CompletionRequest
from torpor_engine.api.schemas.sampling import GenerationRequest
from torpor_engine.api.unsupported import check_unsupported
from torpor_engine.api.validate import check_model, validate

_ID_PREFIX: dict[Kind, str] = {"chat": "chatcmpl-", "completion": "cmpl-"}


class Drafter:
    """Every method raises ApiError for what is wrong with the request."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    async def completion(self, body: dict[str, Any], request_id: str) -> Generation:
        check_unsupported(body)
        request = validate(CompletionRequest, body)
        entries = split_prompts(request.prompt, self._context.encoder.limits)
        logprobs = -1 if request.logprobs is None else request.logprobs
        max_tokens = request.max_tokens or DEFAULT_MAX_TOKENS
        echo = bool(request.echo)
        job = self._job("completion", request, request_id, logprobs, max_tokens, echo)
        special = request.add_special_tokens is not False

        async def encode() -> list[Prompt]:
            return await self._context.encoder.prompts(entries, special=special, echo=echo)

        return await self._admit(job, len(entries), encode)

    async def chat(self, body: dict[str, Any], request_id: str) -> Generation:
        check_unsupported(body)
        request = validate(ChatCompletionRequest, body)
        if request.top_logprobs and not request.logprobs:
            raise invalid("'top_logprobs' needs 'logprobs' to be true.", "top_logprobs")
        logprobs = (request.top_logprobs or 0) if request.logprobs else -1
        whole_context = self._context.config.model.max_model_len
        max_tokens = request.max_completion_tokens or request.max_tokens or whole_context
        job = self._job("chat", request, request_id, logprobs, max_tokens, echo=False)
        add_prompt = request.add_generation_prompt is not False

        async def encode() -> list[Prompt]:
            encoder = self._context.encoder
            return [await encoder.messages(request.messages, add_generation_prompt=add_prompt)]

        return await self._admit(job, 1, encode)

    async def _admit(
        self, job: Job, prompts: int, encode: Callable[[], Awaitable[list[Prompt]]]
    ) -> Generation:
        """Take room for every choice; it is given back as they end, or here when they cannot be."""
        context = self._context
        choices = prompts * job.n
        context.admission.enter(choices)
        try:
            encoded = await encode()
            job = replace(job, prompts=encoded)
            return Generation(job, context.tokenizer, context.request_ids)
        except BaseException:
            context.admission.withdraw(choices)
            raise

    def _job(
        self,
        kind: Kind,
        request: GenerationRequest,
        request_id: str,
        logprobs: int,
        max_tokens: int,
        echo: bool,
    ) -> Job:
        """All but the prompts."""
        config = self._context.config.model
        return Job(
            id=_ID_PREFIX[kind] + request_id,
            kind=kind,
            model=check_model(request.model, self._context.served_names),
            created=int(time.time()),
            prompts=[],
            n=request.n or 1,
            sampling=sampling_params(
                request, logprobs=logprobs, max_tokens=max_tokens, vocab_size=config.vocab_size
            ),
            max_context=config.max_model_len,
            rules=TextRules(
                stop=tuple(request.stop or ()),
                include_stop=bool(request.include_stop_str_in_output),
                skip_special_tokens=request.skip_special_tokens is not False,
                echo=echo,
            ),
            delivery=_delivery(request),
            priority=request.priority or 0,
            cache_salt=request.cache_salt or "",
        )


def _delivery(request: GenerationRequest) -> Delivery:
    """Usage in a stream is what `stream_options` asks for, so they need a stream."""
    options = request.stream_options
    if options is not None and not request.stream:
        raise invalid("'stream_options' needs 'stream' to be true.", "stream_options")
    return Delivery(
        stream=bool(request.stream),
        include_usage=bool(options and options.include_usage),
        continuous_usage=bool(options and options.continuous_usage_stats),
    )
