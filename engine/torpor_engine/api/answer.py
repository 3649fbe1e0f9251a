"""The response to a generation request: starts it, delivers it, and gives it up when the client
goes.

A FastAPI route returns it like any response; the work happens when the response is sent.
"""

from __future__ import annotations

import asyncio

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from torpor_engine.api.chunks import DONE
from torpor_engine.api.context import ServerContext
from torpor_engine.api.generation import Generation
from torpor_engine.api.sender import StreamSender
from torpor_engine.api.whole import whole_answer


class Answer(Response):
    """Waits for the generation to end. `StreamedAnswer` delivers it while it runs."""

    def __init__(self, context: ServerContext, generation: Generation) -> None:
        super().__init__()
        self._context = context
        self._generation = generation
        self._gone = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        router = self._context.router
        router.start(self._generation)
        watch = asyncio.create_task(self._watch(receive))
        try:
            await self._deliver(scope, receive, send)
        finally:
            watch.cancel()
            router.drop(self._generation)

    async def _watch(self, receive: Receive) -> None:
        """Nothing but the disconnect comes after the body; it is acted on at once."""
        while (await receive())["type"] != "http.disconnect":
            continue
        self._gone = True
        self._context.router.drop(self._generation)
        self._generation.news.set()

    async def _deliver(self, scope: Scope, receive: Receive, send: Send) -> None:
        generation = self._generation
        while not generation.done:
            await self._next_news()
        if self._gone:
            return
        if generation.error is not None:
            response = generation.error.response()
        else:
            response = Response(whole_answer(generation), media_type="application/json")
        await response(scope, receive, send)

    async def _next_news(self) -> None:
        await self._generation.news.wait()
        self._generation.news.clear()


class StreamedAnswer(Answer):
    async def _deliver(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender = StreamSender(self._generation, scope, send, self._context.clock)
        self._context.streams.add(sender)
        try:
            last = await self._until_done(sender)
            error = self._generation.error
            if error is not None and not sender.started:
                await error.response()(scope, receive, send)
            elif not self._gone:
                await sender.send(last, last=True)
        finally:
            self._context.streams.discard(sender)

    async def _until_done(self, sender: StreamSender) -> bytes:
        """Send what there is whenever there is something; gives the last bytes unsent."""
        generation = self._generation
        writer = sender.writer
        while not generation.done:
            await self._next_news()
            body = writer.news()
            if generation.done or self._gone:
                break
            body = body or sender.due()
            if body:
                await sender.send(body)
        else:
            body = writer.news()
        if generation.error is not None:
            return body + generation.error.event() + DONE
        return body + writer.ending()
