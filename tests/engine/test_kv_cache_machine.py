"""Any order of admissions, growth, ends and resets keeps the books of the KV cache true.

Beside the manager runs a model that knows what is in each block; a hit must be a block that holds
just those tokens after just that history.
"""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from torpor_engine.kv_cache import KVCacheManager
from torpor_protocol.arrays import I32Array
from torpor_protocol.config import CacheConfig

ROWS, MAX_LEN, BLOCK = 4, 24, 3
PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=MAX_LEN)
SALTS = st.sampled_from(["", "a"])


class KVMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        config = CacheConfig(block_size=BLOCK)
        self.kv = KVCacheManager(config, ROWS, MAX_LEN, num_blocks=12)
        self.held: dict[int, tuple[list[int], str]] = {}
        self.content: dict[int, tuple[str, tuple[int, ...]]] = {}

    @rule(prompt=PROMPTS, salt=SALTS)
    def admit(self, prompt: list[int], salt: str) -> None:
        free = set(range(ROWS)) - self.held.keys()
        data = np.array(prompt, np.int32)
        num_cached, cached = self.kv.lookup(data, salt)
        assert num_cached == len(cached) * BLOCK < len(prompt)
        for index, block in enumerate(cached):
            assert self.content[block] == (salt, tuple(prompt[: (index + 1) * BLOCK]))
        if free and self.kv.can_allocate(len(prompt), cached):
            row = min(free)
            table = self.kv.allocate(row, len(prompt), cached)
            assert table[: len(cached)].tolist() == cached
            self.held[row] = (list(prompt), salt)
            self._write(row, num_cached)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def decode(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(sorted(self.held)))
        tokens, _ = self.held[row]
        if len(tokens) == MAX_LEN:
            return
        if len(tokens) == self.kv.capacity[row]:
            if not self.kv.available:
                return
            self.kv.grow(np.array([row], np.int32))
        tokens.append(data.draw(st.integers(0, 1)))
        self._write(row, len(tokens) - 1)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(sorted(self.held)))
        tokens, salt = self.held[row]
        self.kv.publish(row, np.array(tokens, np.int32), salt, [])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(sorted(self.held)))
        self.kv.free(row)
        del self.held[row]

    @rule(blocks=st.integers(9, 14))
    def reset(self, blocks: int) -> None:
        self.kv.reset(blocks)
        self.held.clear()
        self.content.clear()

    def _table(self, row: int) -> I32Array:
        return self.kv.tables[row, : self.kv.counts[row]]

    def _write(self, row: int, start: int) -> None:
        """Fill the slots from ``start``; the blocks they are in must be this row's alone."""
        tokens, salt = self.held[row]
        table = self._table(row).tolist()
        for position in range(start, len(tokens)):
            block = table[position // BLOCK]
            assert self.kv.pool.ref_counts[block] == 1, f"block {block} is shared and written"
            beginning = tokens[: (position // BLOCK + 1) * BLOCK]
            self.content[block] = (salt, tuple(beginning[: position + 1]))

    @invariant()
    def every_block_is_in_one_place(self) -> None:
        pool = self.kv.pool
        assert pool.num_free + pool.num_cached + pool.num_used == pool.usable
        in_use = {block for row in self.held for block in self._table(row).tolist()}
        assert len(in_use) == pool.num_used
        assert 0 not in in_use

    @invariant()
    def references_are_those_of_the_tables(self) -> None:
        wanted = np.zeros(self.kv.pool.num_blocks, np.int32)
        for row in self.held:
            wanted[self._table(row)] += 1
        assert (self.kv.pool.ref_counts == wanted).all()

    def teardown(self) -> None:
        for row in list(self.held):
            self.kv.free(row)
        assert self.kv.pool.num_used == 0 and self.kv.usage == 0.0


KVMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestKVMachine = KVMachine.TestCase
