"""Requests that may be what kills the group.

Every request of a batch that was lost counts that loss, until it produces a token. Whoever has
counted two is a suspect: suspects are run alone, one after the other, until each has produced a
token. Whoever counts three has been alone at the third, or as good as: it is given up, and the
others go on.
"""

from __future__ import annotations

from collections.abc import Iterable

LOSSES_TO_SUSPECT = 2
LOSSES_TO_CONDEMN = 3


class Quarantine:
    def __init__(self) -> None:
        self._losses: dict[int, int] = {}
        self._suspects: set[int] = set()

    @property
    def watching(self) -> bool:
        """Whether any request has counted a loss, so that progress is worth reporting."""
        return bool(self._losses)

    @property
    def active(self) -> bool:
        """Whether suspects are to be run alone."""
        return bool(self._suspects)

    @property
    def suspects(self) -> frozenset[int]:
        return frozenset(self._suspects)

    def lost(self, ids: Iterable[int]) -> list[int]:
        """These requests were in a batch that was lost; returns those to be given up."""
        condemned = []
        for request_id in ids:
            losses = self._losses[request_id] = self._losses.get(request_id, 0) + 1
            if losses >= LOSSES_TO_SUSPECT:
                self._suspects.add(request_id)
            if losses >= LOSSES_TO_CONDEMN:
                condemned.append(request_id)
        return condemned

    def forget(self, request_id: int) -> None:
        """It has produced a token, or ended."""
        self._losses.pop(request_id, None)
        self._suspects.discard(request_id)
