"""CURVE key pairs, in the printable form (Z85) in which they travel and are stored."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import zmq
from zmq.utils import z85

from torpor_protocol.errors import ConfigError

KEY_BYTES = 32
KEY_CHARACTERS = 40


@dataclass(frozen=True)
class CurveKeys:
    """``public`` and ``secret``: 40 characters of Z85 each. The secret is never printed.

    Raises ConfigError when one of them is no key."""

    public: str
    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        check_key(self.public, "public key")
        check_key(self.secret, "secret key")

    @classmethod
    def generate(cls) -> CurveKeys:
        public, secret = zmq.curve_keypair()
        return cls(public.decode("ascii"), secret.decode("ascii"))


def check_key(text: str, what: str) -> None:
    """Raises ConfigError when it is no key; the text stays out of the error, it may be a secret."""
    try:
        valid = len(text) == KEY_CHARACTERS and len(z85.decode(text)) == KEY_BYTES
    except (KeyError, ValueError, struct.error):  # a character outside Z85, or over 32 bits
        valid = False
    if not valid:
        raise ConfigError(
            f"The {what} is not a CURVE key.",
            f"Give {KEY_CHARACTERS} characters of Z85, as CurveKeys.generate() makes them.",
        )
