"""An attacker at the wire port of an engine, who knows everything but a key that is admitted.

Told: address, what to do, for how long, and for forgeries who with which keys sends what. Tells how
many connections were made and how many frames came back.
"""

import json
import os
import resource
import socket
import sys
import time
from typing import Any

import zmq

from torpor_protocol import rpc
from torpor_protocol.transport.identity import make_identity

_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
told = json.loads(sys.stdin.readline())
host, port = told["address"]
NOISE = (
    b"GET /state HTTP/1.1\r\nhost: engine\r\n\r\n",
    b"\xff" + os.urandom(300),
    b"\x16\x03\x01" + os.urandom(200),
    bytes(4096),
    b"\xff" * 64,
)
# A greeting of ZMTP 3.1 that asks for CURVE; what has to follow it never comes.
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)


def held(first: bytes) -> int:
    """Connections that say ``first`` and then nothing, opened anew when they are dropped."""
    end = time.monotonic() + told["seconds"]
    made = 0
    open_ones: list[socket.socket] = []
    while time.monotonic() < end:
        while len(open_ones) < told["count"]:
            connection = socket.create_connection((host, port), timeout=10)
            connection.sendall(first)
            connection.setblocking(False)
            open_ones.append(connection)
            made += 1
        time.sleep(0.2)
        open_ones = [one for one in open_ones if not ended(one)]
    return made


def ended(connection: socket.socket) -> bool:
    try:
        while received := connection.recv(4096):
            del received
        connection.close()
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


def noise() -> int:
    for number in range(told["count"]):
        with socket.create_connection((host, port), timeout=10) as connection:
            connection.sendall(NOISE[number % len(NOISE)])
    return int(told["count"])


def frames(peer: dict[str, Any]) -> list[list[bytes]]:
    """What would lose or fill a group, were it taken."""
    messages: list[rpc.WorkerMessage] = [
        rpc.Hello(**peer["hello"]),
        rpc.RankExited(0, 1, -9, "forged"),
        rpc.RankHello(0, 1),
        rpc.Reply(0),
        rpc.SupervisorStatus([0], [1]),
        rpc.Disbanded(),
    ]
    chosen = [each for each in messages if type(each).__name__ in peer["kinds"]]
    groups = [bytes.fromhex(group) for group in peer["groups"]]
    return [[rpc.pack_header(group, 1), rpc.encode(each)] for group in groups for each in chosen]


def forged() -> tuple[int, int]:
    """Peers with the keys that were told, or none, that send frames and wait for any."""
    answers = 0
    with zmq.Context() as context:
        dealers = [dealer(context, peer) for peer in told["peers"]]
        end = time.monotonic() + told["seconds"]
        while time.monotonic() < end:
            answers += sum(bool(each.poll(20)) and bool(each.recv_multipart()) for each in dealers)
        for each in dealers:
            each.close()
    return len(dealers), answers


def dealer(context: zmq.Context[zmq.SyncSocket], peer: dict[str, Any]) -> zmq.SyncSocket:
    made = context.socket(zmq.DEALER)
    made.linger = 0
    made.routing_id = make_identity(peer["name"].encode())
    if peer["server"]:
        made.curve_publickey = peer["public"].encode()
        made.curve_secretkey = peer["secret"].encode()
        made.curve_serverkey = peer["server"].encode()
    made.connect(f"tcp://{host}:{port}")
    for frame in frames(peer):
        made.send_multipart(frame)
    return made


made, answers = 0, 0
match told["attack"]:
    case "idle":
        made = held(b"")
    case "half":
        made = held(GREETING)
    case "noise":
        made = noise()
    case "forged":
        made, answers = forged()
print(json.dumps({"connections": made, "answers": answers}))
