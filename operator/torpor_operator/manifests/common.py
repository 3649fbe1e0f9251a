"""What all children have in common: name, labels and their owner."""

from __future__ import annotations

from torpor_operator import names
from torpor_operator.deployment import Deployment
from torpor_operator.model import Manifest
from torpor_protocol.api import API_VERSION, KIND


def owner_reference(deployment: Deployment) -> Manifest:
    """``blockOwnerDeletion`` is not asked for: it would need a right to the owner's finalizers."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": deployment.name,
        "uid": deployment.uid,
        "controller": True,
    }


def child(
    deployment: Deployment, api_version: str, kind: str, name: str, labels: dict[str, str]
) -> Manifest:
    """A manifest without its content. ``labels``: beside those of every child."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": deployment.namespace,
            "labels": names.child_labels(deployment.name) | labels,
            "ownerReferences": [owner_reference(deployment)],
        },
    }


def pods_of(deployment: Deployment, role: str = "") -> Manifest:
    """A label selector for the pods of the deployment, or of one role of it."""
    return {"matchLabels": names.deployment_selector(deployment.name, role)}
