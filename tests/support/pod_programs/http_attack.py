"""Bad HTTP against one port, while slow connections hang on to it: what each request gets.

Tells a status for each request, 0 where the connection was closed without one.
"""

import json
import os
import socket
import sys
import threading
import time

told = json.loads(sys.stdin.readline())
host, port = told["address"]
path = told["path"].encode()
HOST = b"Host: x\r\n"
JSON = b"Content-Type: application/json\r\n"
MIB = 2**20


def request(method: bytes, target: bytes, headers: bytes = b"", body: bytes = b"") -> bytes:
    length = b"Content-Length: %d\r\n" % len(body)
    return b"%s %s HTTP/1.1\r\n%s%s%s\r\n%s" % (method, target, HOST, headers, length, body)


METHODS = (b"PUT", b"DELETE", b"PATCH", b"TRACE", b"CONNECT", b"OPTIONS", b"BREW", b"\x00\xff", b"")
WRONG_METHODS = {f"method {method!a}": request(method, path) for method in METHODS}
BAD_HEADS = {
    "long path": request(b"GET", b"/" + b"a" * 200_000),
    "path with escapes": request(b"GET", b"/%2e%2e/%2e%2e/run/torpor/keys/admin-token"),
    "path with dots": request(b"GET", b"/../../run/torpor/keys/admin-token"),
    "absolute target": request(b"GET", b"http://127.0.0.1:8001/state"),
    "long header": request(b"POST", path, b"X-Long: " + b"a" * 300_000 + b"\r\n"),
    "many headers": request(b"POST", path, b"".join(b"X-%d: 1\r\n" % i for i in range(1000))),
    "upgrade": request(b"GET", path, b"Connection: Upgrade\r\nUpgrade: websocket\r\n"),
    "no version": b"GET %s\r\n\r\n" % path,
    "another version": b"GET %s HTTP/9.9\r\n\r\n" % path,
    "http 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(64),
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(500),
    "noise": os.urandom(4096),
    "zeros": bytes(4096),
}
BAD_BODIES = {
    "8 MiB body": request(b"POST", path, JSON, b" " * 8 * MIB),
    "announced terabyte": b"POST %s HTTP/1.1\r\n%s%sContent-Length: 1099511627776\r\n\r\nx"
    % (path, HOST, JSON),
    "negative length": b"POST %s HTTP/1.1\r\n%sContent-Length: -5\r\n\r\n" % (path, HOST),
    "two lengths": b"POST %s HTTP/1.1\r\n%sContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"
    % (path, HOST),
    "length and chunks": b"POST %s HTTP/1.1\r\n%s%sContent-Length: 4\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (path, HOST, JSON),
    "bad chunk": b"POST %s HTTP/1.1\r\n%s%sTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    % (path, HOST, JSON),
    "deep json": request(b"POST", path, JSON, b"[" * 100_000),
    "not utf-8": request(b"POST", path, JSON, b'{"prompt": "\xff\xfe"}'),
    "no json": request(b"POST", path, JSON, os.urandom(1000)),
    "no object": request(b"POST", path, JSON, b"[1]"),
    "form": request(b"POST", path, b"Content-Type: multipart/form-data\r\n", b"a=b"),
}


def status(data: bytes) -> int:
    with socket.create_connection((host, port), timeout=10) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(4096)
        except OSError:  # refused while it was still being sent
            return 0
    words = answer.split(None, 2)
    return int(words[1]) if len(words) > 1 and answer.startswith(b"HTTP/") else 0


def slow(stop: threading.Event, opened: list[int]) -> None:
    """Heads that never end, a byte a second, in as many connections as were asked for."""
    open_ones = []
    for number in range(told["slow"]):
        connection = socket.create_connection((host, port), timeout=10)
        connection.sendall(b"POST %s HTTP/1.1\r\n%sX-%d: " % (path, HOST, number))
        open_ones.append(connection)
    opened.append(len(open_ones))
    while not stop.wait(1):
        for connection in open_ones:
            try:
                connection.send(b"a")
            except OSError:
                continue


stop, opened = threading.Event(), list[int]()
thread = threading.Thread(target=slow, args=(stop, opened))
thread.start()
end = time.monotonic() + told["seconds"]
answers: dict[str, int] = {}
while not answers or time.monotonic() < end:
    for name, data in (WRONG_METHODS | BAD_HEADS | BAD_BODIES).items():
        answers[name] = max(answers.get(name, 0), status(data))
    time.sleep(0.5)
stop.set()
thread.join()
print(json.dumps({"answers": answers, "slow": opened[0]}))
