"""Frames on their own: what is encoded is decoded, and any other bytes are a WireError."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor_protocol import rpc
from torpor_protocol.config import EngineConfig, ModelConfig, RankAssignment, RopeScaling
from torpor_protocol.errors import WireError
from torpor_protocol.limits import MAX_FRAME_BYTES, MAX_RANKS, PROTOCOL_VERSION

MODEL = ModelConfig(
    path="/models/tiny",
    architecture="LlamaForCausalLM",
    dtype="float32",
    max_model_len=128,
    vocab_size=1024,
    hidden_size=64,
    intermediate_size=128,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    rms_norm_eps=1e-5,
    rope_theta=10_000.0,
    rope_scaling=RopeScaling(),
    max_position=128,
    tie_word_embeddings=True,
    attention_bias=False,
    mlp_bias=False,
    eos_token_ids=(2,),
    bos_token_id=1,
)
FROM_WORKERS = [
    rpc.Hello("uid", 0, "revision", "pod", "pod-0", "10.0.0.1", 42, 2, ["cpu"], "ab12"),
    rpc.RankHello(rank=1, pid=43),
    rpc.Reply(rank=0, value=msgspec.Raw(b"\x93\x01\x02\x03")),
    rpc.Reply(rank=0, error=rpc.RankError("ModelError", "Cause.", "Fix.", "Traceback ...")),
    rpc.Progress(rank=0, tensors_done=1, tensors_total=9, bytes_done=10, bytes_total=2**40),
    rpc.RankExited(rank=0, pid=43, status=-9, log_tail="é\nlast words"),
    rpc.RankStalled(rank=0, pid=43, state="T", seconds=2.5),
    rpc.SupervisorStatus(ranks=[0, 1], resident=[2**33, 0]),
    rpc.Disbanded(),
]
FROM_ENGINE = [
    rpc.Form(
        config=EngineConfig(model=MODEL),
        assignments=[RankAssignment(0, 0, 1, "ab" * 16, "file:///run/store")],
        keys=[rpc.RankKeys("p", "s", "e")],
    ),
    rpc.Disband(),
    rpc.Call("sleep", args=msgspec.Raw(b"\x91\x01"), output_rank=3),
    rpc.Shutdown(),
    rpc.Probe(),
]
DECODERS = {rpc.decode_worker_message: FROM_WORKERS, rpc.decode_engine_message: FROM_ENGINE}


def plain(message: Any) -> Any:
    """Comparable: a Raw field is equal to nothing but itself."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(message))


def kind(message: Any) -> str:
    return type(message).__name__


@pytest.mark.parametrize("message", FROM_WORKERS, ids=kind)
@pytest.mark.parametrize("view", [bytes, memoryview])
def test_what_workers_say_arrives_as_it_was(message: rpc.WorkerMessage, view: Any) -> None:
    decoded = rpc.decode_worker_message(view(rpc.encode(message)))
    assert type(decoded) is type(message) and plain(decoded) == plain(message)
    refuses(rpc.decode_engine_message, rpc.encode(message), "bad_body")


@pytest.mark.parametrize("message", FROM_ENGINE, ids=kind)
@pytest.mark.parametrize("view", [bytes, memoryview])
def test_what_the_engine_says_arrives_as_it_was(message: rpc.EngineMessage, view: Any) -> None:
    decoded = rpc.decode_engine_message(view(rpc.encode(message)))
    assert type(decoded) is type(message) and plain(decoded) == plain(message)
    refuses(rpc.decode_worker_message, rpc.encode(message), "bad_body")


def refuses(decode: Any, body: bytes, reason: str) -> None:
    with pytest.raises(WireError) as raised:
        decode(body)
    assert raised.value.reason == reason and raised.value.cause


@pytest.mark.parametrize("decode", DECODERS)
def test_the_limit_of_a_body_is_exact(decode: Any) -> None:
    refuses(decode, bytes(MAX_FRAME_BYTES + 1), "oversized")
    refuses(decode, bytes(MAX_FRAME_BYTES), "bad_body")


def test_our_own_message_over_the_limit_is_not_sent() -> None:
    frame = rpc.encode(rpc.Reply(0, msgspec.Raw(b"")))
    value = b"\xc6" + (MAX_FRAME_BYTES - len(frame) - 5).to_bytes(4, "big")
    fits = value + bytes(MAX_FRAME_BYTES - len(frame) - 5)
    assert len(rpc.encode(rpc.Reply(0, msgspec.Raw(fits)))) == MAX_FRAME_BYTES
    with pytest.raises(WireError) as raised:
        rpc.encode(rpc.Reply(0, msgspec.Raw(fits + b"\0")))
    assert raised.value.reason == "oversized"


@pytest.mark.parametrize("rank", [-1, MAX_RANKS, 2**64 - 1, 1.5, "0", None, True])
def test_a_rank_is_a_small_number(rank: Any) -> None:
    body = msgspec.msgpack.encode({"type": "rank_hello", "rank": rank, "pid": 1})
    refuses(rpc.decode_worker_message, body, "bad_body")


def test_a_header_is_read_back() -> None:
    group = rpc.new_group_id()
    packed = rpc.pack_header(group, 2**64 - 1)
    assert len(packed) == rpc.HEADER_BYTES
    for view in (bytes, memoryview):
        assert rpc.unpack_header(view(packed)) == rpc.Header(group, 2**64 - 1)
    assert len(group) == len(rpc.NO_GROUP) == 16
    assert group not in (rpc.NO_GROUP, rpc.new_group_id())


@given(st.binary(max_size=2 * rpc.HEADER_BYTES))
def test_any_header_is_read_or_refused(data: bytes) -> None:
    try:
        header = rpc.unpack_header(data)
    except WireError as error:
        valid = len(data) == rpc.HEADER_BYTES
        assert error.reason == ("bad_version" if valid else "bad_header")
        assert not valid or data[0] != PROTOCOL_VERSION
    else:
        assert rpc.pack_header(header.group, header.sequence) == data


# Three ways to be wrong: noise, well-formed msgpack of any shape, and good frames with a few bytes
# changed, cut off or put in.

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=20,
)
FIELDS = sorted({name for message in FROM_WORKERS + FROM_ENGINE for name in plain(message)})
tags = st.sampled_from([plain(message)["type"] for message in FROM_WORKERS + FROM_ENGINE])
structures = st.builds(
    lambda tag, fields: msgspec.msgpack.encode({"type": tag, **fields}),
    tags | values,
    st.dictionaries(st.sampled_from(FIELDS), values, max_size=9),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    body = bytearray(rpc.encode(draw(st.sampled_from([*FROM_WORKERS, *FROM_ENGINE]))))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(body)))
        end = start + draw(st.integers(0, 3))
        body[start:end] = draw(st.binary(max_size=6))
    return bytes(body)


@pytest.mark.parametrize("decode", DECODERS)
@given(body=st.binary(max_size=200) | structures | damaged())
def test_any_body_is_a_message_or_a_wire_error(decode: Any, body: bytes) -> None:
    is_a_message_or_refused(decode, body)


@pytest.mark.parametrize("decode", DECODERS)
def test_ten_thousand_damaged_frames_are_messages_or_refused(decode: Any) -> None:
    """Cheaper than Hypothesis by far, so many more of the one kind that gets deepest."""
    chance = random.Random(3)
    good = [rpc.encode(message) for message in DECODERS[decode]]
    for _ in range(10_000):
        body = bytearray(chance.choice(good))
        for _ in range(chance.randint(1, 4)):
            start = chance.randint(0, len(body))
            body[start : start + chance.randint(0, 3)] = chance.randbytes(chance.randint(0, 3))
        is_a_message_or_refused(decode, bytes(body))


def is_a_message_or_refused(decode: Any, body: bytes) -> None:
    try:
        message = decode(body)
    except WireError as error:
        assert error.reason == "bad_body"
    else:
        assert type(message) in {type(known) for known in DECODERS[decode]}
        again = decode(rpc.encode(message))
        assert rpc.encode(again) == rpc.encode(message)


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("opener", [b"\x91", b"\x81\xa1a", b"\x81", b"\xdd\0\0\0\1"])
@pytest.mark.parametrize("field", ["value", "args", "kwargs", "config", "ranks", "unknown"])
def test_deep_nesting_is_refused_in_every_field(decode: Any, opener: bytes, field: str) -> None:
    for tag in ("reply", "call", "form", "status"):
        start = b"\x82" + b"".join(msgspec.msgpack.encode(text) for text in ("type", tag, field))
        refuses(decode, start + opener * 100_000 + b"\xc0", "bad_body")
