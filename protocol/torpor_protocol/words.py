"""Values of strangers inside messages: short, on one line, and harmless to a terminal."""

from __future__ import annotations

import json
from typing import Final

LONGEST_VALUE: Final = 60


def shorten(value: object, longest: int = LONGEST_VALUE) -> str:
    """The value as JSON; maps and lists are only named. Never longer than ``longest``."""
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int) and value.bit_length() > 4 * LONGEST_VALUE:
        return "a huge number"  # Python itself refuses to write very long ones
    text = printable(json.dumps(value, ensure_ascii=False, default=str))
    return text if len(text) <= longest else text[: longest - 1] + "…"


def printable(text: str) -> str:
    """With control and direction characters written as escapes."""
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in text)
