"""How children are called, labelled and reached. Engine and worker pods know these names too."""

from __future__ import annotations

from typing import Final

OPERATOR: Final = "torpor-operator"
PRODUCT: Final = "torpor"
FIELD_MANAGER: Final = OPERATOR

LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABEL_INSTANCE: Final = "app.kubernetes.io/instance"
LABEL_NAMESPACE: Final = "kubernetes.io/metadata.name"  # set on namespaces by the API server
LABEL_DEPLOYMENT: Final = "torpor.dev/deployment"
LABEL_ROLE: Final = "torpor.dev/role"
LABEL_REPLICA: Final = "torpor.dev/replica"
LABEL_WORKER: Final = "torpor.dev/worker"
LABEL_REVISION: Final = "torpor.dev/revision"

CLIENT_PORT: Final = 8000
ADMIN_PORT: Final = 8001
WIRE_PORT: Final = 7070

ENGINE: Final = "engine"
WORKER: Final = "worker"

KEYS_FOLDER: Final = "/run/torpor/keys"
ENGINE_KEYS_FILE: Final = "engine.json"
WORKER_KEYS_FILE: Final = "worker.json"
ADMIN_TOKEN: Final = "admin-token"
MODEL_FOLDER: Final = "/model"
TEMPORARY_FOLDER: Final = "/tmp"
SHARED_MEMORY_FOLDER: Final = "/dev/shm"


def engine_pod(deployment: str, replica: int) -> str:
    return f"{deployment}-{replica}-engine"


def worker_pod(deployment: str, replica: int, worker: int) -> str:
    return f"{deployment}-{replica}-worker-{worker}"


def client_service(deployment: str) -> str:
    return deployment


def pods_service(deployment: str) -> str:
    return f"{deployment}-pods"


def keys_secret(deployment: str) -> str:
    return f"{deployment}-keys"


def engine_policy(deployment: str) -> str:
    return f"{deployment}-engine"


def worker_policy(deployment: str) -> str:
    return f"{deployment}-workers"


def disruption_budget(deployment: str) -> str:
    return deployment


def engine_item(replica: int) -> str:
    """Key of an engine's keys inside the Secret."""
    return f"engine-{replica}.json"


def worker_item(replica: int, worker: int) -> str:
    return f"worker-{replica}-{worker}.json"


def engine_endpoint(deployment: str, namespace: str, replica: int) -> str:
    """Where the workers of a replica find its engine; without the cluster's domain, which differs
    between clusters."""
    host = f"{engine_pod(deployment, replica)}.{pods_service(deployment)}.{namespace}.svc"
    return f"tcp://{host}:{WIRE_PORT}"


def client_url(deployment: str, namespace: str) -> str:
    return f"http://{client_service(deployment)}.{namespace}.svc:{CLIENT_PORT}"


def child_labels(deployment: str) -> dict[str, str]:
    """Labels of every child; the operator watches and lists by them."""
    return {
        LABEL_NAME: PRODUCT,
        LABEL_MANAGED_BY: OPERATOR,
        LABEL_INSTANCE: deployment,
        LABEL_DEPLOYMENT: deployment,
    }


def deployment_selector(deployment: str, role: str = "") -> dict[str, str]:
    """Labels that select the pods of a deployment, or of one role of it."""
    selected = {LABEL_DEPLOYMENT: deployment}
    return selected | ({LABEL_ROLE: role} if role else {})


def selector_text(labels: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in labels.items())
