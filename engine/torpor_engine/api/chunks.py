"""The chunks of a stream, as bytes of server-sent events.

Order, per choice: the role (chat only), text, the reason it ended; then, for the whole request, the
usage with no choice, and `[DONE]`. All that does not change is built once per request, because this
runs for every token.
"""

from __future__ import annotations

from typing import Any

import orjson

from torpor_engine.api.choice import Choice
from torpor_engine.api.forms import FORMS
from torpor_engine.api.generation import Generation
from torpor_engine.api.usage import usage

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
_OPEN = b',"logprobs":null,"finish_reason":null'
_TAIL = b"}]}\n\n"


class ChunkWriter:
    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        job = generation.job
        form = self._form = FORMS[job.kind]
        self._with_usage = job.delivery.continuous_usage
        self._with_logprobs = job.sampling.logprobs >= 0
        constant = {
            "id": job.id,
            "object": form.chunk_object,
            "created": job.created,
            "model": job.model,
        }
        self._start = b"data: " + orjson.dumps(constant)[:-1] + b',"choices":['
        self._heads = [self._start + b'{"index":%d' % choice.index for choice in generation.choices]
        # Around the text of a chunk that holds nothing but text.
        self._before = [head + form.before for head in self._heads]
        self._after = form.after + _OPEN + _TAIL
        self._plain = not (self._with_usage or self._with_logprobs)
        self._opened = [not form.opening for _ in generation.choices]
        self._closed = [False for _ in generation.choices]
        self._unsent = b""

    def news(self) -> bytes:
        """Everything since the last call; texts of several steps come in one chunk."""
        parts = [self._unsent]
        self._unsent = b""
        for choice in self._generation.choices:
            index = choice.index
            if choice.finish_reason is None and self._opened[index] and self._plain:
                text = choice.take_text()
                if text:
                    parts += (self._before[index], orjson.dumps(text), self._after)
            elif not self._closed[index]:
                self._add_choice(choice, parts)
        return b"".join(parts)

    def put_back(self, body: bytes) -> None:
        """``body`` of the last `news` could not be sent: the next one begins with it."""
        self._unsent = body

    def ending(self) -> bytes:
        """What follows the last choice."""
        if not self._generation.job.delivery.include_usage:
            return DONE
        return self._start + b'],"usage":' + orjson.dumps(usage(self._generation)) + b"}\n\n" + DONE

    def _add_choice(self, choice: Choice, parts: list[bytes]) -> None:
        text = choice.take_text()
        ended = choice.finish_reason is not None
        placed = choice.take_logprobs() if self._with_logprobs and (text or ended) else []
        if not (text or ended):
            return
        form, head, tail = self._form, self._heads[choice.index], self._tail()
        if not self._opened[choice.index]:
            self._opened[choice.index] = True
            parts += (head, form.opening, _OPEN, tail)
        if placed:
            logprobs = orjson.dumps(form.logprobs(placed, self._generation.tokenizer))
            parts += (head, form.before, orjson.dumps(text), form.after)
            parts += (b',"logprobs":', logprobs, b',"finish_reason":null', tail)
        elif text:
            parts += (head, form.before, orjson.dumps(text), form.after, _OPEN, tail)
        if ended:
            self._closed[choice.index] = True
            parts += (head, form.closing, b',"logprobs":null,', _reasons(choice), tail)

    def _tail(self) -> bytes:
        if not self._with_usage:
            return _TAIL
        return b'}],"usage":' + orjson.dumps(usage(self._generation)) + b"}\n\n"


def _reasons(choice: Choice) -> bytes:
    reasons: dict[str, Any] = {
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
    }
    return orjson.dumps(reasons)[1:-1]
