"""Integer arrays on the wire: little-endian bytes inside a msgpack field.

One array instead of a list of Python integers keeps a step's message small and its decoding
independent of the number of requests.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from torpor_protocol.errors import WireError

I32Array = NDArray[np.int32]
I64Array = NDArray[np.int64]

EMPTY = b""


def pack_i32(values: I32Array | list[int]) -> bytes:
    """Encode as little-endian int32."""
    return np.ascontiguousarray(values, dtype="<i4").tobytes()


def unpack_i32(data: bytes) -> I32Array:
    """Decode a read-only int32 array; raises WireError when the length is not a multiple of 4."""
    if len(data) % 4:
        raise WireError("bad_array", f"An int32 array has {len(data)} bytes.")
    return np.frombuffer(data, dtype="<i4")


def pack_i64(values: I64Array | list[int]) -> bytes:
    """Encode as little-endian int64."""
    return np.ascontiguousarray(values, dtype="<i8").tobytes()


def unpack_i64(data: bytes) -> I64Array:
    """Decode a read-only int64 array; raises WireError when the length is not a multiple of 8."""
    if len(data) % 8:
        raise WireError("bad_array", f"An int64 array has {len(data)} bytes.")
    return np.frombuffer(data, dtype="<i8")
