"""All that the scheduler knows, and the four moves a request can make: in, up, back and out.

Journal, rows, block tables and queue must change together; they do so only here.
"""

from __future__ import annotations

from torpor_engine.journal import NO_ROW, Journal, JournalEntry
from torpor_engine.kv_cache import KVCacheManager
from torpor_engine.scheduler.quarantine import Quarantine
from torpor_engine.scheduler.rows import NO_TOKEN, RowTable
from torpor_engine.scheduler.waiting import WaitingQueue
from torpor_protocol.arrays import I32Array
from torpor_protocol.config import EngineConfig
from torpor_protocol.requests import AddRequest, Finished, FinishReason

UNFIT = (
    "The request has {} tokens and the KV cache holds {}. "
    "Shorten the request, or give the KV cache more memory."
)


class SchedulerState:
    """``freed_rows``: rows the workers have not been told about yet. ``ended``: ends that the
    clients have not been told."""

    def __init__(self, config: EngineConfig, num_blocks: int) -> None:
        num_rows, max_len = config.scheduler.max_num_seqs, config.model.max_model_len
        self.limits = config.scheduler
        self.journal = Journal(num_rows, max_len)
        self.rows = RowTable(num_rows, max_len, config.model.eos_token_ids)
        self.kv = KVCacheManager(config.cache, num_rows, max_len, num_blocks)
        self.waiting = WaitingQueue()
        self.quarantine = Quarantine()
        self.freed_rows: list[int] = []
        self.ended: list[Finished] = []
        self.max_model_len = max_len
        self.preemptions = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generation_tokens = 0

    def enqueue(self, request: AddRequest) -> JournalEntry:
        entry = self.journal.open(request)
        self.waiting.push(entry)
        return entry

    def seat(self, entry: JournalEntry, num_cached: int, cached: list[int]) -> I32Array:
        """From the queue into a row, with all blocks it needs now; returns its block table."""
        self.waiting.remove(entry)
        row = self.rows.seat(entry, num_cached)
        self.journal.seat(entry, row)
        return self.kv.allocate(row, int(self.journal.lengths[row]), cached)

    def unseat(self, entry: JournalEntry, *, publish: bool = True) -> None:
        """From its row back into the queue, to its old place. ``publish`` False: what the cache
        holds of it is not to be trusted, or is about to be dropped."""
        self._vacate(entry, publish)
        self.journal.unseat(entry)
        self.waiting.push(entry)

    def preempt(self, row: int) -> None:
        """Blocks have run out: the request keeps its tokens and is computed again later."""
        self.unseat(self.entry_in(row))
        self.preemptions += 1

    def close(
        self, entry: JournalEntry, reason: FinishReason, message: str = "", stop: int = NO_TOKEN
    ) -> Finished:
        """Out, from wherever it is."""
        if entry.row != NO_ROW:
            self._vacate(entry, publish=True)
        else:
            self.waiting.remove(entry)
        self.quarantine.forget(entry.id)
        self.journal.close(entry)
        return Finished(entry.id, reason, stop, message)

    def end(self, entry: JournalEntry, message: str) -> None:
        """Out with an error, to be told at the next opportunity."""
        self.ended.append(self.close(entry, "error", message))

    def end_if_unfit(self, entry: JournalEntry) -> None:
        """A request that does not fit into the cache even alone would be preempted for ever."""
        length = len(self.journal.tokens_of(entry))
        if length > self.kv.max_tokens:
            self.end(entry, UNFIT.format(length, self.kv.max_tokens))

    def entry_in(self, row: int) -> JournalEntry:
        entry = self.journal.get(int(self.rows.ids[row]))
        assert entry is not None, f"row {row} holds a request that is not in the journal"
        return entry

    def running_entries(self) -> list[JournalEntry]:
        return [self.entry_in(row) for row in self.rows.order.tolist()]

    def publish(self, entry: JournalEntry) -> None:
        """Let others share the full blocks that have been computed of this request."""
        computed = self.journal.tokens[entry.row, : self.rows.computed[entry.row]]
        self.kv.publish(entry.row, computed, entry.cache_salt, entry.block_hashes)

    def _vacate(self, entry: JournalEntry, publish: bool) -> None:
        if publish:
            self.publish(entry)
        self.kv.free(entry.row)
        self.rows.vacate(entry.row)
        self.freed_rows.append(entry.row)
