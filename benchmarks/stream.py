"""One streaming completion, as the load generator sees it: bytes out, moments of events in.

It shares the cores with the server, so it is kept lean: a socket of its own per request, a C parser
of HTTP, and no JSON but the last chunks' of a stream.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import httptools

SHOWN_ERROR = 300


@dataclass(frozen=True)
class Target:
    """``fields`` are merged into every body; a null takes a field out."""

    host: str
    port: int
    model: str
    max_tokens: int
    fields: dict[str, Any]
    path: str = "/v1/completions"

    def request(self, prompt: str | list[int]) -> bytes:
        body = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        } | self.fields
        kept = {name: value for name, value in body.items() if value is not None}
        data = json.dumps(kept).encode()
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode() + data


@dataclass
class Answer:
    """One stream as it came: arrival and payload of each event."""

    sent: float
    events: list[tuple[float, bytes]]
    status: int = 0
    error: str = ""


class Stream(asyncio.Protocol):
    """One request over a connection of its own. ``done`` gives the answer."""

    def __init__(self, request: bytes, done: asyncio.Future[Answer]) -> None:
        self._request = request
        self._done = done
        self._parser = httptools.HttpResponseParser(self)
        self._rest = b""
        self._now = 0.0
        self._answer = Answer(time.perf_counter(), [])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._now = time.perf_counter()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._finish(repr(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(f"the connection was closed early ({exc})")

    # httptools calls these.

    def on_body(self, body: bytes) -> None:
        lines = (self._rest + body).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if line.startswith(b"data:"):
                payload = line[5:].strip()
                if payload != b"[DONE]":
                    self._answer.events.append((self._now, payload))

    def on_message_complete(self) -> None:
        self._answer.status = self._parser.get_status_code()
        if self._answer.status != 200:
            text = self._rest.decode(errors="replace")[:SHOWN_ERROR]
            self._finish(f"status {self._answer.status}: {text}")
        else:
            self._finish("")

    def _finish(self, error: str) -> None:
        if not self._done.done():
            self._answer.error = error
            self._done.set_result(self._answer)
            self._transport.close()


@dataclass(frozen=True)
class Timing:
    """What one good stream comes to. ``gaps``: between its chunks."""

    ttft: float
    tpot: float | None
    tokens: int
    prompt_tokens: int
    gaps: list[float]


def has_text(event: dict[str, Any]) -> bool:
    choices = event.get("choices") or []
    return bool(choices and choices[0].get("text"))


def timing(answer: Answer) -> Timing:
    """Raises ValueError with the reason when the stream brought no tokens."""
    if answer.error:
        raise ValueError(answer.error)
    times = [moment for moment, _ in answer.events]
    usage: dict[str, Any] = {}
    # Chunks at the end may carry the usage or the reason of the end, and no text.
    for _, payload in reversed(answer.events):
        event = json.loads(payload)
        if "error" in event:
            raise ValueError(str(event["error"])[:SHOWN_ERROR])
        usage = usage or event.get("usage") or {}
        if has_text(event):
            break
        times.pop()
    if not times:
        raise ValueError("the stream brought no text")
    tokens = int(usage.get("completion_tokens") or len(times))
    tpot = (times[-1] - times[0]) / (tokens - 1) if tokens > 1 else None
    gaps = [later - earlier for earlier, later in pairwise(times)]
    prompt = int(usage.get("prompt_tokens") or 0)
    return Timing(times[0] - answer.sent, tpot, tokens, prompt, gaps)
