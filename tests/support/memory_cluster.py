"""A ``Cluster`` in memory, for what no API server is needed to show: order, repetition, errors.

It knows names, uids and merge patches, and nothing of schemas, rights or ownership of fields.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator

from torpor_operator.cluster_api import ClusterError, Conflict, NotFound
from torpor_operator.model import Manifest, PodRef
from torpor_operator.names import LABEL_DEPLOYMENT, child_labels
from torpor_protocol.api import API_VERSION, KIND

NAMESPACE = "models"
NAME = "demo"
UID = "uid-of-demo"

Place = tuple[str, str, str]


class MemoryCluster:
    """``writes``: "verb Kind/name" in order. ``failures``: the same text -> errors to raise, one
    per attempt. ``dropped``: status fields that the schema does not know."""

    def __init__(self, *objects: Manifest) -> None:
        self.objects: dict[Place, Manifest] = {}
        self.writes: list[str] = []
        self.failures: dict[str, list[ClusterError]] = {}
        self.dropped: frozenset[str] = frozenset()
        self.warnings: dict[str, tuple[str, str]] = {}
        self._counter: Iterator[int] = itertools.count(1)
        for each in objects:
            self.put(each)

    def put(self, manifest: Manifest) -> None:
        stored = copy.deepcopy(manifest)
        stored["metadata"].setdefault("uid", f"uid-{next(self._counter)}")
        self.objects[_place(stored)] = stored

    def remove(self, kind: str, name: str) -> None:
        del self.objects[(kind, NAMESPACE, name)]

    async def deployment(self, namespace: str, name: str) -> Manifest:
        found = self.objects.get((KIND, namespace, name))
        if found is None:
            raise NotFound(404, "NotFound", f"{name} not found")
        return copy.deepcopy(found)

    async def deployments(self, namespace: str | None) -> list[Manifest]:
        return [
            copy.deepcopy(each)
            for (kind, where, _), each in self.objects.items()
            if kind == KIND and namespace in {None, where}
        ]

    async def children(self, namespace: str, deployment: str) -> list[Manifest]:
        return [
            copy.deepcopy(each)
            for (kind, where, _), each in self.objects.items()
            if kind not in {KIND, "Secret", "Event"}
            and where == namespace
            and each["metadata"].get("labels", {}).get(LABEL_DEPLOYMENT) == deployment
        ]

    async def find(self, kind: str, namespace: str, name: str) -> Manifest | None:
        return copy.deepcopy(self.objects.get((kind, namespace, name)))

    async def warning(self, namespace: str, uid: str) -> tuple[str, str] | None:
        return self.warnings.get(uid)

    async def apply(self, manifest: Manifest) -> None:
        self._write("apply", manifest["kind"], manifest["metadata"]["name"])
        self.put(manifest)

    async def create(self, manifest: Manifest) -> None:
        self._write("create", manifest["kind"], manifest["metadata"]["name"])
        if _place(manifest) in self.objects:
            raise Conflict(409, "AlreadyExists", "it exists already")
        self.put(manifest)

    async def delete_pod(self, namespace: str, ref: PodRef) -> None:
        self._write("delete", "Pod", ref.name)
        found = self.objects.get(("Pod", namespace, ref.name))
        if found is not None and found["metadata"]["uid"] == ref.uid:
            del self.objects[("Pod", namespace, ref.name)]

    async def patch_status(self, namespace: str, name: str, patch: Manifest) -> Manifest:
        self._write("status", KIND, name)
        live = self.objects[(KIND, namespace, name)]
        merged = merged_object(live.get("status") or {}, patch)
        live["status"] = {key: each for key, each in merged.items() if key not in self.dropped}
        return copy.deepcopy(live["status"])

    def _write(self, verb: str, kind: str, name: str) -> None:
        what = f"{verb} {kind}/{name}"
        self.writes.append(what)
        if self.failures.get(what):
            raise self.failures[what].pop(0)


def deployment(**metadata: str) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": NAME, "namespace": NAMESPACE, "uid": UID, "generation": 1} | metadata,
        "spec": {"model": {"source": "file:///models/tiny"}},
    }


def child(kind: str, name: str, *, owner: str = UID, **content: object) -> Manifest:
    reference = {"kind": KIND, "name": NAME, "uid": owner, "controller": True}
    return {
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": child_labels(NAME),
            "ownerReferences": [reference] if owner else [],
        },
    } | content


def _place(manifest: Manifest) -> Place:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata["namespace"], metadata["name"]


def merged_object(live: Manifest, patch: Manifest) -> Manifest:
    merged = dict(live)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            old = merged.get(name)
            merged[name] = merged_object(old if isinstance(old, dict) else {}, value)
        else:
            merged[name] = value
    return merged
