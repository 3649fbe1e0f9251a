"""Looks at everything that one decision rests on: children, pods, engines. Writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, Protocol

from torpor_operator import names
from torpor_operator.cluster_api import Cluster
from torpor_operator.memory import Memory
from torpor_operator.model import Child, EngineView, Manifest, Observed, PodView, child_key

_POLLED: Final = 64  # engines at a time


# Reason and message.
Warned = tuple[str, str]


class Viewer(Protocol):
    async def view(self, ip: str, token: str, now: float) -> EngineView: ...


class Observer:
    """``clock`` is monotonic, ``now`` unix seconds; ``token`` gives the admin token of a uid."""

    def __init__(
        self,
        cluster: Cluster,
        engines: Viewer,
        token: Callable[[str], str],
        view_pod: Callable[[Manifest, Warned | None], PodView],
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._engines = engines
        self._token = token
        self._view_pod = view_pod
        self._clock = clock
        self._now = now
        self._polls = asyncio.Semaphore(_POLLED)

    async def look(self, resource: Manifest, memory: Memory) -> Observed:
        """Raises ClusterError."""
        metadata = resource["metadata"]
        namespace, name, uid = metadata["namespace"], metadata["name"], metadata["uid"]
        objects = await self._cluster.children(namespace, name)
        pods = [each for each in objects if each["kind"] == "Pod" and owned_by(each, uid)]
        warned = await asyncio.gather(*(self._warning(pod) for pod in pods))
        views = tuple(map(self._view_pod, pods, warned))
        others = [each for each in objects if each["kind"] != "Pod"]
        others += await self._unlisted(namespace, name, others)
        await self._look_again(namespace, uid, memory)
        others += await self._secret(namespace, name, uid, views, memory)
        engines = await self._poll(views, self._token(uid), memory)
        return Observed(
            resource=resource,
            pods=views,
            children=tuple(_child(each, uid) for each in others),
            taken=frozenset(memory.taken),
            refused={key: refusal.message for key, refusal in memory.refusals.items()},
            engines=engines,
        )

    async def _warning(self, pod: Manifest) -> Warned | None:
        """A volume that cannot be mounted is told by events only; most pods have no such wait."""
        if not _being_made(pod):
            return None
        metadata = pod["metadata"]
        return await self._cluster.warning(metadata["namespace"], metadata["uid"])

    async def _unlisted(
        self, namespace: str, name: str, listed: Iterable[Manifest]
    ) -> list[Manifest]:
        """Objects with a child's name that do not have its labels: somebody else's, or ours from
        which the labels were taken away."""
        seen = {(each["kind"], each["metadata"]["name"]) for each in listed}
        missing = [child for child in _children(name) if child not in seen]
        found = [self._cluster.find(kind, namespace, child) for kind, child in missing]
        return [each for each in await asyncio.gather(*found) if each is not None]

    async def _look_again(self, namespace: str, uid: str, memory: Memory) -> None:
        """A name that was taken may have become free."""
        due = [key for key, at in memory.taken.items() if at <= self._clock()]
        for key in due:
            kind, _, name = key.partition("/")
            live = await self._cluster.find(kind, namespace, name)
            if live is None or owned_by(live, uid):
                del memory.taken[key]

    async def _secret(
        self, namespace: str, name: str, uid: str, pods: Iterable[PodView], memory: Memory
    ) -> list[Manifest]:
        """No right to watch it; but only a container that starts reads it, so it is looked at
        whenever one has ended or started, and left in peace while nothing moves."""
        starts = frozenset((pod.uid, pod.restarts, pod.ready) for pod in pods)
        if starts != memory.starts:
            live = await self._cluster.find("Secret", namespace, names.keys_secret(name))
            memory.secret = live if live is not None and owned_by(live, uid) else None
            memory.starts = starts
        return [] if memory.secret is None else [memory.secret]

    async def _poll(
        self, pods: Iterable[PodView], token: str, memory: Memory
    ) -> dict[int, EngineView]:
        asked = [pod for pod in pods if pod.role == names.ENGINE and pod.ip and not pod.deleting]
        views = await asyncio.gather(*(self._view(pod.ip, token) for pod in asked))
        engines, now = list(zip(asked, views, strict=True)), self._clock()
        memory.silent = {
            pod.uid: memory.silent.get(pod.uid, now) for pod, view in engines if not view.state
        }
        return {
            pod.replica: replace(view, silent=now - memory.silent.get(pod.uid, now))
            for pod, view in engines
        }

    async def _view(self, ip: str, token: str) -> EngineView:
        async with self._polls:
            return await self._engines.view(ip, token, self._now())


def owned_by(manifest: Manifest, uid: str) -> bool:
    """Whether its controller is the resource with that uid."""
    references = manifest["metadata"].get("ownerReferences") or []
    return any(each.get("controller") and each.get("uid") == uid for each in references)


def _being_made(pod: Manifest) -> bool:
    """On a node, but its containers wait for something that is not their image."""
    status = pod.get("status") or {}
    on_node = bool((pod.get("spec") or {}).get("nodeName"))
    if not on_node or status.get("phase") != "Pending" or pod["metadata"].get("deletionTimestamp"):
        return False
    states = [each.get("state") or {} for each in status.get("containerStatuses") or []]
    reasons = {(state.get("waiting") or {}).get("reason", "") for state in states}
    return reasons <= {"", "ContainerCreating", "PodInitializing"}


def _child(manifest: Manifest, uid: str) -> Child:
    name = manifest["metadata"]["name"]
    return Child(manifest["kind"], name, manifest, owned_by(manifest, uid))


def _children(name: str) -> tuple[tuple[str, str], ...]:
    """Of which there is one per deployment; the Secret may not be looked at."""
    return (
        ("Service", names.pods_service(name)),
        ("Service", names.client_service(name)),
        ("NetworkPolicy", names.engine_policy(name)),
        ("NetworkPolicy", names.worker_policy(name)),
        ("PodDisruptionBudget", names.disruption_budget(name)),
    )


def key_of(manifest: Manifest) -> str:
    return child_key(manifest["kind"], manifest["metadata"]["name"])
