"""The nodes that tests may use, with the images already on them: what is told of a pod, and how
soon, is then never about a pull of gigabytes."""

from __future__ import annotations

from cluster_kit import client_pod
from kube import Kube, Object, wait_for

_NAME = "torpor-e2e-images"
_SELECTOR = f"app={_NAME}"
PULL_SECONDS = 1800.0


def bring_images(images: dict[str, str]) -> frozenset[str]:
    """Names of the nodes that have all three. Fails with the words of a pod that gets them not."""
    kube = Kube(_NAME)
    kube.kubectl("create", "namespace", _NAME, check=False)
    kube.apply(_daemon_set(images))
    try:
        wait_for(lambda: _settled(kube), PULL_SECONDS, lambda: _words(kube), pause=1)
        return frozenset(_node(pod) for pod in kube.listed("pods", _SELECTOR) if _ready(pod))
    finally:
        kube.kubectl("delete", "daemonset", _NAME, "--wait=false")
        kube.kubectl("delete", "namespace", _NAME, "--wait=false")


def _daemon_set(images: dict[str, str]) -> Object:
    labels = {"app": _NAME}
    spec = client_pod(images["runtime"])["spec"]
    [runtime] = spec["containers"]
    operator = {**runtime, "name": "operator", "image": images["operator"]}
    runtime["volumeMounts"] = [{"name": "model", "mountPath": "/model"}]
    spec |= {
        "containers": [runtime, operator],
        "volumes": [{"name": "model", "image": {"reference": images["model"]}}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": _NAME},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _settled(kube: Kube) -> bool:
    """Every node that is ready, and takes pods of ours, runs one."""
    status = kube.get("daemonset", _NAME).get("status", {})
    pods = kube.listed("pods", _SELECTOR)
    if not pods or len(pods) < status.get("desiredNumberScheduled", 0):
        return False
    alive = {node["metadata"]["name"] for node in kube.listed("nodes") if _ready(node)}
    return all(_ready(pod) for pod in pods if _node(pod) in alive)


def _ready(each: Object) -> bool:
    conditions = each.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _node(pod: Object) -> str:
    return str(pod["spec"].get("nodeName", ""))


def _words(kube: Kube) -> str:
    """What the slowest pod says of itself."""
    late = [pod for pod in kube.listed("pods", _SELECTOR) if not _ready(pod)]
    if not late:
        return kube.kubectl("get", "daemonset", _NAME, "-o", "yaml")
    return kube.kubectl("describe", "pod", late[0]["metadata"]["name"])
