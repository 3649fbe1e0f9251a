"""How children are called, labelled and reached. What the pods know too is `torpor_protocol.pods`'
and passed on from there."""

from __future__ import annotations

from typing import Final

from torpor_protocol.pods import ADMIN_PORT, CLIENT_PORT, KEYS_FOLDER, WIRE_PORT
from torpor_protocol.pods import ENGINE_FILE as ENGINE_KEYS_FILE
from torpor_protocol.pods import TOKEN_FILE as ADMIN_TOKEN
from torpor_protocol.pods import WORKER_FILE as WORKER_KEYS_FILE
from torpor_protocol.pods import engine_pod_name as engine_pod
from torpor_protocol.pods import worker_pod_name as worker_pod

__all__ = [
    "ADMIN_PORT",
    "ADMIN_TOKEN",
    "CLIENT_PORT",
    "ENGINE",
    "ENGINE_KEYS_FILE",
    "FIELD_MANAGER",
    "KEYS_FOLDER",
    "LABEL_DEPLOYMENT",
    "LABEL_INSTANCE",
    "LABEL_MANAGED_BY",
    "LABEL_NAME",
    "LABEL_NAMESPACE",
    "LABEL_REPLICA",
    "LABEL_REVISION",
    "LABEL_ROLE",
    "LABEL_WORKER",
    "MODEL_FOLDER",
    "OPERATOR",
    "PRODUCT",
    "SHARED_MEMORY_FOLDER",
    "TEMPORARY_FOLDER",
    "WIRE_PORT",
    "WORKER",
    "WORKER_KEYS_FILE",
    "child_labels",
    "client_service",
    "client_url",
    "deployment_selector",
    "disruption_budget",
    "engine_endpoint",
    "engine_item",
    "engine_pod",
    "engine_policy",
    "keys_secret",
    "pods_service",
    "selector_text",
    "worker_item",
    "worker_pod",
    "worker_policy",
]

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

ENGINE: Final = "engine"
WORKER: Final = "worker"

MODEL_FOLDER: Final = "/model"
TEMPORARY_FOLDER: Final = "/tmp"
SHARED_MEMORY_FOLDER: Final = "/dev/shm"


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
