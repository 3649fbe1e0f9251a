"""The routing identity that a peer connects under: its name, then a random nonce.

ZeroMQ lets every peer choose its identity and sends whatever is addressed to an identity to the
peer that holds it. With the bare name as identity a rank could sit on the name of another one and
read what is meant for it. The nonce goes only to the engine, so nobody else can claim the
identity; and a process that was restarted comes back under its name with a new nonce.
"""

from __future__ import annotations

import secrets

from torpor_protocol.errors import ConfigError
from torpor_protocol.limits import MAX_PEER_NAME

NONCE_BYTES = 16


def checked_name(name: bytes) -> bytes:
    """Raises ConfigError unless ``name`` is 1 to MAX_PEER_NAME bytes of printable ASCII."""
    if not 1 <= len(name) <= MAX_PEER_NAME or not all(32 < byte < 127 for byte in name):
        raise ConfigError(
            f"{printable(name)} is not a name for a peer.",
            f"Use 1 to {MAX_PEER_NAME} printable ASCII characters without spaces.",
        )
    return name


def make_identity(name: bytes) -> bytes:
    """A fresh routing identity for one connection of the peer ``name``."""
    return checked_name(name) + secrets.token_bytes(NONCE_BYTES)


def claimed_name(identity: bytes) -> bytes:
    """The name a routing identity claims; empty when it is too short to hold one."""
    return identity[:-NONCE_BYTES]


def printable(name: bytes) -> str:
    """A peer's name for people: never more than a line of ASCII, whatever a peer made up."""
    return ascii(name[:MAX_PEER_NAME].decode("ascii", "backslashreplace"))
