"""Rows: the fixed slots of running requests, as arrays over rows.

A request's row here is its row in every rank's state tensors. A row's generation changes whenever
its request leaves, so results and messages about the request before are recognised; it goes on
counting when the workers are new, because they take a row's generation from the request that is put
into it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from torpor_engine.journal import JournalEntry
from torpor_protocol.arrays import I32Array, I64Array

BoolArray = NDArray[np.bool_]
NO_TOKEN = -1


class RowTable:
    """Arrays of length rows: ``ids``, ``priorities``, ``arrivals`` int64; ``generations``,
    ``computed`` (tokens in the KV cache once the steps in flight are done), ``limits`` (length at
    which the request ends), ``stop_from`` (length from which a stop token counts) int32;
    ``in_flight`` bool: the row's result is awaited. ``stops`` int32 [rows, width]: the tokens that
    end it, padded with -1."""

    def __init__(self, num_rows: int, max_model_len: int, eos_token_ids: tuple[int, ...]) -> None:
        self._max_model_len = max_model_len
        self._eos = eos_token_ids
        self.ids: I64Array = np.zeros(num_rows, np.int64)
        self.priorities: I64Array = np.zeros(num_rows, np.int64)
        self.arrivals: I64Array = np.zeros(num_rows, np.int64)
        self.generations: I32Array = np.ones(num_rows, np.int32)
        self.computed: I32Array = np.zeros(num_rows, np.int32)
        self.limits: I32Array = np.zeros(num_rows, np.int32)
        self.stop_from: I32Array = np.zeros(num_rows, np.int32)
        self.in_flight: BoolArray = np.zeros(num_rows, np.bool_)
        self.stops: I32Array = np.full((num_rows, max(len(eos_token_ids), 1)), NO_TOKEN, np.int32)
        self._occupied: BoolArray = np.zeros(num_rows, np.bool_)
        self._free = list(range(num_rows - 1, -1, -1))
        self._order: I32Array | None = None

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_running(self) -> int:
        return len(self.ids) - len(self._free)

    @property
    def order(self) -> I32Array:
        """The occupied rows by (priority, arrival): the last is the first to be preempted."""
        if self._order is None:
            rows = np.flatnonzero(self._occupied)
            by_rank = np.lexsort((self.arrivals[rows], self.priorities[rows]))
            self._order = rows[by_rank].astype(np.int32)
        return self._order

    def seat(self, entry: JournalEntry, computed: int) -> int:
        """Give a free row to a request of which ``computed`` tokens are in the KV cache."""
        row = self._free.pop()
        sampling = entry.sampling
        self.ids[row] = entry.id
        self.priorities[row] = entry.priority
        self.arrivals[row] = entry.arrival
        self.computed[row] = computed
        self.limits[row] = min(entry.prompt_len + sampling.max_tokens, self._max_model_len)
        self.stop_from[row] = min(entry.prompt_len + sampling.min_tokens, self._max_model_len)
        eos = () if sampling.ignore_eos else self._eos
        self._set_stops(row, (*eos, *sampling.stop_token_ids))
        self._occupied[row] = True
        self._order = None
        return row

    def vacate(self, row: int) -> None:
        """Its request has ended or goes back to the queue."""
        self.generations[row] += 1
        self.in_flight[row] = False
        self._occupied[row] = False
        self._free.append(row)
        self._order = None

    def _set_stops(self, row: int, tokens: tuple[int, ...]) -> None:
        missing: Any = len(tokens) - self.stops.shape[1]
        if missing > 0:
            self.stops = np.pad(self.stops, ((0, 0), (0, missing)), constant_values=NO_TOKEN)
        self.stops[row] = NO_TOKEN
        self.stops[row, : len(tokens)] = tokens
