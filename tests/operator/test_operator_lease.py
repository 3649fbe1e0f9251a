"""Two operators and one Lease, in virtual time."""

from __future__ import annotations

import asyncio
import copy
from contextlib import suppress

import pytest

from torpor_operator.cluster_api import ClusterError, Conflict
from torpor_operator.lease import GIVE_UP, LONGEST_WAIT, PATIENCE, POLL, LeaseGuard, LeaseLost
from torpor_operator.model import Manifest
from virtual_time import loop_time, run_virtual


class MemoryLease:
    def __init__(self) -> None:
        self.lease: Manifest | None = None
        self.writes = 0
        self.down = False
        self._version = 0

    async def read(self) -> Manifest | None:
        self._check()
        return copy.deepcopy(self.lease)

    async def create(self, spec: Manifest) -> None:
        self._check()
        if self.lease is not None:
            raise Conflict(409, "AlreadyExists", "it exists")
        self._store({"metadata": {"name": "lease"}, "spec": spec})

    async def replace(self, lease: Manifest) -> None:
        self._check()
        # Somebody else may be as fast: what was read has to be what is there.
        await asyncio.sleep(0)
        if lease["metadata"]["resourceVersion"] != str(self._version):
            raise Conflict(409, "Conflict", "it has changed")
        self._store(copy.deepcopy(lease))

    @property
    def holder(self) -> str:
        return str(self.lease["spec"].get("holderIdentity", "")) if self.lease else ""

    def _store(self, lease: Manifest) -> None:
        self._version += 1
        self.writes += 1
        lease["metadata"]["resourceVersion"] = str(self._version)
        self.lease = lease

    def _check(self) -> None:
        if self.down:
            raise ClusterError(0, "", "The API server is away.")


def guard(store: MemoryLease, identity: str) -> LeaseGuard:
    return LeaseGuard(store, identity, clock=loop_time)


def test_a_holder_that_nobody_asks_writes_once() -> None:
    async def run() -> MemoryLease:
        store = MemoryLease()
        holder = guard(store, "one")
        await holder.acquire()
        with suppress(TimeoutError):
            async with asyncio.timeout(3600.0):
                await holder.hold()
        return store

    store = run_virtual(run())
    assert store.writes == 1
    assert store.holder == "one"


def test_a_second_operator_gives_up_while_the_first_answers() -> None:
    async def run() -> tuple[str, float]:
        store = MemoryLease()
        first = guard(store, "one")
        await first.acquire()
        task = asyncio.create_task(first.hold())
        started = loop_time()
        with pytest.raises(LeaseLost, match="one, holds the Lease"):
            await guard(store, "two").acquire()
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return store.holder, loop_time() - started

    holder, seconds = run_virtual(run())
    assert holder == "one"
    assert seconds <= LONGEST_WAIT + 2 * POLL


def test_a_dead_holder_loses_its_lease_but_not_before_a_live_one_would_have_given_up() -> None:
    async def run() -> float:
        store = MemoryLease()
        await guard(store, "dead").acquire()
        started = loop_time()
        await guard(store, "two").acquire()
        assert store.holder == "two"
        return loop_time() - started

    seconds = run_virtual(run())
    assert GIVE_UP + POLL < PATIENCE <= seconds <= PATIENCE + 2 * POLL


def test_a_released_lease_and_ones_own_are_taken_at_once() -> None:
    async def run() -> float:
        store = MemoryLease()
        first = guard(store, "one")
        await first.acquire()
        started = loop_time()
        await guard(store, "one").acquire()
        await first.release()
        await guard(store, "two").acquire()
        assert store.holder == "two"
        return loop_time() - started

    assert run_virtual(run()) == 0.0


def test_a_release_by_one_who_has_lost_it_changes_nothing() -> None:
    async def run() -> str:
        store = MemoryLease()
        await guard(store, "dead").acquire()
        await guard(store, "two").acquire()
        await guard(store, "dead").release()
        return store.holder

    assert run_virtual(run()) == "two"


def test_a_holder_that_reads_another_name_stops() -> None:
    async def run() -> None:
        store = MemoryLease()
        first = guard(store, "one")
        await first.acquire()
        assert store.lease is not None
        store.lease["spec"]["holderIdentity"] = "two"
        with pytest.raises(LeaseLost, match="two holds"):
            await first.hold()

    run_virtual(run())


def test_a_holder_that_cannot_read_stops_in_time_and_survives_a_short_outage() -> None:
    async def run() -> float:
        store = MemoryLease()
        first = guard(store, "one")
        await first.acquire()
        task = asyncio.create_task(first.hold())
        store.down = True
        await asyncio.sleep(GIVE_UP - POLL)
        store.down = False
        await asyncio.sleep(60.0)
        assert not task.done()
        store.down = True
        started = loop_time()
        with pytest.raises(LeaseLost):
            await task
        return loop_time() - started

    assert run_virtual(run()) < PATIENCE


def test_of_many_newcomers_one_wins() -> None:
    async def run() -> int:
        store = MemoryLease()
        await guard(store, "dead").acquire()

        async def newcomer(name: str) -> None:
            mine = guard(store, name)
            await mine.acquire()
            await mine.hold()

        tasks = [asyncio.create_task(newcomer(f"new-{index}")) for index in range(4)]
        await asyncio.sleep(600.0)
        alive = [task for task in tasks if not task.done()]
        for task in alive:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(each, LeaseLost) for each in results) == 3
        return len(alive)

    assert run_virtual(run()) == 1
