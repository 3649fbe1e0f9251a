"""Connections that never got through their handshake: no key, a wrong key, no ZeroMQ at all.

libzmq drops them before they reach the data socket; its monitor is the only witness. It reports a
failure of CURVE as such but plain text only as a disconnect, and it does not say which connection
succeeded. So connections are counted: what was accepted and disconnects without a success in
between has failed. With several handshakes at once a success is credited to the newest (an
attacker's tend to hang around); the sum is right in any case once the connections have ended.
"""

from __future__ import annotations

import zmq
from zmq.utils.monitor import parse_monitor_message

_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
_ENDPOINT = "inproc://handshakes"
_MAX_EVENTS = 256


class Handshakes:
    """``disconnects``: connections that ended after their handshake, for whatever reason."""

    def __init__(self, context: zmq.Context[zmq.SyncSocket], watched: zmq.SyncSocket) -> None:
        self.disconnects = 0
        self._pending: dict[int, None] = {}
        self._watched = watched
        watched.monitor(_ENDPOINT, _EVENTS)
        self.socket = context.socket(zmq.PAIR)
        self.socket.linger = 0
        # libzmq's I/O thread blocks on a full monitor, and with it all traffic.
        self.socket.rcvhwm = 0
        self.socket.connect(_ENDPOINT)

    def failures(self) -> int:
        """How many handshakes failed since the last call; looks at a bounded number of events."""
        failed = 0
        for _ in range(_MAX_EVENTS):
            try:
                event = parse_monitor_message(self.socket.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                break
            failed += self._failed(event["event"], event["value"])
        return failed

    def _failed(self, event: int, descriptor: int) -> bool:
        """``descriptor``: of the connection; libzmq leaves it out of a success."""
        if event == zmq.EVENT_ACCEPTED:
            self._pending[descriptor] = None
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED and self._pending:
            self._pending.popitem()
        elif event == zmq.EVENT_DISCONNECTED:
            if descriptor in self._pending:
                del self._pending[descriptor]
                return True
            self.disconnects += 1
        return False

    def close(self) -> None:
        self._watched.disable_monitor()
        self.socket.close()
