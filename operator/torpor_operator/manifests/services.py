"""The client Service, and the headless one that gives every pod a name before it is ready."""

from __future__ import annotations

from torpor_operator import names
from torpor_operator.deployment import Deployment
from torpor_operator.manifests.common import child
from torpor_operator.model import Manifest


def services(deployment: Deployment) -> list[Manifest]:
    return [_pods_service(deployment), _client_service(deployment)]


def _pods_service(deployment: Deployment) -> Manifest:
    spec = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": names.deployment_selector(deployment.name),
        "ports": [_port("wire", names.WIRE_PORT)],
    }
    name = names.pods_service(deployment.name)
    return child(deployment, "v1", "Service", name, {}) | {"spec": spec}


def _client_service(deployment: Deployment) -> Manifest:
    spec = {
        "type": "ClusterIP",
        "selector": names.deployment_selector(deployment.name, names.ENGINE),
        "ports": [_port("http", names.CLIENT_PORT)],
    }
    name = names.client_service(deployment.name)
    return child(deployment, "v1", "Service", name, {}) | {"spec": spec}


def _port(name: str, number: int) -> Manifest:
    return {"name": name, "port": number, "protocol": "TCP", "targetPort": number}
