"""Worker methods that ``collective_rpc`` may call, and how their arguments are decoded.

``@callable_method`` on a method of the worker class is the whole extension story: the annotations
of its parameters are the schema of the call, and anything not marked cannot be called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

import msgspec

from torpor_protocol.errors import WireError
from torpor_protocol.rpc import Call

_MARK = "__torpor_callable__"
F = TypeVar("F", bound=Callable[..., Any])


def callable_method(function: F) -> F:
    """Register a worker method as callable through ``collective_rpc``."""
    setattr(function, _MARK, True)
    return function


class MethodTable:
    """The callable methods of one worker class."""

    def __init__(self, cls: type) -> None:
        self._schemas: dict[str, dict[str, msgspec.msgpack.Decoder[Any]]] = {}
        self._signatures: dict[str, inspect.Signature] = {}
        for name, function in inspect.getmembers(cls, inspect.isfunction):
            if getattr(function, _MARK, False):
                self._schemas[name] = _parameter_decoders(function)
                self._signatures[name] = inspect.signature(function)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._schemas)

    def arguments(self, call: Call) -> tuple[list[Any], dict[str, Any]]:
        """Decode a call's arguments by the method's annotations.

        Raises WireError(unknown_command | bad_arguments)."""
        schema = self._schemas.get(call.method)
        if schema is None:
            raise WireError("unknown_command", f"No worker method is called {call.method!r}.")
        try:
            args = msgspec.msgpack.decode(call.args, type=list[msgspec.Raw])
            kwargs = msgspec.msgpack.decode(call.kwargs, type=dict[str, msgspec.Raw])
            self._signatures[call.method].bind(None, *args, **kwargs)
            decoders = list(schema.values())
            positional = [decoders[i].decode(raw) for i, raw in enumerate(args)]
            named = {name: schema[name].decode(raw) for name, raw in kwargs.items()}
        except TypeError as error:
            cause = f"{call.method} does not take these arguments: {error}."
            raise WireError("bad_arguments", cause) from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise WireError("bad_arguments", f"{call.method}: {error}.") from None
        return positional, named


def _parameter_decoders(function: Callable[..., Any]) -> dict[str, msgspec.msgpack.Decoder[Any]]:
    hints = get_type_hints(function)
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    return {name: msgspec.msgpack.Decoder(hints.get(name, Any)) for name in names}


def encode_call(
    method: str, args: tuple[Any, ...], kwargs: dict[str, Any], output_rank: int
) -> Call:
    """Encode a call; arguments are msgspec structs or plain data, never callables."""
    encoder = msgspec.msgpack.Encoder()
    return Call(
        method=method,
        args=msgspec.Raw(encoder.encode(list(args))),
        kwargs=msgspec.Raw(encoder.encode(kwargs)),
        output_rank=output_rank,
    )
