"""A served model whose worker wire is attacked: refused, counted, and nobody notices."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import psutil
import zmq

from replica import Replica, running
from torpor_engine.core.publisher import STATE_SECONDS
from torpor_protocol import rpc
from torpor_protocol.transport import CurveClient, CurveKeys, Dealer

FLAGS = ("--dtype", "float32", "--max-model-len", "256", "--tensor", "2")


def worker_port(replica: Replica) -> int:
    """The port on which the core listens for its workers."""
    core = next(p for p in replica.descendants() if "torpor_engine.core" in " ".join(p.cmdline()))
    (listening,) = [c for c in core.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    return int(listening.laddr.port)


def throw(port: int, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(data)
        time.sleep(0.05)


def knock(port: int, *, curve: bool) -> None:
    """A ZeroMQ peer without a key, or with one that nobody admitted and a wrong server key."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        if curve:
            dealer.curve_publickey, dealer.curve_secretkey = zmq.curve_keypair()
            dealer.curve_serverkey = zmq.curve_keypair()[0]
        dealer.connect(f"tcp://127.0.0.1:{port}")
        dealer.send_multipart([rpc.pack_header(rpc.NO_GROUP, 0), b"x"])
        time.sleep(0.3)


def wait_refused(replica: Replica, count: int) -> int:
    """Until so many handshakes were refused; gives how many there were in the end."""
    deadline = time.monotonic() + 10
    while replica.state()["wire_rejected"].get("handshake", 0) < count:
        assert time.monotonic() < deadline, f"{replica.state()['wire_rejected']}, not {count}"
        time.sleep(0.2)
    time.sleep(2 * STATE_SECONDS)  # the state may be that old, and not have all of them yet
    return int(replica.state()["wire_rejected"]["handshake"])


def test_the_service_is_unaffected(tiny_llama: Path) -> None:
    with running(tiny_llama, *FLAGS, "--worker-transport", "tcp") as replica:
        golden = replica.complete([5, 6, 7], 48)["text"]
        pids, port = replica.rank_pids(), worker_port(replica)
        for data in (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", os.urandom(4096), b"\xff" * 64):
            for _ in range(10):
                throw(port, data)
        # Peers of ZeroMQ try again and again: each has to add to what was refused before it.
        refused = wait_refused(replica, 30)
        knock(port, curve=False)
        refused = wait_refused(replica, refused + 1)
        knock(port, curve=True)
        refused = wait_refused(replica, refused + 1)
        stranger = CurveClient(CurveKeys.generate(), CurveKeys.generate().public)
        dealer = Dealer.connect(f"tcp://127.0.0.1:{port}", b"rank-0", stranger)
        dealer.send(rpc.NO_GROUP, 0, rpc.RankHello(0, 1))
        time.sleep(0.3)
        dealer.close()
        wait_refused(replica, refused + 1)
        assert replica.complete([5, 6, 7], 48)["text"] == golden
        assert replica.rank_pids() == pids
        state = replica.state()
        assert state["wire_rejected"].keys() == {"handshake"}, "one got further than its handshake"
        assert state["restarts"] == 0
