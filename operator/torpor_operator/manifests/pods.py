"""Engine pods and worker pods."""

from __future__ import annotations

import json
from typing import Any, Final

from torpor_operator import names
from torpor_operator.deployment import Deployment
from torpor_operator.manifests.model_mount import ModelMount, model_mount
from torpor_operator.manifests.pod_base import PodParts, build_pod
from torpor_operator.model import Manifest
from torpor_operator.settings import Settings
from torpor_protocol import pods as told
from torpor_protocol.api import API_VERSION, KIND

ENGINE_COMMAND: Final = ("torpor", "engine")
WORKER_COMMAND: Final = ("python", "-m", "torpor_worker", "pod")
_DRAIN_MARGIN: Final = 13  # seconds for an engine to leave the Service, and to end at last
_WORKER_GRACE: Final = 15
_SHARED_MEMORY: Final = "torpor-shm"
_NO_ACCELERATOR: Final = "none"
_FOLDERS: Final = {
    "HOME": "/tmp",
    "XDG_CACHE_HOME": "/tmp/cache",
    "TORPOR_CACHE": "/tmp/torpor",
    "TORCHINDUCTOR_CACHE_DIR": "/tmp/torchinductor",
    "TRITON_CACHE_DIR": "/tmp/triton",
}


def engine_pod(deployment: Deployment, replica: int, settings: Settings) -> Manifest:
    spec = deployment.spec
    model = model_mount(deployment)
    parts = PodParts(
        name=names.engine_pod(deployment.name, replica),
        labels={names.LABEL_REPLICA: str(replica)},
        settings=spec.engine,
        env=_environment(deployment, replica, model),
        key_items={
            names.engine_item(replica): names.ENGINE_KEYS_FILE,
            names.ADMIN_TOKEN: names.ADMIN_TOKEN,
        },
        container={
            "command": list(ENGINE_COMMAND),
            "resources": spec.engine.resources.to_wire(),
            "ports": [
                _port("http", names.CLIENT_PORT),
                _port("admin", names.ADMIN_PORT),
                _port("wire", names.WIRE_PORT),
            ],
            # A busy node may take minutes to import what the engine needs.
            "startupProbe": _probe("/livez", period=1, failures=300),
            "livenessProbe": _probe("/livez", period=10, failures=6),
            "readinessProbe": _probe("/readyz", period=2, failures=2),
        },
        grace_seconds=spec.drain_timeout_seconds + _DRAIN_MARGIN,
        volumes=model.volumes,
        mounts=model.mounts,
    )
    return build_pod(deployment, names.ENGINE, parts, settings)


def worker_pod(deployment: Deployment, replica: int, worker: int, settings: Settings) -> Manifest:
    spec = deployment.spec
    model = model_mount(deployment)
    shared = {"medium": "Memory", "sizeLimit": spec.worker.shared_memory}
    own = {
        told.WORKER: str(worker),
        told.DEVICES: str(deployment.ranks(worker)),
        told.ENGINE: names.engine_endpoint(deployment.name, deployment.namespace, replica),
    }
    parts = PodParts(
        name=names.worker_pod(deployment.name, replica, worker),
        labels={names.LABEL_REPLICA: str(replica), names.LABEL_WORKER: str(worker)},
        settings=spec.worker,
        env=[*_environment(deployment, replica, model), *_values(own)],
        key_items={names.worker_item(replica, worker): names.WORKER_KEYS_FILE},
        container={"command": list(WORKER_COMMAND), "resources": _resources(deployment, worker)},
        grace_seconds=_WORKER_GRACE,
        volumes=(*model.volumes, {"name": _SHARED_MEMORY, "emptyDir": shared}),
        mounts=(*model.mounts, _mount(_SHARED_MEMORY, names.SHARED_MEMORY_FOLDER)),
    )
    return build_pod(deployment, names.WORKER, parts, settings)


def _environment(deployment: Deployment, replica: int, model: ModelMount) -> list[Manifest]:
    own = {
        told.DEPLOYMENT: _as_given(deployment),
        told.DEPLOYMENT_UID: deployment.uid,
        told.REPLICA: str(replica),
        told.REVISION: deployment.revision,
        told.MODEL_PATH: model.path,
        **_FOLDERS,
    }
    downward = {
        told.POD_NAME: "metadata.name",
        told.POD_UID: "metadata.uid",
        told.POD_IP: "status.podIP",
    }
    fields = [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in downward.items()
    ]
    return [*_values(own), *fields]


def _as_given(deployment: Deployment) -> str:
    """The resource for the engine's own reading, without what scaling changes."""
    spec = deployment.spec.to_wire()
    for name in ("replicas", "standby", "autoscaling", "rollout"):
        spec.pop(name, None)
    named = {key: getattr(deployment, key) for key in ("name", "namespace", "uid")}
    whole = {"apiVersion": API_VERSION, "kind": KIND, "metadata": named, "spec": spec}
    return json.dumps(whole, sort_keys=True, separators=(",", ":"))


def _resources(deployment: Deployment, worker: int) -> dict[str, Any]:
    wire = deployment.spec.worker.resources.to_wire()
    accelerator = deployment.spec.worker.accelerator
    if accelerator == _NO_ACCELERATOR:
        return wire
    return wire | {"limits": wire["limits"] | {accelerator: deployment.ranks(worker)}}


def _values(variables: dict[str, str]) -> list[Manifest]:
    return [{"name": name, "value": value} for name, value in variables.items()]


def _port(name: str, number: int) -> Manifest:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def _probe(path: str, *, period: int, failures: int) -> Manifest:
    # Not where clients connect: as many as it takes would else make the engine look dead.
    get = {"path": path, "port": names.ADMIN_PORT}
    timeout = {"periodSeconds": period, "timeoutSeconds": period, "failureThreshold": failures}
    return {"httpGet": get, **timeout}


def _mount(name: str, path: str) -> Manifest:
    return {"name": name, "mountPath": path}
