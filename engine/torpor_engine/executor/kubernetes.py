"""The executor over worker pods: supervisors come by themselves and stay when a group ends.

Pods are the operator's affair. This executor admits the pods that its key file names, waits for the
missing ones as long as it takes (images are pulled, accelerators become free) and tells which they
are. A pod that comes back is a new incarnation: the ranks that it had are gone.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from torpor_engine.executor.base import ExecutorHooks
from torpor_engine.executor.grouped import POLL_SECONDS, SUPERVISOR_SILENCE, GroupExecutor
from torpor_protocol import rpc
from torpor_protocol.config import EngineConfig
from torpor_protocol.errors import ConfigError, GroupLost
from torpor_protocol.pods import read_engine_keys, worker_pod_name
from torpor_protocol.transport import CurveKeys, CurveServer, PeerGone, Router, refusals

log = logging.getLogger(__name__)

# A connection that broke has this long to come back; a process that died does not come back in it.
RECONNECT_SECONDS = 1.0
# Below the ports that systems take for outgoing connections.
FIRST_PORT = 20_000
PORTS = 10_000
NAMED_PODS = 5
READMIT_SECONDS = 10.0


class KubernetesExecutor(GroupExecutor):
    """``hooks.place`` says which replica this is and where its key file lies."""

    supervisor_lost = "PodLost"

    def __init__(self, config: EngineConfig, hooks: ExecutorHooks) -> None:
        self._keys = read_engine_keys(Path(hooks.place.keys))
        self._pods = expected_pods(hooks.place.name, hooks.place.replica, len(self._keys.workers))
        self._probe_at = float("inf")
        self._disconnects = 0
        self._objections: dict[bytes, str] = {}
        super().__init__(config, hooks)

    def _open_router(self) -> tuple[Router, str, CurveKeys | None]:
        if not self._pods:
            raise ConfigError(
                "The engine's key file names no worker.",
                "Let the operator write the deployment's Secret anew.",
            )
        keys = CurveKeys(self._keys.public, self._keys.secret)
        router = Router(CurveServer(keys))
        endpoint = router.bind(self.hooks.place.wire, all_interfaces=True)
        for pod, public in zip(self._pods, self._keys.workers, strict=True):
            router.admit(pod, public)
        log.info("Waiting for %d worker pods at %s.", len(self._pods), endpoint)
        return router, endpoint, keys

    # Who may say hello

    def takes_hello(self, peer: bytes, hello: rpc.Hello) -> bool:
        reason, objection = self._objection(peer, hello)
        if not reason:
            self._objections.pop(peer, None)
            return True
        self._router.count_refused(reason, peer, objection)
        self._objections[peer] = objection
        self._roster.expel(peer, f"Worker pod {hello.pod_name} was replaced: {objection}.")
        return False

    def _objection(self, peer: bytes, hello: rpc.Hello) -> tuple[str, str]:
        place = self.hooks.place
        if hello.deployment_uid != place.uid:
            return refusals.WRONG_DEPLOYMENT, f"it belongs to deployment {hello.deployment_uid}"
        if hello.replica != place.replica:
            return refusals.WRONG_REPLICA, f"it belongs to replica {hello.replica}"
        if hello.revision != place.revision:
            return refusals.WRONG_REVISION, f"it is of revision {hello.revision}"
        if hello.pod_name.encode() != peer:
            return refusals.WRONG_POD, f"it calls itself pod {hello.pod_name}"
        return "", ""

    # Waiting for pods

    def ensure_supervisors(self) -> None:
        """Wait, without a deadline, until every worker pod is there and can be reached."""
        self._dispatch(0)
        admit_at = 0.0
        while missing := self._missing():
            if time.monotonic() > admit_at:
                admit_at = time.monotonic() + READMIT_SECONDS
                self._admit(missing)
            waiting_for = self._sentence(missing)
            if waiting_for != self.waiting_for:
                log.info("%s", waiting_for)
                self.waiting_for = waiting_for
            self.hooks.while_waiting()
            self._dispatch(POLL_SECONDS)
        self.waiting_for = ""
        world, devices = self.config.parallel.world_size, self._roster.devices
        if devices < world:
            raise GroupLost("WorldSize", f"The worker pods hold {devices} ranks of {world}.")
        self._disconnects = self._router.disconnects
        self._probe_at = float("inf")

    def _admit(self, pods: list[bytes]) -> None:
        """A pod that was cut off, because an older program in it said what is refused, may come
        back as a better one under the same name and key."""
        for pod in pods:
            self._router.admit(pod, self._keys.workers[self._pods.index(pod)])

    def _missing(self) -> list[bytes]:
        self._roster.forget_silent(SUPERVISOR_SILENCE)
        present = self._roster.hellos()
        if set(self._pods) <= present.keys():
            for pod in self._pods:
                if not self._reaches(pod):
                    self._roster.forget(pod)
        present = self._roster.hellos()
        return [pod for pod in self._pods if pod not in present]

    def _sentence(self, missing: list[bytes]) -> str:
        named = [self._with_objection(pod) for pod in missing[:NAMED_PODS]]
        more = len(missing) - len(named)
        if more:
            named.append(f"{more} more")
        found = len(self._pods) - len(missing)
        return f"Waiting for worker pods ({found} of {len(self._pods)} are here): " + (
            ", ".join(named) + "."
        )

    def _with_objection(self, pod: bytes) -> str:
        objection = self._objections.get(pod, "")
        return f"{pod.decode()} ({objection})" if objection else pod.decode()

    def _reaches(self, pod: bytes) -> bool:
        try:
            self._router.send(pod, rpc.NO_GROUP, 0, rpc.Probe())
        except PeerGone:
            return False
        return True

    # Liveness

    def check_supervisors(self) -> None:
        """A connection has ended: if it was a supervisor's and does not come back, the pod is lost
        with its ranks. Without that, silence tells it some seconds later."""
        now = time.monotonic()
        if self._router.disconnects != self._disconnects:
            self._disconnects = self._router.disconnects
            self._probe_at = min(self._probe_at, now + RECONNECT_SECONDS)
        if now < self._probe_at or not self._members:
            return
        self._probe_at = float("inf")
        for member in self._members:
            if not self._reaches(member.supervisor):
                self._roster.forget(member.supervisor)
                pod = member.supervisor.decode()
                raise GroupLost(
                    self.supervisor_lost, f"Worker pod {pod} is gone: its connection has ended."
                )

    def supervisor_alive(self, supervisor: bytes) -> bool:
        return self._roster.holds_ranks(supervisor, SUPERVISOR_SILENCE)

    def kill_supervisor(self, supervisor: bytes) -> None:
        """A pod cannot be killed from here; but it can be left out until it says hello again, and
        its supervisor kills the old ranks before it starts others."""
        log.warning("Worker pod %s does not answer.", supervisor.decode())
        self._roster.forget(supervisor)

    def rendezvous(self, group: str) -> tuple[str, str]:
        """At the pod of rank 0. Each pod knows the name of its own network interface."""
        hello = self._roster.hellos().get(self._pods[0])
        if hello is None:
            raise GroupLost(self.supervisor_lost, f"Worker pod {self._pods[0].decode()} is gone.")
        address = hello.address
        host = f"[{address}]" if ":" in address else address
        return f"tcp://{host}:{store_port(group)}", ""


def expected_pods(deployment: str, replica: int, workers: int) -> list[bytes]:
    """Names of a replica's worker pods, in the order of their indices."""
    return [worker_pod_name(deployment, replica, worker).encode() for worker in range(workers)]


def store_port(group: str) -> int:
    """A port of its own for each group, so that none waits for the sockets of the one before."""
    return FIRST_PORT + int(group[:8], 16) % PORTS
