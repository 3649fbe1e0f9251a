"""Kubernetes by its own asyncio client: the only module that knows it.

The client's generic call is used and not its thousand generated methods, because those answer with
models, while everything here is a plain dictionary; the content type of a patch is always said,
for the client's own choice is the strategic merge.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final, cast

import aiohttp
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client import ApiClient, Configuration

from torpor_operator.api_paths import checked, path_of, path_to
from torpor_operator.cluster_api import ClusterError, Conflict, NotFound
from torpor_operator.metrics import Metrics
from torpor_operator.model import Manifest, PodRef
from torpor_operator.names import FIELD_MANAGER, LABEL_DEPLOYMENT, LABEL_MANAGED_BY, OPERATOR
from torpor_protocol.api.names import KIND

_TIMEOUT: Final = aiohttp.ClientTimeout(total=20, connect=5)
_JSON: Final = "application/json"
_MERGE: Final = "application/merge-patch+json"
_APPLY: Final = "application/apply-patch+yaml"  # JSON is YAML
LISTED: Final = ("Pod", "Service", "NetworkPolicy", "PodDisruptionBudget")


class KubernetesCluster:
    """``Cluster`` by an API server."""

    def __init__(self, client: ApiClient, metrics: Metrics) -> None:
        self._client = client
        self._metrics = metrics

    async def close(self) -> None:
        await self._client.close()  # type: ignore[no-untyped-call]

    async def deployment(self, namespace: str, name: str) -> Manifest:
        return await self._call("GET", path_to(KIND, namespace, name))

    async def deployments(self, namespace: str | None) -> list[Manifest]:
        return await self._list(KIND, namespace, {})

    async def children(self, namespace: str, deployment: str) -> list[Manifest]:
        labels = f"{LABEL_MANAGED_BY}={OPERATOR},{LABEL_DEPLOYMENT}={deployment}"
        lists = [self._list(kind, namespace, {"labelSelector": labels}) for kind in LISTED]
        return [item for items in await asyncio.gather(*lists) for item in items]

    async def find(self, kind: str, namespace: str, name: str) -> Manifest | None:
        if kind == "Secret":
            return await self._find_secret(namespace, name)
        found = await self._list(kind, namespace, {"fieldSelector": f"metadata.name={name}"})
        return found[0] if found else None

    async def _find_secret(self, namespace: str, name: str) -> Manifest | None:
        """The operator may write Secrets and has no right to list or get any. A patch that
        changes nothing shows the one object it names; ``dryRun`` makes sure that it is none."""
        path = path_to("Secret", namespace, name)
        try:
            return await self._call("PATCH", path, {"dryRun": "All"}, {}, _MERGE)
        except NotFound:
            return None

    async def warning(self, namespace: str, uid: str) -> tuple[str, str] | None:
        about = f"involvedObject.uid={uid},type=Warning"
        events = await self._list("Event", namespace, {"fieldSelector": about})
        if not events:
            return None
        newest = max(events, key=_told_at)
        return str(newest.get("reason") or ""), str(newest.get("message") or "")

    async def apply(self, manifest: Manifest) -> None:
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        await self._call("PATCH", path_of(manifest), query, manifest, _APPLY)
        self._metrics.wrote("apply", manifest["kind"])

    async def create(self, manifest: Manifest) -> None:
        path = path_to(manifest["kind"], manifest["metadata"]["namespace"])
        # Strict: an unknown field (a typo in affinity, a volume of a later Kubernetes) is refused
        # and not left out without a word.
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        await self._call("POST", path, query, manifest)
        self._metrics.wrote("create", manifest["kind"])

    async def delete_pod(self, namespace: str, ref: PodRef) -> None:
        options: Manifest = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {"uid": ref.uid},
        }
        if ref.force:
            options["gracePeriodSeconds"] = 0
        try:
            await self._call("DELETE", path_to("Pod", namespace, ref.name), {}, options)
        except (NotFound, Conflict):
            return  # it is gone, and perhaps another one has its name
        self._metrics.wrote("delete", "Pod")

    async def patch_status(self, namespace: str, name: str, patch: Manifest) -> Manifest:
        path = f"{path_to(KIND, namespace, name)}/status"
        query = {"fieldManager": FIELD_MANAGER}
        stored = await self._call("PATCH", path, query, {"status": patch}, _MERGE)
        self._metrics.wrote("status", KIND)
        return cast(Manifest, stored.get("status") or {})

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        try:
            return await self._call("GET", path_to(kind, namespace, name))
        except NotFound:
            return None

    async def replace(self, manifest: Manifest) -> None:
        query = {"fieldManager": FIELD_MANAGER}
        await self._call("PUT", path_of(manifest), query, manifest)
        self._metrics.wrote("replace", manifest["kind"])

    async def _list(
        self, kind: str, namespace: str | None, query: dict[str, str]
    ) -> list[Manifest]:
        answer = await self._call("GET", path_to(kind, namespace), query)
        # The items of a list do not say what they are.
        return [item | {"kind": kind} for item in answer["items"]]

    async def _call(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Manifest | None = None,
        content: str = _JSON,
    ) -> Manifest:
        try:
            request = await self._client.param_serialize(
                method,
                path,
                query_params=dict(query or {}),
                header_params={"Accept": _JSON, "Content-Type": content},
                body=body,
                auth_settings=["BearerToken"],
            )
            answer = await self._client.call_api(*request, _request_timeout=_TIMEOUT)
            data: bytes = await answer.read()  # type: ignore[no-untyped-call]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            said = str(error) or type(error).__name__
            raise ClusterError(0, "", f"{method} {path}: the API server: {said}.") from error
        return checked(method, path, answer.status, data)


def _told_at(event: Manifest) -> str:
    """Times of one form, in UTC: they sort as text. Old and new Events fill different fields."""
    last = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp")
    return str(last or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")


async def connect(metrics: Metrics) -> KubernetesCluster:
    """By KUBECONFIG if it is set, else by the pod's service account, else by ~/.kube/config."""
    settings = Configuration()
    inside = "KUBERNETES_SERVICE_HOST" in os.environ and not os.environ.get("KUBECONFIG")
    try:
        if inside:
            kubernetes_config.load_incluster_config(settings)  # type: ignore[no-untyped-call]
        else:
            await kubernetes_config.load_kube_config(  # type: ignore[no-untyped-call]
                client_configuration=settings, persist_config=False
            )
    except kubernetes_config.ConfigException as error:
        raise ClusterError(0, "", f"No cluster is configured: {error}") from error
    return KubernetesCluster(ApiClient(settings), metrics)


class KubernetesLease:
    """``LeaseStore`` by an API server."""

    def __init__(self, cluster: KubernetesCluster, namespace: str, name: str) -> None:
        self._cluster = cluster
        self._metadata = {"namespace": namespace, "name": name}

    async def read(self) -> Manifest | None:
        return await self._cluster.get("Lease", **self._metadata)

    async def create(self, spec: Manifest) -> None:
        manifest = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
        await self._cluster.create(manifest | {"metadata": self._metadata})

    async def replace(self, lease: Manifest) -> None:
        await self._cluster.replace(lease)
