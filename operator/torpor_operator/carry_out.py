"""Carries a plan out: children first, then pods away, pods new, engines, status, events.

Keys and network rules come before the pods that need them; what the API server refuses (a quota, a
policy) is remembered with its words for the next plan and tried again after a pause; what merely
failed is raised at the end, when everything else has been done.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from torpor_operator.cluster_api import Cluster, ClusterError, Conflict, NamespaceEnding
from torpor_operator.events import event_object
from torpor_operator.manifests import differs, labels_held
from torpor_operator.memory import Memory
from torpor_operator.merge_patch import merge_patch
from torpor_operator.model import EngineCall, Manifest, Plan, PodRef
from torpor_operator.observe import key_of, owned_by

# Without these no pod may start: it would be without keys, or open to everybody.
_GUARDS: Final = frozenset({"Secret", "NetworkPolicy"})
# A Secret may only be looked at by a patch without content, which an auditor may take for a write.
_LOOK_AGAIN: Final = 120.0  # seconds

Writer = Callable[[Manifest], Awaitable[bool]]

logger = logging.getLogger(__name__)


class Calls(Protocol):
    def start(
        self, deployment: str, call: EngineCall, token: str, done: Callable[[], None]
    ) -> bool: ...


class Executor:
    """``clock`` is monotonic, ``now`` unix seconds. ``token`` gives the admin token of a uid."""

    def __init__(
        self,
        cluster: Cluster,
        calls: Calls,
        token: Callable[[str], str],
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._calls = calls
        self._token = token
        self._clock = clock
        self._now = now

    async def carry_out(
        self, plan: Plan, resource: Manifest, memory: Memory, again: Callable[[], None]
    ) -> bool:
        """``again`` is called when an engine call has ended. Returns whether something was refused
        that the status does not tell yet. Raises the first ClusterError, and NamespaceEnding at
        once: the rest would be in vain."""
        step = _Step(self._cluster, resource, memory, self._clock)
        for manifest in plan.apply:
            await step.attempt(manifest, step.apply)
        for ref in plan.delete:
            await step.guarded(self._cluster.delete_pod(step.namespace, ref))
        if not step.unguarded:
            for pod in plan.create:
                await step.attempt(pod, step.create)
        memory.keep_refusals(key_of(manifest) for manifest in (*plan.apply, *plan.create))
        for call in plan.calls:
            self._calls.start(step.uid, call, self._token(step.uid), again)
        if await step.guarded(self._write_status(plan.status, resource, memory)):
            await self._tell(plan, resource)
        if step.errors:
            raise step.errors[0]
        return step.news

    async def _write_status(self, wanted: Manifest, resource: Manifest, memory: Memory) -> None:
        live = resource.get("status") or {}
        patch = merge_patch(live, wanted)
        # The server may store something else than was wanted; saying it again changes nothing.
        if not patch or (wanted, live) == memory.status:
            return
        metadata = resource["metadata"]
        stored = await self._cluster.patch_status(metadata["namespace"], metadata["name"], patch)
        memory.status = (wanted, stored)

    async def _tell(self, plan: Plan, resource: Manifest) -> None:
        for event in plan.events:
            try:
                await self._cluster.create(event_object(resource, event, self._now()))
            except ClusterError as error:
                logger.info("The event %s was not written: %s", event.reason, error)


class _Step:
    """One carrying out: what has gone wrong in it so far."""

    def __init__(
        self,
        cluster: Cluster,
        resource: Manifest,
        memory: Memory,
        clock: Callable[[], float],
    ) -> None:
        self.namespace: str = resource["metadata"]["namespace"]
        self.uid: str = resource["metadata"]["uid"]
        self.errors: list[ClusterError] = []
        self.news = False
        self.unguarded = False
        self._cluster = cluster
        self._memory = memory
        self._clock = clock

    async def guarded(self, work: Awaitable[None]) -> bool:
        """Whether it went well."""
        try:
            await work
        except ClusterError as error:
            self.errors.append(error)
            return False
        return True

    async def attempt(self, manifest: Manifest, write: Writer) -> None:
        key, guards = key_of(manifest), manifest["kind"] in _GUARDS
        if self._memory.waits(key, self._clock()):
            self.unguarded |= guards
            return
        try:
            done = await write(manifest)
        except NamespaceEnding:
            raise
        except ClusterError as error:
            done = False
            if error.refusal:
                self.news |= self._memory.refuse(key, error.cause, self._clock())
            else:
                self.errors.append(error)
        else:
            self._memory.refusals.pop(key, None)
        self.unguarded |= guards and not done

    async def apply(self, manifest: Manifest) -> bool:
        if manifest["kind"] == "Secret":
            live = await self._cluster.find("Secret", self.namespace, manifest["metadata"]["name"])
            if live is not None and not owned_by(live, self.uid):
                self._taken(key_of(manifest), _LOOK_AGAIN)
                return False
            if live is None or differs(live, manifest):
                await self._cluster.apply(manifest)
                live = manifest
            self._memory.secret = live
            return True
        await self._cluster.apply(manifest)
        return True

    async def create(self, pod: Manifest) -> bool:
        try:
            await self._cluster.create(pod)
        except Conflict:
            live = await self._cluster.find("Pod", self.namespace, pod["metadata"]["name"])
            if live is None:
                return True
            if not owned_by(live, self.uid):
                self._taken(key_of(pod), 0.0)
                return False
            # Ours, if the list was older than it or it is still ending: its events will tell. One
            # that has lost the labels by which it is listed would be looked for in vain.
            if not labels_held(live, pod):
                ref = PodRef(pod["metadata"]["name"], live["metadata"]["uid"])
                await self._cluster.delete_pod(self.namespace, ref)
        return True

    def _taken(self, key: str, look_again: float) -> None:
        self.news |= key not in self._memory.taken
        self._memory.taken[key] = self._clock() + look_again
