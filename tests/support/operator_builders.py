"""Small builders for what the operator looks at: resources, pods, engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torpor_operator import manifests, names
from torpor_operator.deployment import Deployment, read_deployment
from torpor_operator.model import Child, EngineView, Manifest, Observed, PodView
from torpor_operator.settings import Settings

NOW = 1_800_000_000.0
SETTINGS = Settings(runtime_image="runtime:1", namespace="torpor-system", master_key=bytes(32))


def resource(*, name: str = "demo", status: Manifest | None = None, **spec: Any) -> Manifest:
    """An InferenceDeployment of two worker pods per replica; ``spec`` overrides single fields."""
    whole = {
        "model": {"source": "pvc://models/smollm2"},
        "parallelism": {"tensor": 2},
        "worker": {"accelerator": "none", "ranksPerPod": 1},
    }
    metadata = {"name": name, "namespace": "default", "uid": f"uid-of-{name}", "generation": 1}
    made = {"metadata": metadata, "spec": whole | spec}
    return made | ({"status": status} if status is not None else {})


def deployment(**spec: Any) -> Deployment:
    return read_deployment(resource(**spec))


def engine_pod(replica: int = 0, **fields: Any) -> PodView:
    """Running and ready, of the revision of ``resource()``, unless ``fields`` say otherwise."""
    return _pod(names.engine_pod("demo", replica), "engine", replica, -1, fields)


def worker_pod(replica: int = 0, worker: int = 0, **fields: Any) -> PodView:
    return _pod(names.worker_pod("demo", replica, worker), "worker", replica, worker, fields)


def replica_pods(replica: int = 0, workers: int = 2, **fields: Any) -> list[PodView]:
    made = [worker_pod(replica, worker, **fields) for worker in range(workers)]
    return [engine_pod(replica, **fields), *made]


def _pod(name: str, role: Any, replica: int, worker: int, fields: Mapping[str, Any]) -> PodView:
    usual: dict[str, Any] = {
        "uid": f"uid-of-{name}",
        "revision": deployment().revision,
        "phase": "Running",
        "ready": not fields.get("deleting") and fields.get("phase", "Running") == "Running",
        "ip": f"10.0.{replica}.{worker + 2}",
        "started_at": NOW - 100.0,
    }
    return PodView(name=name, role=role, replica=replica, worker=worker, **(usual | dict(fields)))


def engine(lifecycle: str = "Awake", **fields: Any) -> EngineView:
    return EngineView({"lifecycle": lifecycle, "on_call": True, **fields}, at=NOW)


def no_answer(silent: float = 0.0) -> EngineView:
    return EngineView(None, "The engine does not answer.", at=NOW, silent=silent)


def children(of: Deployment) -> tuple[Child, ...]:
    """All that are wanted beside pods and Secret, as the API server has them."""
    wanted = [
        *manifests.services(of),
        *manifests.network_policies(of, SETTINGS.namespace),
        manifests.disruption_budget(of),
    ]
    return tuple(Child(each["kind"], each["metadata"]["name"], each, True) for each in wanted)


def observed(
    pods: list[PodView],
    engines: Mapping[int, EngineView] | None = None,
    *,
    status: Manifest | None = None,
    spec: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Observed:
    """Everything beside pods is as it should be."""
    made = resource(status=status, **(spec or {}))
    of = read_deployment(made)
    indices = {pod.replica for pod in pods} | set(range(of.wanted))
    secret = manifests.keys_secret(of, indices, SETTINGS)
    usual: dict[str, Any] = {
        "children": (*children(of), Child("Secret", "demo-keys", secret, True)),
    }
    return Observed(made, pods=tuple(pods), engines=engines or {}, **(usual | fields))


def by_type(status: Manifest) -> dict[str, tuple[str, str]]:
    """Condition type -> status and reason."""
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def message_of(status: Manifest, kind: str) -> str:
    return next(str(each["message"]) for each in status["conditions"] if each["type"] == kind)
