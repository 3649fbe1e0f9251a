"""Stop strings, found across the borders of tokens.

Text that could be the beginning of a stop string is held back until it is clear that it is not.
"""

from __future__ import annotations


class StopMatcher:
    """``include``: hand out the stop string that ends the text, too."""

    __slots__ = ("_held", "_include", "_stops", "found")

    def __init__(self, stops: tuple[str, ...], include: bool) -> None:
        self._stops = stops
        self._include = include
        self._held = ""
        self.found: str | None = None

    def feed(self, text: str) -> str:
        """The text that may go out now. Sets ``found`` when a stop string is complete."""
        text = self._held + text
        at, stop = len(text), None
        for candidate in self._stops:
            position = text.find(candidate, 0, at + len(candidate) - 1)
            if position >= 0:
                at, stop = position, candidate
        if stop is not None:
            self._held = ""
            self.found = stop
            return text[: at + len(stop)] if self._include else text[:at]
        keep = max(_open_length(text, candidate) for candidate in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def rest(self) -> str:
        """What was held back, when the sequence ends without a stop string."""
        held, self._held = self._held, ""
        return held


def _open_length(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that is a beginning of ``stop``."""
    start = text.find(stop[0], max(len(text) - len(stop) + 1, 0))
    while start >= 0:
        if stop.startswith(text[start:]):
            return len(text) - start
        start = text.find(stop[0], start + 1)
    return 0
