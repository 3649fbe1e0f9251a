"""Frames between the engine and its supervisors and ranks.

A frame is two parts: a fixed header (protocol version, group id, sequence number) that is checked
before anything is decoded, and a msgpack body of one tagged struct. Unknown tags and fields and
wrong types are refused. No byte of it is ever unpickled.
"""

from __future__ import annotations

import secrets
import struct
from typing import Annotated

import msgspec

from torpor_protocol.config import EngineConfig, RankAssignment
from torpor_protocol.errors import WireError
from torpor_protocol.limits import MAX_ERROR_TEXT, MAX_FRAME_BYTES, MAX_RANKS, PROTOCOL_VERSION

_HEADER = struct.Struct(">B16sQ")
HEADER_BYTES = _HEADER.size
NO_GROUP = bytes(16)

Name = Annotated[str, msgspec.Meta(max_length=253)]
Text = Annotated[str, msgspec.Meta(max_length=2 * MAX_ERROR_TEXT)]
Rank = Annotated[int, msgspec.Meta(ge=0, lt=MAX_RANKS)]


class Header(msgspec.Struct, frozen=True):
    """``group``: 16 bytes; zeros before a group exists. A reply echoes the call's ``sequence``."""

    group: bytes
    sequence: int


def new_group_id() -> bytes:
    """A random 128-bit id of one formation."""
    return secrets.token_bytes(16)


def pack_header(group: bytes, sequence: int) -> bytes:
    return _HEADER.pack(PROTOCOL_VERSION, group, sequence)


def unpack_header(data: bytes | memoryview) -> Header:
    """Raises WireError(bad_header | bad_version)."""
    if len(data) != HEADER_BYTES:
        raise WireError("bad_header", f"A header has {len(data)} bytes, not {HEADER_BYTES}.")
    version, group, sequence = _HEADER.unpack(data)
    if version != PROTOCOL_VERSION:
        raise WireError("bad_version", f"A peer speaks protocol {version}, not {PROTOCOL_VERSION}.")
    return Header(group, sequence)


# Supervisor and ranks -> engine


class Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="hello"):
    """A supervisor offers its pod. ``devices``: how many ranks it can hold. ``incarnation``: made
    anew by each process; in a container every first process has pid 1."""

    deployment_uid: Name
    replica: int
    revision: Name
    pod_uid: Name
    pod_name: Name
    address: Name
    pid: int
    devices: Annotated[int, msgspec.Meta(ge=1, le=MAX_RANKS)]
    capabilities: Annotated[list[Name], msgspec.Meta(max_length=32)] = []
    incarnation: Name = ""


class RankHello(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="rank_hello"):
    """A rank process is up and waits for calls."""

    rank: Rank
    pid: int


class RankError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An exception on a rank. ``user`` errors carry cause and fix; others only a traceback."""

    error_class: Name
    message: Text
    fix: Text = ""
    traceback: Text = ""


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="reply"):
    """Every rank answers every call: a payload, an acknowledgement (``value`` None) or an error."""

    rank: Rank
    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    error: RankError | None = None


class Progress(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="progress"):
    rank: Rank
    tensors_done: int
    tensors_total: int
    bytes_done: int
    bytes_total: int


class RankExited(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="rank_exited"):
    """``status``: exit code, or minus the signal that killed it."""

    rank: Rank
    pid: int
    status: int
    log_tail: Text = ""


class RankStalled(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="rank_stalled"):
    """A rank process is stopped (state T or t of its /proc stat) or otherwise cannot run."""

    rank: Rank
    pid: int
    state: Name
    seconds: float


class SupervisorStatus(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="status"):
    """Sent every second: the supervisor lives. ``resident``: RSS bytes of each rank, in order of
    ``ranks``."""

    ranks: Annotated[list[Rank], msgspec.Meta(max_length=MAX_RANKS)]
    resident: Annotated[list[int], msgspec.Meta(max_length=MAX_RANKS)]


class Disbanded(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="disbanded"):
    """All rank processes of the group are dead and reaped."""


WorkerMessage = (
    Hello | RankHello | Reply | Progress | RankExited | RankStalled | SupervisorStatus | Disbanded
)

# Engine -> supervisor and ranks


class RankKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """CURVE keys (Z85) of one rank; empty where the transport is ipc on one machine."""

    public: str = ""
    secret: str = ""
    server: str = ""

    def __repr__(self) -> str:
        return f"RankKeys(public={self.public!r}, server={self.server!r})"


class Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="form"):
    """Start these ranks under the group id of the header. ``keys`` runs parallel to
    ``assignments``."""

    config: EngineConfig
    assignments: Annotated[list[RankAssignment], msgspec.Meta(min_length=1, max_length=MAX_RANKS)]
    keys: list[RankKeys]


class Disband(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="disband"):
    """SIGKILL every rank of the group in the header, then answer Disbanded."""


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="call"):
    """Run a method that the worker class registered as callable. ``args``: msgpack array,
    ``kwargs``: msgpack map, decoded by the method's annotations. Only ``output_rank`` sends its
    value (-1: every rank does); the others acknowledge."""

    method: Name
    args: msgspec.Raw = msgspec.Raw(b"\x90")
    kwargs: msgspec.Raw = msgspec.Raw(b"\x80")
    output_rank: int = -1


class Shutdown(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="shutdown"):
    """End: a rank leaves, a supervisor kills its ranks and leaves."""


class Probe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="probe"):
    """Nothing to do: only that it can be sent says that the peer is connected."""


EngineMessage = Form | Disband | Call | Shutdown | Probe

_worker_decoder = msgspec.msgpack.Decoder(WorkerMessage)
_engine_decoder = msgspec.msgpack.Decoder(EngineMessage)
_encoder = msgspec.msgpack.Encoder()


def encode(message: WorkerMessage | EngineMessage) -> bytes:
    """Raises WireError(oversized) when the body is over the limit."""
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise WireError("oversized", f"A frame of {len(body)} bytes is over {MAX_FRAME_BYTES}.")
    return body


def _check(body: bytes | memoryview) -> None:
    if len(body) > MAX_FRAME_BYTES:
        raise WireError("oversized", f"A frame of {len(body)} bytes is over {MAX_FRAME_BYTES}.")


def decode_worker_message(body: bytes | memoryview) -> WorkerMessage:
    """Raises WireError(oversized | bad_body) and nothing else."""
    _check(body)
    try:
        return _worker_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError("bad_body", f"A frame from a worker does not decode: {error}.") from None


def decode_engine_message(body: bytes | memoryview) -> EngineMessage:
    """Raises WireError(oversized | bad_body) and nothing else."""
    _check(body)
    try:
        return _engine_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError("bad_body", f"A frame from the engine does not decode: {error}.") from None
