"""A request body as a JSON object, whatever the client sends.

orjson refuses what JSON is not (NaN, infinities, lone surrogates, invalid UTF-8, a byte order mark)
and keeps the last of a repeated key; an integer beyond 64 bits comes as a float, which the range of
every field refuses.
"""

from __future__ import annotations

from typing import Any

import orjson

from torpor_engine.api.errors import invalid
from torpor_protocol.limits import MAX_JSON_DEPTH


def parse_object(body: bytes) -> dict[str, Any]:
    """Raises ApiError (400) for anything but an object of bounded depth."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        message = f"The body is not valid JSON (line {error.lineno}, column {error.colno})."
        raise invalid(message, code="invalid_json") from None
    if not isinstance(value, dict):
        raise invalid("The body must be a JSON object.", code="invalid_json")
    if body.count(b"[") + body.count(b"{") > MAX_JSON_DEPTH and _too_deep(value):
        raise invalid(f"The body is nested more than {MAX_JSON_DEPTH} deep.", code="invalid_json")
    return value


def _too_deep(value: Any) -> bool:
    """Level by level, without recursion: the depth is what is in question."""
    level = [value]
    for _ in range(MAX_JSON_DEPTH):
        level = [child for parent in level for child in _containers(parent)]
        if not level:
            return False
    return True


def _containers(value: Any) -> list[Any]:
    children = value.values() if isinstance(value, dict) else value
    return [child for child in children if isinstance(child, dict | list)]
