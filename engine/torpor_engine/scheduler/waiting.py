"""The queue of requests without a row, ordered by (priority, arrival): smaller comes first."""

from __future__ import annotations

import heapq

from torpor_engine.journal import JournalEntry

_SLACK = 64


class WaitingQueue:
    """A heap in which removed requests stay as dead weight until they surface or outnumber the
    living, so that every operation is O(log n) on average and memory stays proportional."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, JournalEntry]] = []
        self._living: set[int] = set()

    def __len__(self) -> int:
        return len(self._living)

    def push(self, entry: JournalEntry) -> None:
        self._living.add(entry.arrival)
        heapq.heappush(self._heap, (entry.priority, entry.arrival, entry))
        if len(self._heap) > 2 * len(self._living) + _SLACK:
            alive = {item[1]: item for item in self._heap if item[1] in self._living}
            self._heap = list(alive.values())
            heapq.heapify(self._heap)

    def peek(self) -> JournalEntry | None:
        """The request to be admitted next."""
        while self._heap and self._heap[0][1] not in self._living:
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    def remove(self, entry: JournalEntry) -> None:
        self._living.discard(entry.arrival)
