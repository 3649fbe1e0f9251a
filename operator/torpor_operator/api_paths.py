"""Where the API server keeps each kind, and what its answers mean. Nothing here sends anything."""

from __future__ import annotations

import json
from typing import Any, Final, cast

from torpor_operator.cluster_api import ClusterError, Conflict, NamespaceEnding, NotFound
from torpor_operator.model import Manifest
from torpor_protocol.api.names import GROUP, KIND, PLURAL, VERSION

_PATHS: Final = {
    "Pod": "/api/v1/{}/pods",
    "Service": "/api/v1/{}/services",
    "Secret": "/api/v1/{}/secrets",
    "Event": "/api/v1/{}/events",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/{}/networkpolicies",
    "PodDisruptionBudget": "/apis/policy/v1/{}/poddisruptionbudgets",
    "Lease": "/apis/coordination.k8s.io/v1/{}/leases",
    KIND: f"/apis/{GROUP}/{VERSION}/{{}}/{PLURAL}",
}
_NAMESPACE_ENDING: Final = "NamespaceTerminating"


def checked(method: str, path: str, status: int, data: bytes) -> Manifest:
    try:
        answer: Any = json.loads(data)
    except ValueError:
        answer = None
    shown = cast(Manifest, answer) if isinstance(answer, dict) else {}
    if 200 <= status < 300:
        return shown
    kind = {404: NotFound, 409: Conflict}.get(status, ClusterError)
    if _NAMESPACE_ENDING in _causes(shown):
        kind = NamespaceEnding
    said = shown.get("message") or f"{method} {path} was answered with status {status}."
    raise kind(status, str(shown.get("reason", "")), str(said))


def _causes(answer: Manifest) -> set[str]:
    causes = (answer.get("details") or {}).get("causes") or []
    return {str(cause.get("reason", "")) for cause in causes}


def path_to(kind: str, namespace: str | None, name: str = "") -> str:
    where = _PATHS[kind].format(f"namespaces/{namespace}" if namespace else "")
    return where.replace("//", "/") + (f"/{name}" if name else "")


def path_of(manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    return path_to(manifest["kind"], metadata["namespace"], metadata["name"])
