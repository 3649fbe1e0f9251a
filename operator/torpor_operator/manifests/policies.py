"""Who may reach the pods: clients the client port, the operator the admin port, workers the wire.

What the pods may reach is left open: models, DNS and exporters differ between clusters.
"""

from __future__ import annotations

from torpor_operator import names
from torpor_operator.deployment import Deployment
from torpor_operator.manifests.common import child, pods_of
from torpor_operator.model import Manifest


def network_policies(deployment: Deployment, operator_namespace: str) -> list[Manifest]:
    operator = {
        "namespaceSelector": {"matchLabels": {names.LABEL_NAMESPACE: operator_namespace}},
        "podSelector": {"matchLabels": {names.LABEL_NAME: names.OPERATOR}},
    }
    workers = {"podSelector": pods_of(deployment, names.WORKER)}
    to_engine: list[Manifest] = [
        {"ports": [_port(names.CLIENT_PORT)]},
        {"from": [operator], "ports": [_port(names.ADMIN_PORT)]},
        {"from": [workers], "ports": [_port(names.WIRE_PORT)]},
    ]
    to_workers: list[Manifest] = [{"from": [{"podSelector": pods_of(deployment)}]}]
    return [
        _policy(deployment, names.engine_policy(deployment.name), names.ENGINE, to_engine),
        _policy(deployment, names.worker_policy(deployment.name), names.WORKER, to_workers),
    ]


def _policy(deployment: Deployment, name: str, role: str, ingress: list[Manifest]) -> Manifest:
    spec = {
        "podSelector": pods_of(deployment, role),
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    }
    return child(deployment, "networking.k8s.io/v1", "NetworkPolicy", name, {}) | {"spec": spec}


def _port(number: int) -> Manifest:
    return {"port": number, "protocol": "TCP"}
