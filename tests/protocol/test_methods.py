"""Calls of worker methods by name: the annotations are the schema, the mark is the permission."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor_protocol.errors import WireError
from torpor_protocol.methods import MethodTable, callable_method, encode_call
from torpor_protocol.requests import SamplingParams
from torpor_protocol.rpc import Call, decode_engine_message, encode


class Point(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    x: int
    y: int = 0


class Worker:
    @callable_method
    def sleep(self, level: int, tags: list[str] | None = None) -> int:
        return level

    @callable_method
    def move(self, to: Point, *, note: str = "") -> Point:
        return to

    @callable_method
    def data(self, data: bytes) -> bytes:
        return data

    def secret(self) -> None: ...


class Plugin(Worker):
    @callable_method
    def profile(self) -> None: ...

    def sleep(self, level: int, tags: list[str] | None = None) -> int:
        return -level


TABLE = MethodTable(Worker)


def over_the_wire(call: Call) -> Call:
    received = decode_engine_message(encode(call))
    assert isinstance(received, Call)
    return received


@pytest.mark.parametrize(
    ("method", "args", "kwargs"),
    [
        ("sleep", (1,), {}),
        ("sleep", (2, ["weights"]), {}),
        ("sleep", (), {"level": 3, "tags": None}),
        ("move", (Point(1, 2),), {"note": "é"}),
        ("data", (b"\x00\xff" * 500,), {}),
    ],
)
def test_arguments_arrive_as_the_types_that_the_method_names(
    method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    call = over_the_wire(encode_call(method, args, kwargs, output_rank=2))
    assert call.output_rank == 2
    assert TABLE.arguments(call) == (list(args), kwargs)


def test_only_marked_methods_can_be_called() -> None:
    assert TABLE.names == {"sleep", "move", "data"}
    for name in ("secret", "__init__", "__class__", "", "sleep ", "os.system"):
        with pytest.raises(WireError) as raised:
            TABLE.arguments(Call(name))
        assert raised.value.reason == "unknown_command"


def test_a_subclass_adds_methods_and_marks_anew_what_it_overrides() -> None:
    assert MethodTable(Plugin).names == {"profile", "move", "data"}


@pytest.mark.parametrize(
    ("method", "args", "kwargs"),
    [
        ("sleep", ("1",), {}),
        ("sleep", (1.5,), {}),
        ("sleep", (1, [2]), {}),
        ("sleep", (1, [], 3), {}),
        ("sleep", (1,), {"mode": "wait"}),
        ("sleep", (1,), {"self": 1}),
        ("move", ({"x": 1, "z": 2},), {}),
        ("move", ({"y": 2},), {}),
        ("sleep", (), {}),
        ("sleep", (1,), {"level": 1}),
        ("data", ("text that is no bytes",), {}),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(WireError) as raised:
        TABLE.arguments(over_the_wire(encode_call(method, args, kwargs, -1)))
    assert raised.value.reason == "bad_arguments" and method in raised.value.cause


@given(st.sampled_from(sorted(TABLE.names)), st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_as_arguments_are_decoded_or_refused(
    method: str, args: bytes, kwargs: bytes
) -> None:
    call = Call(method, args=msgspec.Raw(args), kwargs=msgspec.Raw(kwargs))
    try:
        positional, named = TABLE.arguments(call)
    except WireError as error:
        assert error.reason == "bad_arguments"
    else:
        assert isinstance(positional, list) and isinstance(named, dict)


def test_deep_arguments_are_refused() -> None:
    nested = msgspec.Raw(b"\x91" * 100_000 + b"\xc0")
    with pytest.raises(WireError) as raised:
        TABLE.arguments(Call("sleep", args=nested))
    assert raised.value.reason == "bad_arguments"


def test_a_callable_is_no_argument() -> None:
    with pytest.raises(TypeError, match="unsupported"):
        encode_call("sleep", (lambda: 1,), {}, -1)


def test_a_struct_survives_a_call() -> None:
    class Runner:
        @callable_method
        def add(self, sampling: SamplingParams) -> None: ...

    sampling = SamplingParams(max_tokens=5, seed=1, temperature=0.7, stop_token_ids=(3, 4))
    call = over_the_wire(encode_call("add", (sampling,), {}, -1))
    assert MethodTable(Runner).arguments(call) == ([sampling], {})
