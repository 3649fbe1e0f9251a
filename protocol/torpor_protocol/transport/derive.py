"""Keys of a deployment from the one master key that the operator holds: HKDF-SHA256 (RFC 5869).

The same master key, uid and purpose give the same key for ever, so the Secret that carries the keys
can be applied again and again, and an engine or worker that comes back has the keys it had.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

import zmq
from zmq.utils import z85

from torpor_protocol.errors import ConfigError
from torpor_protocol.transport.keys import KEY_BYTES, CurveKeys

_HASH_BYTES = hashlib.sha256().digest_size
_MAX_BLOCKS = 255
_PREFIX = "torpor/v1"


def hkdf_sha256(key: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    """RFC 5869, both steps. Raises ValueError for more than 255 blocks of 32 bytes."""
    if not 0 < length <= _MAX_BLOCKS * _HASH_BYTES:
        raise ValueError(f"HKDF-SHA256 gives 1 to {_MAX_BLOCKS * _HASH_BYTES} bytes, not {length}")
    extracted = hmac.digest(salt or bytes(_HASH_BYTES), key, hashlib.sha256)
    block, output = b"", b""
    for number in range(1, -(-length // _HASH_BYTES) + 1):
        block = hmac.digest(extracted, block + info + bytes([number]), hashlib.sha256)
        output += block
    return output[:length]


def derive(master: bytes, uid: str, purpose: str) -> bytes:
    """32 bytes for one purpose of the deployment with this uid: ``admin``, ``engine/<replica>`` or
    ``worker/<replica>/<worker>``.

    Raises ConfigError when the master key is too short to be one."""
    if len(master) < KEY_BYTES:
        raise ConfigError(
            f"The master key has {len(master)} bytes; {KEY_BYTES} are needed.",
            f"Give the operator a Secret with {KEY_BYTES} random bytes.",
        )
    info = f"{_PREFIX}/{uid}/{purpose}".encode()
    return hkdf_sha256(master, b"", info, KEY_BYTES)


def curve_keys(secret: bytes) -> CurveKeys:
    """The CURVE key pair of 32 secret bytes."""
    text = z85.encode(secret)
    return CurveKeys(zmq.curve_public(text).decode("ascii"), text.decode("ascii"))


def bearer_token(secret: bytes) -> str:
    """Bytes as a token for a header: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(secret).rstrip(b"=").decode("ascii")
