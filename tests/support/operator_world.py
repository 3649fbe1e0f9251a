"""A simulated cluster with one deployment: carries plans out and lets pods and engines move."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from operator_builders import NOW, SETTINGS
from torpor_operator import names
from torpor_operator.deployment import Deployment, read_deployment
from torpor_operator.model import Child, EngineView, Manifest, Observed, Plan, PodView, child_key
from torpor_operator.plan import plan

GRACE = 15.0
_MOVES = {"Draining": "Sleeping", "Sleeping": "Asleep", "Waking": "Awake"}


@dataclass
class World:
    """``stuck``: names of pods that never run. ``foreign``: "Kind/name" of others' objects.
    ``engines``: by pod uid, the engine's state. ``unready``: uids of engines whose last probe
    failed, which is a tick behind what they say."""

    resource: Manifest
    pods: dict[str, PodView] = field(default_factory=dict)
    engines: dict[str, dict[str, Any]] = field(default_factory=dict)
    children: dict[str, Child] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    foreign: frozenset[str] = frozenset()
    stuck: frozenset[str] = frozenset()
    now: float = NOW
    made: int = 0
    unready: set[str] = field(default_factory=set)

    @property
    def deployment(self) -> Deployment:
        return read_deployment(self.resource)

    def look(self) -> Observed:
        return Observed(
            resource=self.resource,
            pods=tuple(self._seen(pod) for pod in self.pods.values()),
            children=tuple(self.children.values()),
            taken=frozenset(self.taken),
            engines={
                pod.replica: EngineView(dict(self.engines[pod.uid]), at=self.now)
                for pod in self.pods.values()
                if pod.uid in self.engines and pod.phase == "Running" and not pod.deleting
            },
        )

    def _seen(self, pod: PodView) -> PodView:
        """As the kubelet reports it."""
        if pod.role != names.ENGINE or pod.deleting or pod.phase != "Running":
            return pod
        return replace(pod, ready=pod.uid in self.engines and pod.uid not in self.unready)

    def _probe(self) -> None:
        """An engine is ready when requests shall come to it."""
        wakes = self.deployment.spec.wake.on_request
        takes = {"Awake", *(("Asleep", "Draining", "Sleeping", "Waking") if wakes else ())}
        self.unready = {
            uid
            for uid, told in self.engines.items()
            if told["lifecycle"] not in takes or not told.get("on_call", True)
        }

    def step(self) -> Plan:
        """Look, plan, carry out."""
        decided = plan(self.look(), SETTINGS, self.now)
        self.carry_out(decided)
        return decided

    def carry_out(self, decided: Plan) -> None:
        for manifest in decided.apply:
            self._apply(manifest)
        for ref in decided.delete:
            pod = self.pods[ref.name]
            assert pod.uid == ref.uid
            if ref.force or pod.phase in ("Failed", "Succeeded"):
                del self.pods[ref.name]
            else:
                ends = self.now + GRACE
                self.pods[ref.name] = replace(pod, deleting=True, ready=False, ends_at=ends)
        for manifest in decided.create:
            self._create(manifest)
        for call in decided.calls:
            self._call(call.replica, call.verb, call.value)
        self.resource = self.resource | {"status": decided.status}

    def _apply(self, manifest: Manifest) -> None:
        key = child_key(manifest["kind"], manifest["metadata"]["name"])
        if key in self.foreign:
            assert manifest["kind"] == "Secret"  # the others can be seen beforehand
            self.taken.add(key)
            return
        self.children[key] = Child(manifest["kind"], manifest["metadata"]["name"], manifest, True)

    def _create(self, manifest: Manifest) -> None:
        name, labels = manifest["metadata"]["name"], manifest["metadata"]["labels"]
        assert name not in self.pods
        if child_key("Pod", name) in self.foreign:
            self.taken.add(child_key("Pod", name))
            return
        self.made += 1
        self.pods[name] = PodView(
            name=name,
            uid=f"made-{self.made}",
            role=labels[names.LABEL_ROLE],
            replica=int(labels[names.LABEL_REPLICA]),
            worker=int(labels.get(names.LABEL_WORKER, -1)),
            revision=labels[names.LABEL_REVISION],
            phase="Pending",
            created_at=self.now,
        )

    def _call(self, replica: int, verb: str, value: bool) -> None:
        pod = self.pods[names.engine_pod("demo", replica)]
        told = self.engines[pod.uid]
        if verb == "on_call":
            assert value or self._takes_without(replica), "nobody is left in the Service"
            told["on_call"] = value
        elif verb == "sleep" and told["lifecycle"] == "Awake":
            assert told.get("on_call", True) or not self._seen(pod).ready, "still in the Service"
            told["lifecycle"] = "Draining"
        elif verb == "wake" and told["lifecycle"] == "Asleep":
            told.update(lifecycle="Waking", woken_by="call")
        elif verb == "wake":
            told["woken_by"] = "call"

    def _takes_without(self, replica: int) -> bool:
        """Whether another engine is in the Service, or requests are not to be taken."""
        spec = self.deployment.spec
        others = [self._seen(pod) for pod in self.pods.values() if pod.replica != replica]
        ready = any(pod.ready and pod.role == names.ENGINE for pod in others)
        return ready or (not spec.replicas and not spec.wake.on_request)

    def tick(self, seconds: float = 100.0) -> None:
        """Deletions end, pods start, engines go one step further."""
        self.now += seconds
        self._probe()
        for name, pod in list(self.pods.items()):
            if pod.deleting:
                if name not in self.stuck:
                    del self.pods[name]
            elif pod.phase == "Pending" and name in self.stuck:
                told = "The image runtime:1 cannot be pulled."
                self.pods[name] = replace(pod, reason="ImagePullFailed", message=told)
            elif pod.phase == "Pending":
                self.pods[name] = replace(
                    pod, phase="Running", ready=True, ip="10.0.0.9", started_at=self.now
                )
        for pod in self.pods.values():
            if pod.role == names.ENGINE and pod.phase == "Running":
                self._move(pod)

    def _move(self, pod: PodView) -> None:
        told = self.engines.setdefault(pod.uid, {"lifecycle": "Starting", "on_call": True})
        lifecycle = told["lifecycle"]
        if lifecycle in ("Starting", "Recovering") and self._group_is_there(pod):
            told["lifecycle"] = "Awake"
        elif lifecycle in ("Awake", "Draining", "Waking") and not self._group_is_there(pod):
            told["lifecycle"] = "Recovering"
        else:
            told["lifecycle"] = _MOVES.get(lifecycle, lifecycle)

    def _group_is_there(self, engine: PodView) -> bool:
        wanted = self.deployment.workers
        there = [
            pod
            for pod in self.pods.values()
            if pod.role == names.WORKER
            and (pod.replica, pod.revision) == (engine.replica, engine.revision)
            and pod.phase == "Running"
            and not pod.deleting
        ]
        return len(there) >= wanted
