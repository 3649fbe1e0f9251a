"""Limits of the HTTP side that are no part of a replica's configuration."""

from __future__ import annotations

from dataclasses import dataclass

from torpor_protocol.limits import MAX_BODY_BYTES


@dataclass(frozen=True)
class ApiSettings:
    """Times in seconds, sizes in bytes.

    ``body_seconds``: a request's body must be there by then. ``stall_seconds``: a client that takes
    nothing of a stream for so long is dropped. ``leave_seconds``: a server that is
    stopped still takes requests for so long. ``drain_seconds``: what runs then has so long to end.
    ``tick_seconds``: how often streams are looked after.
    ``inline_chars``: a longer text is tokenized in a thread.
    """

    max_body_bytes: int = MAX_BODY_BYTES
    max_bodies_bytes: int = 32 * MAX_BODY_BYTES
    body_seconds: float = 20.0
    receive_seconds: float = 30.0
    keep_alive_seconds: float = 15.0
    stall_seconds: float = 60.0
    max_unsent_chars: int = 4 * 2**20
    tick_seconds: float = 1.0
    leave_seconds: float = 0.0
    drain_seconds: float = 30.0
    idle_connection_seconds: int = 75
    max_connections: int = 4096
    inline_chars: int = 1024
    tokenizer_threads: int = 2
