"""Streams as bytes: order, comments, clients that are slow, gone, or never read."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from api_server import MODEL, ApiServer, api_server, tiny_tokenizer
from fake_core import FakeCore, says
from raw_http import connected, post, read_all, read_until, status_of
from torpor_engine.api.chunks import ChunkWriter
from torpor_engine.api.direct_write import Connection
from torpor_engine.api.generation import Generation
from torpor_engine.api.job import Delivery, Job, TextRules
from torpor_engine.api.prompts import Prompt
from torpor_engine.api.settings import ApiSettings
from torpor_protocol.requests import Finished, SamplingParams

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}
COMPLETION = {"model": MODEL, "prompt": "hi", "stream": True}
PATHS = {"/v1/chat/completions": CHAT, "/v1/completions": COMPLETION}


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with api_server() as running:
        yield running


def events(body: bytes) -> list[Any]:
    """The data of every event, `[DONE]` as a string; comments are left out."""
    found = []
    for event in body.decode().split("\n\n"):
        if event and not event.startswith(":"):
            data = event.removeprefix("data: ")
            found.append(data if data == "[DONE]" else json.loads(data))
    return found


def ask(server: ApiServer, path: str, **fields: Any) -> list[Any]:
    answer = server.post(path, {**PATHS[path], **fields})
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    return events(answer.body)


def test_order_of_a_chat(server: ApiServer) -> None:
    server.core.script = says([300, 301])
    first, *texts, end, usage, done = ask(
        server, "/v1/chat/completions", stream_options={"include_usage": True}
    )
    constant = {key: first[key] for key in ("id", "object", "created", "model")}
    assert first["choices"] == [
        {
            "index": 0,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
    ]
    assert all(set(chunk["choices"][0]["delta"]) == {"content"} for chunk in texts)
    assert end["choices"] == [
        {
            "index": 0,
            "delta": {},
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": 2,
        }
    ]
    assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == 3
    assert all("usage" not in chunk for chunk in (first, *texts, end))
    assert all(constant.items() <= chunk.items() for chunk in (*texts, end, usage))
    assert done == "[DONE]"


def test_order_of_a_completion(server: ApiServer) -> None:
    server.core.script = says([300, 301])
    *texts, end, done = ask(server, "/v1/completions")
    assert "".join(chunk["choices"][0]["text"] for chunk in texts) == tiny_tokenizer().decode(
        [300, 301]
    )
    assert end["choices"][0] == {
        "index": 0,
        "text": "",
        "logprobs": None,
        "finish_reason": "stop",
        "stop_reason": 2,
    }
    assert done == "[DONE]"


def test_usage_in_every_chunk(server: ApiServer) -> None:
    server.core.script = says([300, 301, 302])
    server.core.step_seconds = 0.01
    options = {"include_usage": True, "continuous_usage_stats": True}
    try:
        *chunks, _ = ask(server, "/v1/completions", stream_options=options)
    finally:
        server.core.step_seconds = 0.0
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1] == 4


@pytest.mark.parametrize("path", PATHS)
def test_an_error_within_a_stream(path: str) -> None:
    core = FakeCore(step_seconds=0.01)
    with api_server(core) as server, connected(server.url) as connection:
        connection.sendall(post(path, {**PATHS[path], "max_tokens": 400}, "Connection: close"))
        begun = read_until(connection, b"data: ")
        [request] = core.submitted
        server.call(
            lambda: core.end(request.id, Finished(request.id, "error", message="It broke."))
        )
        rest = begun + read_all(connection)
    assert status_of(begun) == 200
    tail = rest.split(b"data: ")[-2:]
    assert json.loads(tail[0].split(b"\n\n")[0])["error"]["message"] == "It broke."
    assert tail[1].startswith(b"[DONE]\n\n")


@pytest.mark.parametrize(("reason", "status"), [("error", 500), ("abort", 503)])
@pytest.mark.parametrize("stream", [True, False])
def test_an_error_before_the_first_token_is_a_status(
    reason: Any, status: int, stream: bool
) -> None:
    core = FakeCore()
    core.paused = True
    with api_server(core) as server, connected(server.url) as connection:
        connection.sendall(post("/v1/completions", {**COMPLETION, "stream": stream, "n": 3}))
        server.until(lambda: len(core.submitted) == 3)
        second = core.submitted[1].id
        server.call(lambda: core.end(second, Finished(second, reason)))
        answer = read_until(connection, b"}}")
        assert status_of(answer) == status
        assert json.loads(answer.split(b"\r\n\r\n")[1])["error"]["code"]
        server.until(lambda: server.context.admission.unfinished == 0)
    assert sorted(core.aborted) == sorted(r.id for r in core.submitted if r.id != second)


def test_comments_while_nothing_comes() -> None:
    core = FakeCore()
    core.paused = True
    settings = ApiSettings(tick_seconds=0.01, keep_alive_seconds=0.05)
    with api_server(core, settings=settings) as server, connected(server.url) as connection:
        connection.sendall(post("/v1/completions", COMPLETION, "Connection: close"))
        quiet = read_until(connection, b": keep-alive\n\n")
        assert status_of(quiet) == 200
        read_until(connection, b": keep-alive\n\n")

        def resume() -> None:
            core.paused = False
            core.go()

        server.call(resume)
        assert b"data: [DONE]" in read_all(connection)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_frees_its_place(server: ApiServer, stream: bool) -> None:
    server.core.script = lambda request, position: 300
    server.core.paused = True
    server.core.aborted.clear()
    server.core.submitted.clear()
    try:
        with connected(server.url) as connection:
            connection.sendall(post("/v1/completions", {**COMPLETION, "stream": stream, "n": 2}))
            server.until(lambda: len(server.core.submitted) == 2)
        server.until(lambda: len(server.core.aborted) == 2)
    finally:
        server.core.paused = False
    assert server.core.aborted == [request.id for request in server.core.submitted]
    server.until(lambda: server.context.admission.unfinished == 0)
    assert server.call(lambda: not server.context.streams)


LONG = {**COMPLETION, "max_tokens": 500, "n": 16, "logprobs": 20}


@pytest.mark.parametrize(
    "settings",
    [
        ApiSettings(tick_seconds=0.02, stall_seconds=0.2),
        ApiSettings(tick_seconds=0.02, max_unsent_chars=20_000),
    ],
    ids=["time", "size"],
)
def test_a_client_that_does_not_read_is_cut(settings: ApiSettings) -> None:
    core = FakeCore(max_num_seqs=64)
    with (
        api_server(core, settings=settings, max_queued=64) as server,
        connected(server.url, receive_buffer=4096) as connection,
    ):
        connection.sendall(post("/v1/completions", LONG))
        server.until(lambda: len(core.submitted) == 16)
        # Its answer has more bytes than the kernel holds for it, and it reads none of them.
        server.until(lambda: server.context.admission.unfinished == 0)
        server.until(lambda: not server.context.streams)
        answer = server.post("/v1/completions", {**COMPLETION, "stream": False})
        assert answer.status == 200
        assert b"[DONE]" not in read_all(connection)


def test_a_slow_client_gets_the_text_of_several_steps_at_once() -> None:
    tokenizer = tiny_tokenizer()
    job = Job(
        id="cmpl-1",
        kind="completion",
        model=MODEL,
        created=1,
        prompts=[Prompt([5])],
        n=2,
        sampling=SamplingParams(max_tokens=9, seed=1),
        max_context=64,
        rules=TextRules(),
        delivery=Delivery(stream=True),
    )
    generation = Generation(job, tokenizer, itertools.count())
    writer = ChunkWriter(generation)
    ids = tokenizer.encode("the lazy dog sleeps")
    for token in ids:
        generation.choices[1].accept(token)
    [chunk] = events(writer.news())
    assert chunk["choices"][0]["index"] == 1
    assert chunk["choices"][0]["text"] == "the lazy dog sleeps"
    assert writer.news() == b""


@pytest.mark.parametrize("path", PATHS)
def test_what_a_connection_does_not_take_at_once_comes_in_order(
    server: ApiServer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks written where they are made and chunks sent by the stream's task are one stream."""
    ids = [300 + i for i in range(80)]
    server.core.script = says(ids)
    write = Connection.write
    calls = itertools.count()

    def sometimes(connection: Connection, body: bytes) -> bool:
        return next(calls) % 3 == 0 and write(connection, body)

    monkeypatch.setattr(Connection, "write", sometimes)
    *chunks, done = ask(server, path, max_tokens=100)
    choices = [chunk["choices"][0] for chunk in chunks]
    texts = [choice.get("text") or choice.get("delta", {}).get("content", "") for choice in choices]
    assert "".join(texts) == tiny_tokenizer().decode(ids)
    assert (choices[-1]["finish_reason"], done) == ("stop", "[DONE]")
    assert next(calls) > 20


@pytest.mark.parametrize("path", PATHS)
def test_a_dead_core_is_a_status(path: str) -> None:
    core = FakeCore()
    core.dead = True
    with api_server(core) as server:
        answer = server.post(path, PATHS[path])
        assert (answer.status, answer.error["code"]) == (503, "engine_dead")
        assert server.call(lambda: server.context.admission.unfinished) == 0
