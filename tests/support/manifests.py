"""InferenceDeployments for tests: the smallest one, changed at dotted paths; and cases per rule.

The cases are data, because a real API server must accept and refuse the same ones.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torpor_protocol.api import ApiModel

Changes = dict[str, Any]

SMALLEST: dict[str, Any] = {
    "apiVersion": "torpor.dev/v1alpha1",
    "kind": "InferenceDeployment",
    "metadata": {"name": "demo"},
    "spec": {"model": {"source": "file:///models/demo"}},
}


def wire(changes: Changes | None = None) -> dict[str, Any]:
    """The smallest resource with ``changes``: dotted path -> value."""
    resource = copy.deepcopy(SMALLEST)
    for path, value in (changes or {}).items():
        *parents, last = path.split(".")
        place = resource
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return resource


def models() -> Iterator[type[ApiModel]]:
    """Every model of the custom resource."""
    waiting = list(ApiModel.__subclasses__())
    while waiting:
        model = waiting.pop()
        waiting.extend(model.__subclasses__())
        yield model


@dataclass(frozen=True)
class Case:
    """One rule: what is accepted, what is refused, and words of the refusal."""

    accepted: Changes
    refused: Changes
    words: str


def _volume(**kind: Any) -> Changes:
    return {"spec.worker.volumes": [{"name": "cache", "mountPath": "/cache", **kind}]}


def _mounted(path: str) -> Changes:
    return {"spec.worker.volumes": [{"name": "cache", "mountPath": path, "emptyDir": {}}]}


def _env(**variable: Any) -> Changes:
    return {"spec.engine.env": [{"name": "LEVEL", **variable}]}


def _source(uri: str) -> Changes:
    return {"spec.model.source": uri}


_REF = {"name": "settings", "key": "level"}
_CPU_1 = {"limits": {"cpu": 1}, "requests": {"cpu": "1000m"}}
_CPU_2 = {"limits": {"cpu": 1}, "requests": {"cpu": "1001m"}}

# Rules over several fields or of a form that a schema cannot say: CEL and pydantic.
RULES: dict[str, Case] = {
    "source scheme": Case(_source("file:///m"), _source("gs://bucket/m"), "exactly one URI"),
    "source hf": Case(_source("hf://org/name"), _source("hf://name"), "hf://organisation/name"),
    "source pvc": Case(_source("pvc://claim/a/b"), _source("pvc://Claim/a"), "pvc://claim/path"),
    "source oci": Case(_source("oci://r.io:5000/a/b:1"), _source("oci://a"), "oci://registry"),
    "source s3": Case(_source("s3://bucket/a"), _source("s3:///a"), "s3://bucket/path"),
    "source file": Case(_source("file:///my models"), _source("file://m"), "file:///absolute"),
    "source parent": Case(_source("pvc://c/a..b"), _source("pvc://c/a/../b"), "must not hold ."),
    "revision": Case(
        {**_source("hf://org/name"), "spec.model.revision": "v1.0"},
        {"spec.model.revision": "v1.0"},
        "only an hf:// source has revisions",
    ),
    "digest of a source that nobody checks": Case(
        {**_source("oci://r.io/a"), "spec.model.digest": "sha256:" + 64 * "0"},
        {**_source("pvc://claim/a"), "spec.model.digest": "sha256:" + 64 * "0"},
        "only an oci:// image",
    ),
    "name": Case({"metadata.name": "d" * 40}, {"metadata.name": "d" * 41}, "at most 40"),
    "name form": Case({"metadata.name": "a-1"}, {"metadata.name": "1-a"}, "a letter first"),
    "replicas": Case(
        {"spec.autoscaling": {"maxReplicas": 2}},
        {"spec.autoscaling": {"maxReplicas": 2}, "spec.replicas": 1},
        "must be absent where autoscaling is set",
    ),
    "standby": Case(
        {"spec.standby": {"minReplicas": 2, "maxReplicas": 2}},
        {"spec.standby": {"minReplicas": 2}},
        "must not exceed maxReplicas",
    ),
    "autoscaling": Case(
        {"spec.autoscaling": {"minReplicas": 3, "maxReplicas": 3}},
        {"spec.autoscaling": {"minReplicas": 4, "maxReplicas": 3}},
        "must not exceed maxReplicas",
    ),
    "world size": Case(
        {"spec.parallelism": {"tensor": 32, "pipeline": 32}},
        {"spec.parallelism": {"tensor": 33, "pipeline": 32}},
        "must not exceed 1024 ranks",
    ),
    "ranks per pod": Case(
        {"spec.parallelism.tensor": 4, "spec.worker.ranksPerPod": 2},
        {"spec.parallelism.tensor": 4, "spec.worker.ranksPerPod": 3},
        "must divide parallelism.tensor times parallelism.pipeline",
    ),
    "batched tokens": Case(
        {"spec.engine.maxNumSeqs": 2048},
        {"spec.engine.maxNumSeqs": 2049},
        "must not be less than maxNumSeqs",
    ),
    "unchunked prefill": Case(
        {"spec.engine.enableChunkedPrefill": False, "spec.model.maxModelLen": 2048},
        {"spec.engine.enableChunkedPrefill": False, "spec.model.maxModelLen": 2049},
        "while chunked prefill is off",
    ),
    "accelerator": Case(
        {"spec.worker.accelerator": "none", "spec.worker.resources.limits": {"a.com/b": 1}},
        {"spec.worker.resources.limits": {"nvidia.com/gpu": 1}},
        "must not name the accelerator",
    ),
    "rollout": Case(
        {"spec.rollout": {"maxSurge": 1, "maxUnavailable": 0}},
        {"spec.rollout.maxUnavailable": 0},
        "a rollout could never begin",
    ),
    "requests": Case(
        {"spec.engine.resources": _CPU_1},
        {"spec.engine.resources": _CPU_2},
        "must not exceed limits of the same name",
    ),
    "env prefix": Case(
        {"spec.engine.env": [{"name": "OLD_X"}]},
        {"spec.engine.env": [{"name": "LD_PRELOAD", "value": "x.so"}]},
        "must not begin with LD_",
    ),
    "env value": Case(
        _env(valueFrom={"secretKeyRef": _REF}),
        _env(value="1", valueFrom={"secretKeyRef": _REF}),
        "must be absent where valueFrom is set",
    ),
    "env source": Case(
        _env(valueFrom={"configMapKeyRef": _REF}),
        _env(valueFrom={"configMapKeyRef": _REF, "secretKeyRef": _REF}),
        "must not both be set or both be absent",
    ),
    "toleration value": Case(
        {"spec.engine.tolerations": [{"key": "a", "value": "b"}]},
        {"spec.engine.tolerations": [{"key": "a", "value": "b", "operator": "Exists"}]},
        "must be absent with operator Exists",
    ),
    "toleration key": Case(
        {"spec.engine.tolerations": [{"operator": "Exists"}]},
        {"spec.engine.tolerations": [{"value": "b"}]},
        "must be set with operator Equal",
    ),
    "mount path": Case(_mounted("/developers"), _mounted("/dev/shm"), "must not hold the parts"),
    "mount path parent": Case(_mounted("/a..b"), _mounted("/a/../b"), "must not hold the parts"),
    "volume kind": Case(_volume(secret={"secretName": "a"}), _volume(), "must have exactly one of"),
    "volume kinds": Case(
        _volume(persistentVolumeClaim={"claimName": "a"}),
        _volume(emptyDir={}, configMap={"name": "a"}),
        "must have exactly one of",
    ),
}

# What the schema itself says: ranges, forms, choices, lengths, uniqueness, presence.
SCHEMA: dict[str, Case] = {
    "tensor": Case(
        {"spec.parallelism.tensor": 1}, {"spec.parallelism.tensor": 0}, "number from 1 to 1024"
    ),
    "pipeline": Case(
        {"spec.parallelism.pipeline": 2}, {"spec.parallelism.pipeline": -1}, "from 1 to 1024"
    ),
    "text for number": Case({"spec.replicas": 2}, {"spec.replicas": "2"}, "from 0 to 500"),
    "fraction": Case({"spec.replicas": 0}, {"spec.replicas": 1.5}, "from 0 to 500"),
    "truth for number": Case({"spec.replicas": 500}, {"spec.replicas": True}, "from 0 to 500"),
    "level": Case({"spec.standby.level": 3}, {"spec.standby.level": 4}, "from 1 to 3"),
    "level 0": Case({"spec.standby.level": 1}, {"spec.standby.level": 0}, "from 1 to 3"),
    "dtype": Case(
        {"spec.model.dtype": "float16"},
        {"spec.model.dtype": "fp16"},
        "must be auto, float32, bfloat16 or float16",
    ),
    "quantization": Case(
        {"spec.model.quantization": "none"}, {"spec.model.quantization": "int4"}, "must be none"
    ),
    "length": Case({"spec.model.maxModelLen": 1}, {"spec.model.maxModelLen": 0}, "must be auto or"),
    "length text": Case(
        {"spec.model.maxModelLen": "auto"}, {"spec.model.maxModelLen": "all"}, "must be auto or"
    ),
    "kv cache": Case(
        {"spec.worker.kvCacheMemory": "1.5Gi"}, {"spec.worker.kvCacheMemory": "2GB"}, "Ki, Mi, Gi"
    ),
    "kv cache 0": Case(
        {"spec.worker.kvCacheMemory": 1}, {"spec.worker.kvCacheMemory": 0}, "at least 1"
    ),
    "kv cache 0Gi": Case(
        {"spec.worker.kvCacheMemory": "0.5Gi"},
        {"spec.worker.kvCacheMemory": "0Gi"},
        "Ki, Mi, Gi",
    ),
    "resources number": Case(
        {"spec.engine.resources.limits": {f"a.com/r{n}": n for n in range(6)}},
        {"spec.engine.resources.limits": {f"a.com/r{n}": n for n in range(7)}},
        "at most 6 entries",
    ),
    "shared memory": Case(
        {"spec.worker.sharedMemory": "512Mi"}, {"spec.worker.sharedMemory": "-1Gi"}, "Ki, Mi, Gi"
    ),
    "served names": Case(
        {"spec.model.servedNames": ["a", "org/b"]},
        {"spec.model.servedNames": ["a", "a"]},
        "must not repeat a",
    ),
    "served name form": Case(
        {"spec.model.servedNames": ["a:b"]}, {"spec.model.servedNames": ["a b"]}, "a name of"
    ),
    "served names number": Case(
        {"spec.model.servedNames": [f"a{n}" for n in range(16)]},
        {"spec.model.servedNames": [f"a{n}" for n in range(17)]},
        "at most 16 entries",
    ),
    "digest": Case(
        {**_source("oci://r.io/a"), "spec.model.digest": "sha256:" + 64 * "0"},
        {**_source("oci://r.io/a"), "spec.model.digest": "sha256:0"},
        "71",
    ),
    "accelerator form": Case(
        {"spec.worker.accelerator": "amd.com/gpu"}, {"spec.worker.accelerator": "gpu"}, "none or"
    ),
    "env twice": Case(
        {"spec.engine.env": [{"name": "A"}, {"name": "B"}]},
        {"spec.engine.env": [{"name": "A"}, {"name": "A"}]},
        "must not repeat name A",
    ),
    "env number": Case(_env(value="1"), _env(value=1), "must be a text"),
    "resource name": Case(
        {"spec.engine.resources.limits": {"a.com/b": 1}},
        {"spec.engine.resources.limits": {"a b": 1}},
        "a qualified name",
    ),
    "request name": Case(
        {"spec.engine.resources.requests": {"cpu": 1}},
        {"spec.engine.resources.requests": {"a b": 1}},
        "a qualified name",
    ),
    "node label": Case(
        {"spec.engine.nodeSelector": {"a.com/b": "c"}},
        {"spec.engine.nodeSelector": {"a b": "c"}},
        "a qualified name",
    ),
    "root": Case(
        {"spec.worker.securityContext.runAsUser": 1},
        {"spec.worker.securityContext.runAsUser": 0},
        "from 1 to",
    ),
    "switch": Case({"spec.wake.onRequest": False}, {"spec.wake.onRequest": "no"}, "true or false"),
    "map": Case({"spec.wake": {}}, {"spec.wake": []}, "must be a map"),
    "list": Case({"spec.engine.env": []}, {"spec.engine.env": {}}, "must be a list"),
    "max replicas": Case(
        {"spec.autoscaling": {"maxReplicas": 1}}, {"spec.autoscaling": {}}, "is missing"
    ),
    "source missing": Case({}, {"spec.model": {}}, "is missing"),
    "unknown": Case({"spec.replicas": 1}, {"spec.replica": 1}, "is not a known field"),
    "unknown null": Case({"spec.replicas": None}, {"spec.x": None}, "is not a known field"),
    "host path": Case(
        _volume(emptyDir={"sizeLimit": "1Gi"}), _volume(hostPath={"path": "/"}), "not a known field"
    ),
    "privilege": Case(
        {"spec.engine.securityContext": {}},
        {"spec.engine.securityContext.privileged": True},
        "is not a known field",
    ),
}

CASES = {**RULES, **SCHEMA}
