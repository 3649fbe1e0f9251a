"""The load generator against a small server on loopback that answers as it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence

import pytest
from benchmarks.load import closed_loop, summary
from benchmarks.stream import Answer, Target, timing

Reply = Callable[[dict[str, object], asyncio.StreamWriter], Awaitable[None]]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(text: str | None = None, **fields: object) -> bytes:
    choices = [] if text is None else [{"index": 0, "text": text}]
    return b"data: " + json.dumps({"choices": choices, **fields}).encode() + b"\n\n"


class SmallServer:
    """Reads one request per connection and leaves the answer to ``reply``."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.bodies: list[dict[str, object]] = []
        self.at_once = 0
        self.most_at_once = 0

    async def __aenter__(self) -> SmallServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.split(":")[1])
            for line in head.splitlines()
            if line.lower().startswith("content-length")
        )
        body = json.loads(await reader.readexactly(length))
        self.bodies.append(body)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self._reply(body, writer)
        self.at_once -= 1
        writer.close()
        await writer.wait_closed()


def run(
    reply: Reply, prompts: Sequence[str | list[int]], concurrency: int = 1, **fields: object
) -> tuple[list[Answer], SmallServer]:
    async def main() -> tuple[list[Answer], SmallServer]:
        async with SmallServer(reply) as server:
            target = Target("127.0.0.1", server.port, "m", 3, dict(fields))
            answers, wall = await closed_loop(target, prompts, concurrency)
            assert wall > 0
            return answers, server

    return asyncio.run(main())


async def three_tokens(body: dict[str, object], writer: asyncio.StreamWriter) -> None:
    """One event cut in two, two events in one piece, a reason, a usage, the end."""
    first = event("a")
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    writer.write(HEAD + chunk(first[:9]))
    await writer.drain()
    writer.write(chunk(first[9:]))
    await writer.drain()
    await asyncio.sleep(0.002)
    writer.write(chunk(event("b") + event("c")) + chunk(event("")))
    writer.write(chunk(event(None, usage=usage)) + chunk(b"data: [DONE]\n\n") + chunk(b""))
    await writer.drain()


def test_a_stream_is_timed_by_its_text() -> None:
    (answer,), server = run(three_tokens, ["hello"], ignore_eos=None)
    found = timing(answer)
    assert (found.tokens, found.prompt_tokens, len(found.gaps)) == (3, 7, 2)
    assert found.ttft > 0 and found.tpot is not None and found.tpot > 0
    (body,) = server.bodies
    assert body["prompt"] == "hello" and body["temperature"] == 0 and body["max_tokens"] == 3
    assert body["stream_options"] == {"include_usage": True}
    assert "ignore_eos" not in body


def test_the_loop_is_closed_at_its_concurrency() -> None:
    prompts: list[str | list[int]] = [[number] for number in range(9)]
    answers, server = run(three_tokens, prompts, concurrency=3)
    assert server.most_at_once == 3
    assert sorted(str(body["prompt"]) for body in server.bodies) == [f"[{n}]" for n in range(9)]
    result = summary(answers, 2.0)
    assert result["ok"] == 9 and result["errors"] == 0
    assert result["output_tokens"] == 27 and result["output_tok_s"] == 13.5
    assert result["prompt_tokens"] == 63 and result["ttft_p50"] > 0


async def refuses(body: dict[str, object], writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 4\r\n\r\nbusy")
    await writer.drain()


async def breaks_off(body: dict[str, object], writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + chunk(event("a")))
    await writer.drain()


async def fails_in_the_stream(body: dict[str, object], writer: asyncio.StreamWriter) -> None:
    failure = b'data: {"error": {"message": "the model is gone"}}\n\n'
    writer.write(HEAD + chunk(event("a")) + chunk(failure) + chunk(b""))
    await writer.drain()


async def says_nothing(body: dict[str, object], writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + chunk(b"data: [DONE]\n\n") + chunk(b""))
    await writer.drain()


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (refuses, "status 429: busy"),
        (breaks_off, "closed early"),
        (fails_in_the_stream, "the model is gone"),
        (says_nothing, "no text"),
    ],
)
def test_what_fails_is_counted_and_told(reply: Reply, told: str) -> None:
    answers, _ = run(reply, ["a", "b"])
    result = summary(answers, 1.0)
    assert (result["ok"], result["errors"]) == (0, 2)
    assert told in result["first_error"]
    assert result["output_tok_s"] == 0 and result["ttft_p50"] is None


def test_a_server_that_is_not_there_is_an_error() -> None:
    async def main() -> list[Answer]:
        async with SmallServer(three_tokens) as server:
            port = server.port
        answers, _ = await closed_loop(Target("127.0.0.1", port, "m", 3, {}), ["a"], 1)
        return answers

    assert summary(asyncio.run(main()), 1.0)["errors"] == 1
