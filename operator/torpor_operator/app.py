"""The operator without its informer: queue, resync, Lease guard, and what a reconciliation needs.

``handlers`` puts keys in; ``__main__`` starts and stops it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Coroutine
from typing import Any, Final

from torpor_operator.carry_out import Executor
from torpor_operator.cluster_api import Cluster, ClusterError, NotFound
from torpor_operator.engine_calls import EngineCalls
from torpor_operator.engine_client import EngineClient
from torpor_operator.keys import admin_token
from torpor_operator.lease import LeaseGuard
from torpor_operator.metrics import Metrics
from torpor_operator.observe import Observer
from torpor_operator.plan import plan
from torpor_operator.pods import view_pod
from torpor_operator.reconcile import Reconciler
from torpor_operator.settings import Settings
from torpor_operator.startup_retries import patiently
from torpor_operator.workqueue import Key, Outcome, WorkQueue
from torpor_protocol.api.names import GROUP, PLURAL
from torpor_protocol.errors import ConfigError

RESYNC: Final = 300.0  # seconds
_RETRY: Final = 10.0

logger = logging.getLogger(__name__)


class Operator:
    """``stop`` is set when the operator cannot go on; ``failure`` is then the reason."""

    def __init__(
        self, settings: Settings, cluster: Cluster, guard: LeaseGuard, metrics: Metrics
    ) -> None:
        self.stop = asyncio.Event()
        self.failure: BaseException | None = None
        self._namespaces = settings.namespaces
        self._cluster = cluster
        self._guard = guard
        self._engines = EngineClient(metrics)
        self._calls = EngineCalls(self._engines, clock=time.monotonic)
        self._reconciler = _reconciler(settings, cluster, self._engines, self._calls, metrics)
        self.queue = WorkQueue(self._work, clock=time.monotonic, resync=RESYNC)
        metrics.watch_queue(self.queue.depth, self.queue.oldest)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Raises LeaseLost when another operator is at work, ConfigError when the cluster is not
        ready for this one, ClusterError when it cannot be reached."""
        await patiently(self._guard.acquire, clock=time.monotonic)
        await self._first_list()
        self._spawn("queue", self.queue.run())
        self._spawn("resync", self._resync())
        self._spawn("lease", self._guard.hold())

    async def end(self) -> None:
        self.stop.set()  # kopf's task that waits for it would hold up the end for five seconds
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._calls.stop()
        await self._engines.close()
        await self._guard.release()

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self.stop.is_set():
            return
        self.failure = task.exception()
        self.stop.set()

    async def _work(self, key: Key) -> Outcome:
        return await self._reconciler.reconcile(key, self.queue.add)

    async def _first_list(self) -> None:
        """What is wrong with the installation ends the start: later it would look like a hang."""
        try:
            await patiently(self._add_all, clock=time.monotonic)
        except NotFound as error:
            raise ConfigError(
                f"The cluster does not know {PLURAL}.{GROUP}.",
                "Apply the CustomResourceDefinition of the chart first.",
            ) from error
        except ClusterError as error:
            if not error.refusal:
                raise
            raise ConfigError(str(error), "Install the operator by its chart.") from error

    async def _resync(self) -> None:
        """An event can be lost; a listing finds what it was about."""
        while True:
            await asyncio.sleep(RESYNC * random.uniform(0.8, 1.2))
            try:
                await self._add_all()
            except ClusterError as error:
                logger.warning("The deployments could not be listed: %s", error)
                await asyncio.sleep(_RETRY)

    async def _add_all(self) -> None:
        for namespace in self._namespaces or (None,):
            for each in await self._cluster.deployments(namespace):
                metadata = each["metadata"]
                self.queue.add(Key(metadata["namespace"], metadata["name"]))


def _reconciler(
    settings: Settings,
    cluster: Cluster,
    engines: EngineClient,
    calls: EngineCalls,
    metrics: Metrics,
) -> Reconciler:
    def token(uid: str) -> str:
        return admin_token(settings.master_key, uid)

    clocks = {"clock": time.monotonic, "now": time.time}
    observer = Observer(cluster, engines, token, view_pod, **clocks)
    executor = Executor(cluster, calls, token, **clocks)
    return Reconciler(cluster, observer, executor, plan, settings, calls, metrics, **clocks)
