"""What every unfinished request needs to be continued, whatever happens to the workers.

Prompt, tokens handed out, sampling parameters with their seed, and the order of arrival. A token is
in the journal before anybody sees it, and only the token that follows the last one is ever asked
for, so nothing is handed out twice after a loss of the group, a sleep or a preemption.

Requests that have a row keep their tokens in one array, so that a step's tokens are appended with
one scatter; the others keep a copy of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torpor_protocol.arrays import I32Array, unpack_i32
from torpor_protocol.requests import AddRequest, SamplingParams

NO_ROW = -1


class JournalEntry:
    """One unfinished request. ``arrival`` orders requests of equal priority for ever; ``started``:
    the client has been told; ``block_hashes`` belongs to the prefix cache."""

    __slots__ = (
        "arrival",
        "block_hashes",
        "cache_salt",
        "id",
        "kept",
        "priority",
        "prompt_len",
        "row",
        "sampling",
        "started",
    )

    def __init__(self, request: AddRequest, arrival: int) -> None:
        self.id: int = request.id
        self.sampling: SamplingParams = request.sampling
        self.priority: int = request.priority
        self.cache_salt: str = request.cache_salt
        self.arrival = arrival
        self.kept: I32Array = unpack_i32(request.prompt)
        self.prompt_len = len(self.kept)
        self.row = NO_ROW
        self.started = False
        self.block_hashes: list[bytes] = []


class Journal:
    """``tokens`` int32 [rows, max_model_len] (the operating system gives it memory where it is
    written), ``lengths`` int32 [rows]: how many tokens the request in a row has."""

    def __init__(self, num_rows: int, max_model_len: int) -> None:
        self.tokens: I32Array = np.zeros((num_rows, max_model_len), np.int32)
        self.lengths: I32Array = np.zeros(num_rows, np.int32)
        self._entries: dict[int, JournalEntry] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[JournalEntry]:
        return iter(self._entries.values())

    def open(self, request: AddRequest) -> JournalEntry:
        entry = JournalEntry(request, self._arrivals)
        self._arrivals += 1
        self._entries[entry.id] = entry
        return entry

    def get(self, request_id: int) -> JournalEntry | None:
        return self._entries.get(request_id)

    def close(self, entry: JournalEntry) -> None:
        """The request has ended."""
        del self._entries[entry.id]

    def seat(self, entry: JournalEntry, row: int) -> None:
        """Move a request's tokens into a free row."""
        length = len(entry.kept)
        self.tokens[row, :length] = entry.kept
        self.lengths[row] = length
        entry.row = row
        entry.kept = entry.kept[:0]

    def unseat(self, entry: JournalEntry) -> None:
        """Take a request out of its row, with its tokens."""
        entry.kept = self.tokens_of(entry).copy()
        entry.row = NO_ROW

    def append(self, rows: I32Array, tokens: I32Array) -> None:
        """One token more for each of these different rows."""
        self.tokens[rows, self.lengths[rows]] = tokens
        self.lengths[rows] += 1

    def tokens_of(self, entry: JournalEntry) -> I32Array:
        """int32: prompt, then the tokens handed out; a view that the next step may extend."""
        if entry.row == NO_ROW:
            return entry.kept
        return self.tokens[entry.row, : self.lengths[entry.row]]

    def delivered(self, entry: JournalEntry) -> int:
        """How many tokens have been handed out."""
        return len(self.tokens_of(entry)) - entry.prompt_len
