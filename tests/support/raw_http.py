"""HTTP by hand, for what no client library does: to stop reading, to be slow, to be wrong."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

TIMEOUT = 20.0


@contextlib.contextmanager
def connected(url: str, *, receive_buffer: int = 0) -> Iterator[socket.socket]:
    """``receive_buffer``: bytes that the kernel takes for us while we do not read."""
    parts = urlsplit(url)
    with socket.socket() as connection:
        connection.settimeout(TIMEOUT)
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.connect((parts.hostname, parts.port))
        yield connection


def post(path: str, body: Any, *headers: str) -> bytes:
    """The bytes of a request with a JSON body."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: test",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def read_until(connection: socket.socket, end: bytes) -> bytes:
    """Everything up to and with ``end``, or up to the end of the connection."""
    data = b""
    while end not in data:
        with_more = _receive(connection)
        if not with_more:
            break
        data += with_more
    return data


def read_all(connection: socket.socket) -> bytes:
    """Until the server closes."""
    data = b""
    while more := _receive(connection):
        data += more
    return data


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has closed, once what it sent is read."""
    read_all(connection)
    return True


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except ConnectionError:
        return b""
