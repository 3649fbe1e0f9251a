"""What reaches the server as bytes: heads, bodies and connections that are not as they ought."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator

import pytest

from api_server import MODEL, ApiServer, api_server
from raw_http import connected, post, read_all, read_until, status_of
from torpor_engine.api.settings import ApiSettings

GOOD = {"model": MODEL, "prompt": "x", "max_tokens": 1}
BODY = json.dumps(GOOD).encode()
SETTINGS = ApiSettings(
    tick_seconds=0.02,
    max_body_bytes=200_000,
    max_bodies_bytes=300_000,
    body_seconds=0.3,
    receive_seconds=0.6,
    max_connections=20,
)


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with api_server(settings=SETTINGS) as running:
        yield running


@pytest.fixture(autouse=True)
def still_serves(server: ApiServer) -> Iterator[None]:
    yield
    assert server.post("/v1/completions", GOOD).status == 200


def code_of(answer: bytes) -> str:
    error = json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]
    return str(error["code"])


def send_what_goes(connection: socket.socket, data: bytes) -> None:
    """The server may close before it has read everything."""
    with contextlib.suppress(ConnectionError):
        connection.sendall(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"GET /health HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS client
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_no_request(server: ApiServer, data: bytes) -> None:
    with connected(server.url) as connection:
        connection.sendall(data)
        answer = read_all(connection)
    assert status_of(answer) == 400
    assert code_of(answer)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\nX: " + b"a" * 2**20 + b"\r\n\r\n",
        b"GET /" + b"a" * 2**20 + b" HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
        b"GET /health HTTP/1.1\r\nX: " + b"a" * 2**20,  # and no end
    ],
    ids=["value", "path", "many", "endless"],
)
def test_heads_are_bounded(server: ApiServer, head: bytes) -> None:
    with connected(server.url) as connection:
        send_what_goes(connection, head)
        answer = read_all(connection)
    if answer:  # a reset for bytes that nobody read may overtake the answer
        assert (status_of(answer), code_of(answer)) == (431, "request_head_too_large")


def test_a_large_body_is_refused_when_it_is_announced(server: ApiServer) -> None:
    head = "POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\n"
    with connected(server.url) as connection:
        connection.sendall(f"{head}Content-Length: {50 * 2**20}\r\n\r\n".encode())
        answer = read_until(connection, b"}}")
    assert (status_of(answer), code_of(answer)) == (413, "request_too_large")


def test_a_large_body_is_refused_while_it_comes(server: ApiServer) -> None:
    """Fifty megabytes in chunks, which announce nothing; a client that sends all reads the 413."""
    with connected(server.url) as connection:
        head = b"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\n"
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"%x\r\n%s\r\n" % (2**20, b" " * 2**20)
        for _ in range(50):
            connection.sendall(chunk)
        connection.sendall(b"0\r\n\r\n")
        answer = read_until(connection, b"}}")
        assert (status_of(answer), code_of(answer)) == (413, "request_too_large")
        connection.sendall(post("/v1/completions", GOOD))
        assert status_of(read_until(connection, b"}}")) == 200


def test_an_endless_body_is_cut(server: ApiServer) -> None:
    with connected(server.url) as connection:
        head = b"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\n"
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"%x\r\n%s\r\n" % (2**20, b" " * 2**20)
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                connection.sendall(chunk)


def test_chunk_extensions_are_bounded(server: ApiServer) -> None:
    with connected(server.url) as connection:
        head = b"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\n"
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n1;x=")
        with pytest.raises(ConnectionError):
            for _ in range(200):
                connection.sendall(b"a" * 2**18)


@pytest.mark.parametrize("sent", [b"", BODY[:10]])
def test_a_slow_body_has_a_time(server: ApiServer, sent: bytes) -> None:
    begun = time.monotonic()
    with connected(server.url) as connection:
        head = "POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(BODY)}\r\n\r\n".encode() + sent)
        answer = read_all(connection)
    assert (status_of(answer), code_of(answer)) == (408, "request_timeout")
    assert time.monotonic() - begun >= SETTINGS.body_seconds


@pytest.mark.parametrize("sent", [b"", b"G", b"GET /health HTTP/1.1\r\nHost: x\r\nX: "])
def test_a_slow_head_is_cut(server: ApiServer, sent: bytes) -> None:
    with connected(server.url) as connection:
        connection.sendall(sent)
        assert read_all(connection) == b""


def test_a_trickle_does_not_stretch_the_time(server: ApiServer) -> None:
    with connected(server.url) as connection, pytest.raises(ConnectionError):
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        for _ in range(100):
            connection.sendall(b"X: y\r\n")
            time.sleep(0.02)


def test_many_slow_bodies_are_bounded_together(server: ApiServer) -> None:
    head = "POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\n"
    part = f"{head}Content-Length: 199999\r\n\r\n".encode() + b" " * 190_000
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connected(server.url)) for _ in range(4)]
        for connection in connections:
            connection.sendall(part)
        statuses = sorted(status_of(read_until(c, b"}}")) for c in connections)
    assert set(statuses) == {408, 429}


def test_connections_are_bounded(server: ApiServer) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(SETTINGS.max_connections):
            stack.enter_context(connected(server.url))
        with connected(server.url) as one_more:
            answer = read_all(one_more)
        assert (status_of(answer), code_of(answer)) == (503, "too_many_connections")
        assert b"retry-after: 1" in answer


def test_a_client_that_asks_before_it_sends(server: ApiServer) -> None:
    with connected(server.url) as connection:
        request = post("/v1/completions", GOOD, "Expect: 100-continue")
        connection.sendall(request[: -len(BODY)])
        assert read_until(connection, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(request[-len(BODY) :])
        assert status_of(read_until(connection, b"}}")) == 200


def test_requests_one_behind_the_other(server: ApiServer) -> None:
    """A pipelined request waits for the answer before it, longer than a request may take."""
    server.core.script = lambda request, position: 300
    server.core.step_seconds = 0.1
    slow = {**GOOD, "max_tokens": 10, "stream": True}
    try:
        with connected(server.url) as connection:
            both = post("/v1/completions", slow) + post("/v1/completions", GOOD)
            connection.sendall(both[:-5])
            read_until(connection, b"[DONE]\n\n\r\n0\r\n\r\n")
            connection.sendall(both[-5:])
            assert status_of(read_until(connection, b"}}")) == 200
    finally:
        server.core.step_seconds = 0.0


def test_probes_of_every_kind_of_client(server: ApiServer) -> None:
    for request in (
        b"GET /health HTTP/1.0\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: evil/\r\n\r\n",
    ):
        with connected(server.url) as connection:
            connection.sendall(request)
            assert status_of(read_until(connection, b"}")) == 200
