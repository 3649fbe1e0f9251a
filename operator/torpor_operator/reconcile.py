"""One deployment from what it is towards what is wanted: look, plan, carry out.

Level-triggered: nothing is taken from the event that led here, everything is looked at again, and
doing it twice does nothing twice. ``WorkQueue`` calls it, once at a time per deployment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

from torpor_operator.carry_out import Executor
from torpor_operator.cluster_api import Cluster, NamespaceEnding, NotFound
from torpor_operator.memory import Memory
from torpor_operator.metrics import Metrics
from torpor_operator.model import Manifest, Observed, Plan
from torpor_operator.observe import Observer
from torpor_operator.settings import Settings
from torpor_operator.workqueue import Key, Outcome

# Seconds for one look and its writes; each request has a shorter limit of its own.
_LIMIT: Final = 60.0


class Planner(Protocol):
    def __call__(self, observed: Observed, settings: Settings, now: float, /) -> Plan: ...


class Forgetter(Protocol):
    def forget(self, deployment: str) -> None: ...


class Reconciler:
    """``again``: puts a key back into the queue. ``now`` is unix seconds, ``clock`` monotonic."""

    def __init__(
        self,
        cluster: Cluster,
        observer: Observer,
        executor: Executor,
        planner: Planner,
        settings: Settings,
        calls: Forgetter,
        metrics: Metrics,
        *,
        now: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._observer = observer
        self._executor = executor
        self._planner = planner
        self._settings = settings
        self._calls = calls
        self._metrics = metrics
        self._now = now
        self._clock = clock
        self._memories: dict[Key, tuple[str, Memory]] = {}

    async def reconcile(self, key: Key, again: Callable[[Key], None]) -> Outcome:
        """Raises ClusterError and TimeoutError: the queue tries again later."""
        started = time.monotonic()
        result = "error"
        try:
            async with asyncio.timeout(_LIMIT):
                outcome = await self._reconcile(key, again)
            result = "gone" if outcome.gone else "ok"
            return outcome
        finally:
            self._metrics.reconciled(result, time.monotonic() - started)

    async def _reconcile(self, key: Key, again: Callable[[Key], None]) -> Outcome:
        resource = await self._find(key)
        if resource is None:
            return self._gone(key)
        memory = self._memory(key, resource["metadata"]["uid"])
        observed = await self._observer.look(resource, memory)
        plan = self._planner(observed, self._settings, self._now())
        try:
            news = await self._executor.carry_out(plan, resource, memory, lambda: again(key))
        except NamespaceEnding:
            return self._gone(key)
        except NotFound:
            if await self._find(key) is None:
                return self._gone(key)  # it was deleted meanwhile
            raise
        if news:
            return Outcome(0.0)
        return Outcome(_earliest(plan.requeue_after, memory.next_attempt(self._clock())))

    async def _find(self, key: Key) -> Manifest | None:
        """None too when it is being deleted: the garbage collector does the rest, without us."""
        try:
            resource = await self._cluster.deployment(key.namespace, key.name)
        except NotFound:
            return None
        return None if resource["metadata"].get("deletionTimestamp") else resource

    def _memory(self, key: Key, uid: str) -> Memory:
        known, memory = self._memories.get(key, ("", Memory()))
        if known != uid:
            self._calls.forget(known)
            memory = Memory()
            self._memories[key] = (uid, memory)
        return memory

    def _gone(self, key: Key) -> Outcome:
        uid, _ = self._memories.pop(key, ("", Memory()))
        self._calls.forget(uid)
        return Outcome(gone=True)


def _earliest(*times: float | None) -> float | None:
    return min((each for each in times if each is not None), default=None)
