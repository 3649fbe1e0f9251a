"""What the operator asks of Kubernetes, without saying by which library.

Objects are plain dictionaries with ``kind`` and ``apiVersion``. ``cluster`` implements it; the
tests of order and of errors have one in memory.
"""

from __future__ import annotations

from typing import Protocol

from torpor_operator.model import Manifest, PodRef
from torpor_protocol.errors import TorporError


class ClusterError(TorporError):
    """The API server could not be reached (``status`` 0) or did not do what was asked."""

    def __init__(self, status: int, reason: str, cause: str) -> None:
        super().__init__(cause)
        self.status = status
        self.reason = reason

    @property
    def refusal(self) -> bool:
        """Whether the server understood and said no, in words that help the user: a quota, an
        admission policy, an invalid field."""
        return self.status in {400, 403, 422}


class NotFound(ClusterError):
    """No such object, or no such kind."""


class Conflict(ClusterError):
    """The name exists already, or a precondition does not hold."""


class NamespaceEnding(ClusterError):
    """Nothing can be made there any more, for the whole namespace is being deleted."""


class Cluster(Protocol):
    """Every method raises ClusterError. Listed objects are complete."""

    async def deployment(self, namespace: str, name: str) -> Manifest: ...

    async def deployments(self, namespace: str | None) -> list[Manifest]:
        """Of one namespace, or of all."""

    async def children(self, namespace: str, deployment: str) -> list[Manifest]:
        """Pods, Services, NetworkPolicies and PodDisruptionBudgets with the deployment's label."""

    async def find(self, kind: str, namespace: str, name: str) -> Manifest | None: ...

    async def warning(self, namespace: str, uid: str) -> tuple[str, str] | None:
        """Reason and message of the newest Warning about the object with that uid."""

    async def apply(self, manifest: Manifest) -> None:
        """Server-side apply; the wanted fields win."""

    async def create(self, manifest: Manifest) -> None: ...

    async def delete_pod(self, namespace: str, ref: PodRef) -> None:
        """Of exactly that uid; one that is already gone is no error."""

    async def patch_status(self, namespace: str, name: str, patch: Manifest) -> Manifest:
        """Merge patch of a deployment's status, whatever its resourceVersion. Returns the status
        as it is stored: the schema's defaults are in it, fields that it does not know are not."""


class LeaseStore(Protocol):
    """One Lease. Raises ClusterError, and Conflict when somebody else was faster."""

    async def read(self) -> Manifest | None: ...

    async def create(self, spec: Manifest) -> None: ...

    async def replace(self, lease: Manifest) -> None:
        """With the resourceVersion that was read."""
