"""The children of a deployment, as they are and as far as two deployments compare by them."""

from __future__ import annotations

import difflib
import json
from typing import Any

from kube import Kube, Object, wait_for

KINDS = "pods,services,secrets,networkpolicies,poddisruptionbudgets"
# What the cluster fills in, and what differs from one deployment to the next of the same spec.
_GIVEN = frozenset({"nodeName", "clusterIP", "clusterIPs", "healthCheckNodePort"})


def children(kube: Kube, uid: str) -> list[Object]:
    """All objects of the namespace whose controller has that uid, whatever their labels."""
    return [each for each in kube.listed(KINDS) if _owner(each).get("uid") == uid]


def identities(kube: Kube, uid: str) -> dict[str, tuple[str, str]]:
    """ "Kind/name" -> uid and resourceVersion."""
    return {
        f"{each['kind']}/{each['metadata']['name']}": _identity(each)
        for each in children(kube, uid)
    }


def _identity(each: Object) -> tuple[str, str]:
    return each["metadata"]["uid"], each["metadata"]["resourceVersion"]


def end_state(kube: Kube, name: str) -> str:
    """Children (labels, owners, specs, keys of the Secret) and what the status says (conditions,
    replicas), as text in which equal states are equal."""
    resource = kube.get("infd", name)
    uid = resource["metadata"]["uid"]
    status = resource.get("status", {})
    found: dict[str, Any] = {
        "children": sorted(map(_normal, children(kube, uid)), key=json.dumps),
        "conditions": {
            each["type"]: [each["status"], each["reason"]] for each in status.get("conditions", [])
        },
        "replicas": {
            each["index"]: [each["state"], each.get("reason", "")]
            for each in status.get("replicaStatuses", [])
        },
        "counts": {key: value for key, value in status.items() if isinstance(value, int)}
        | {"observedGeneration": 0},
    }
    return json.dumps(found, indent=1, sort_keys=True).replace(uid, "UID")


def wait_state(kube: Kube, name: str, wanted: str, seconds: float) -> None:
    """Until it is that of ``end_state``."""
    wait_for(
        lambda: end_state(kube, name) == wanted,
        seconds,
        lambda: "\n".join(
            difflib.unified_diff(
                wanted.splitlines(), end_state(kube, name).splitlines(), "wanted", "found", n=4
            )
        ),
    )


def own_labels(each: Object) -> dict[str, str]:
    """Without those that the API server copies from a pod's node."""
    labels: dict[str, str] = each["metadata"].get("labels", {})
    return {
        key: value for key, value in labels.items() if not key.startswith("topology.kubernetes.io/")
    }


def _owner(each: Object) -> Object:
    references = each["metadata"].get("ownerReferences", [])
    return next((dict(ref) for ref in references if ref.get("controller")), {})


def _normal(each: Object) -> Object:
    metadata = each["metadata"]
    return {
        "kind": each["kind"],
        "name": metadata["name"],
        "labels": own_labels(each),
        "metadata": {key: metadata.get(key) for key in ("finalizers", "ownerReferences")},
        "spec": {key: part for key, part in each.get("spec", {}).items() if key not in _GIVEN},
        "data": sorted(each.get("data", {})),
        "ending": "deletionTimestamp" in metadata,
    }
