"""A reconciler between a cluster in memory and plans that a test gives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from memory_cluster import NAME, NAMESPACE, MemoryCluster, child, deployment
from torpor_operator.carry_out import Executor
from torpor_operator.cluster_api import ClusterError, NamespaceEnding
from torpor_operator.metrics import Metrics
from torpor_operator.model import EngineCall, EngineView, Manifest, Observed, Plan, PodView
from torpor_operator.observe import Observer
from torpor_operator.reconcile import Reconciler
from torpor_operator.settings import Settings
from torpor_operator.workqueue import Key, Outcome

KEY = Key(NAMESPACE, NAME)
SETTINGS = Settings(runtime_image="torpor:1", namespace="torpor", master_key=bytes(32))
SECRET = child("Secret", "demo-keys", data={"admin-token": "eA=="})
POLICY = child("NetworkPolicy", "demo-engine")
SERVICE = child("Service", "demo-pods")
POD = child("Pod", "demo-0-engine")
QUOTA = ClusterError(403, "Forbidden", "exceeded quota: gpus")
ENDING = NamespaceEnding(403, "Forbidden", "because it is being terminated")
DOWN = ClusterError(0, "", "The API server is away.")


def view_pod(pod: Manifest, warning: tuple[str, str] | None) -> PodView:
    status = pod.get("status", {})
    message = warning[1] if warning else ""
    phase = status.get("phase", "Running")
    metadata = pod["metadata"]
    return PodView(
        metadata["name"],
        metadata["uid"],
        "engine",
        0,
        -1,
        "r",
        phase,
        ip=status.get("podIP", ""),
        message=message,
    )


@dataclass
class World:
    """A reconciler between a cluster in memory and plans that a test gives: one plan, for all
    looks, or a function of what was observed."""

    cluster: MemoryCluster
    planner: Callable[[Observed], Plan]
    time: float = 0.0
    observed: list[Observed] = field(default_factory=list)
    calls: list[EngineCall] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    polled: list[str] = field(default_factory=list)
    added: list[Key] = field(default_factory=list)
    silent: bool = False

    def __post_init__(self) -> None:
        clocks: dict[str, Any] = {"clock": lambda: self.time, "now": lambda: self.time}
        observer = Observer(self.cluster, self, str, view_pod, **clocks)
        executor = Executor(self.cluster, self, str, **clocks)
        self.reconciler = Reconciler(
            self.cluster, observer, executor, self._plan, SETTINGS, self, Metrics(), **clocks
        )

    def run(self) -> Outcome:
        self.cluster.writes.clear()
        return asyncio.run(self.reconciler.reconcile(KEY, self.added.append))

    @property
    def writes(self) -> list[str]:
        return self.cluster.writes

    def _plan(self, observed: Observed, settings: Settings, now: float) -> Plan:
        self.observed.append(observed)
        return self.planner(observed)

    async def view(self, ip: str, token: str, now: float) -> EngineView:
        self.polled.append(ip)
        if self.silent:
            return EngineView(None, "timeout", now)
        return EngineView(state={"token": token}, at=now)

    def start(
        self, deployment: str, call: EngineCall, token: str, done: Callable[[], None]
    ) -> bool:
        self.calls.append(call)
        done()
        return True

    def forget(self, deployment: str) -> None:
        self.forgotten.append(deployment)


def world(plan: Plan | Callable[[Observed], Plan], *objects: Manifest) -> World:
    planner = plan if callable(plan) else lambda _: plan
    return World(MemoryCluster(deployment(), *objects), planner)
