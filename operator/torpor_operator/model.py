"""What the operator sees and what it decides, as plain values.

Between ``reconcile`` (which looks and acts) and ``plan`` (which decides without looking): nothing
here does anything. ``Settings``, the operator's own, are in ``settings``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Manifest = dict[str, Any]
Role = Literal["engine", "worker"]
Phase = Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]
Verb = Literal["sleep", "wake", "on_call"]


@dataclass(frozen=True)
class Child:
    """A live object other than a pod that has the name of a child.

    ``owned``: its controller is this deployment; anybody else's is never touched."""

    kind: str
    name: str
    manifest: Manifest
    owned: bool


@dataclass(frozen=True)
class PodView:
    """A pod of the deployment, as far as decisions need it; ``view_pod`` makes it.

    ``worker`` is -1 for the engine. ``reason``: one of the condition reasons while something is
    wrong with it or it waits for something, else empty; ``message`` the sentence about it.
    ``exit_code``: of the main container's last end, -1 when it never ended; ``out_of_memory``:
    that end was a kill for memory. Times are unix seconds, 0.0 for none: ``started_at`` is that of
    the container, ``ends_at`` when a deletion should be over, its grace included."""

    name: str
    uid: str
    role: Role
    replica: int
    worker: int
    revision: str
    phase: Phase
    ready: bool = False
    deleting: bool = False
    node: str = ""
    ip: str = ""
    reason: str = ""
    message: str = ""
    restarts: int = 0
    exit_code: int = -1
    out_of_memory: bool = False
    created_at: float = 0.0
    started_at: float = 0.0
    ends_at: float = 0.0


@dataclass(frozen=True)
class EngineView:
    """What an engine's admin port said: the JSON of ``GET /state``, or None and the ``error``.

    ``at``: unix seconds of the answer. ``silent``: seconds since the first of the looks in a row
    that it has not answered; 0.0 for the first."""

    state: Mapping[str, Any] | None
    error: str = ""
    at: float = 0.0
    silent: float = 0.0


@dataclass(frozen=True)
class Observed:
    """All that one decision rests on.

    ``resource``: the InferenceDeployment as read (wire names, with metadata and status).
    ``pods``: the pods whose controller it is. ``children``: live objects with a child's name; the
    Secret as it was when it was last looked at, for it cannot be watched, and only if it is ours.
    ``taken``: "Kind/name" of children found to belong to somebody else although they could not be
    listed: a pod or Secret whose creation was refused because the name exists.
    ``refused``: "Kind/name" -> the API server's words about the last attempt at that child.
    ``engines``: by replica index, of engine pods that have an address and are not deleting."""

    resource: Manifest
    pods: tuple[PodView, ...] = ()
    children: tuple[Child, ...] = ()
    taken: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)
    engines: Mapping[int, EngineView] = field(default_factory=dict)

    @property
    def previous(self) -> Manifest:
        """The status as it was."""
        return self.resource.get("status") or {}


@dataclass(frozen=True)
class PodRef:
    """``force``: its node is gone, so it is deleted without waiting for a kubelet."""

    name: str
    uid: str
    force: bool = False


@dataclass(frozen=True)
class EngineCall:
    """``verb`` sleep uses ``level``, on_call uses ``value``. Calls of one plan go in order."""

    replica: int
    ip: str
    verb: Verb
    level: int = 0
    value: bool = False


@dataclass(frozen=True)
class Event:
    """A Kubernetes Event about the deployment, told once per transition."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True)
class Plan:
    """What is to be done, in this order: apply, delete, create, calls, then status and events.

    ``apply``: by server-side apply. ``create``: pods; an existing name is an error to look at, not
    to overwrite. ``delete``: with the uid as precondition. ``status``: the whole status that is
    wanted; written only where it differs from the one in the resource. ``requeue_after``: seconds
    until the next look though nothing is heard; None for never."""

    apply: tuple[Manifest, ...] = ()
    create: tuple[Manifest, ...] = ()
    delete: tuple[PodRef, ...] = ()
    calls: tuple[EngineCall, ...] = ()
    status: Manifest = field(default_factory=dict)
    requeue_after: float | None = None
    events: tuple[Event, ...] = ()

    @property
    def idle(self) -> bool:
        """Whether nothing but perhaps the status would be written."""
        return not (self.apply or self.create or self.delete or self.calls)


def by_type(status: Manifest) -> dict[str, Mapping[str, Any]]:
    """The conditions of a status."""
    return {each["type"]: each for each in status.get("conditions") or []}


def child_key(kind: str, name: str) -> str:
    """The key of ``taken`` and ``refused``."""
    return f"{kind}/{name}"
