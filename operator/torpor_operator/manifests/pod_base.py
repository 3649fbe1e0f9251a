"""The part of a pod that engines and workers share: security, placement, user's volumes and env."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from torpor_operator import names
from torpor_operator.deployment import Deployment
from torpor_operator.manifests.common import child
from torpor_operator.model import Manifest
from torpor_operator.settings import Settings
from torpor_protocol.api import PodSettings, SecurityContext, Volume

USER: Final = 10001
_TEMPORARY: Final = "torpor-tmp"
_KEYS: Final = "torpor-keys"
_KINDS: Final = ("emptyDir", "persistentVolumeClaim", "configMap", "secret")
_PLACEMENT: Final = (
    "nodeSelector",
    "tolerations",
    "affinity",
    "topologySpreadConstraints",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
    "serviceAccountName",
)


@dataclass(frozen=True)
class PodParts:
    """What one pod has of its own. ``key_items``: key of the Secret -> file name in the pod.

    ``container``: command, ports, probes and resources of the one container."""

    name: str
    labels: dict[str, str]
    settings: PodSettings
    env: list[Manifest]
    key_items: dict[str, str]
    container: Manifest
    grace_seconds: int
    volumes: tuple[Manifest, ...] = ()
    mounts: tuple[Manifest, ...] = ()


def build_pod(deployment: Deployment, role: str, parts: PodParts, operator: Settings) -> Manifest:
    wire = parts.settings.to_wire()
    spec: Manifest = {
        "restartPolicy": "Always",
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": parts.grace_seconds,
        "hostname": parts.name,
        "subdomain": names.pods_service(deployment.name),
        "securityContext": _pod_security(parts.settings.security_context),
        "containers": [_container(role, parts, operator)],
        "volumes": [
            *_own_volumes(deployment, parts),
            *parts.volumes,
            *(_volume(volume) for volume in parts.settings.volumes),
        ],
        **{name: wire[name] for name in _PLACEMENT if wire.get(name)},
    }
    if operator.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in operator.image_pull_secrets]
    labels = {names.LABEL_ROLE: role, names.LABEL_REVISION: deployment.revision, **parts.labels}
    return child(deployment, "v1", "Pod", parts.name, labels) | {"spec": spec}


def _container(role: str, parts: PodParts, operator: Settings) -> Manifest:
    settings = parts.settings
    image: Manifest = {"image": settings.image}
    if settings.image is None:  # the pull policy is about the operator's own image
        image = {"image": operator.runtime_image, "imagePullPolicy": operator.image_pull_policy}
    return {
        "name": role,
        **image,
        "env": _merged(parts.env, [variable.to_wire() for variable in settings.env]),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        # The last lines of the log, where the reason of an exit stands, come with the status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": _TEMPORARY, "mountPath": names.TEMPORARY_FOLDER},
            {"name": _KEYS, "mountPath": names.KEYS_FOLDER, "readOnly": True},
            *parts.mounts,
            *(_mount(volume) for volume in settings.volumes),
        ],
        **parts.container,
    }


def _merged(own: list[Manifest], users: list[Manifest]) -> list[Manifest]:
    """The operator's variables first; the user may replace those whose names are free."""
    replaced = {variable["name"] for variable in users}
    return [variable for variable in own if variable["name"] not in replaced] + users


def _pod_security(given: SecurityContext) -> Manifest:
    context: dict[str, Any] = {
        "runAsNonRoot": True,
        "runAsUser": USER if given.run_as_user is None else given.run_as_user,
        "runAsGroup": USER if given.run_as_group is None else given.run_as_group,
        # The keys are readable by this group.
        "fsGroup": USER if given.fs_group is None else given.fs_group,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if given.supplemental_groups:
        context["supplementalGroups"] = list(given.supplemental_groups)
    return context


def _own_volumes(deployment: Deployment, parts: PodParts) -> list[Manifest]:
    secret = {
        "secretName": names.keys_secret(deployment.name),
        "defaultMode": 0o400,
        "items": [{"key": key, "path": path} for key, path in parts.key_items.items()],
    }
    return [{"name": _TEMPORARY, "emptyDir": {}}, {"name": _KEYS, "secret": secret}]


def _volume(volume: Volume) -> Manifest:
    wire = volume.to_wire()
    return {"name": volume.name} | {kind: wire[kind] for kind in _KINDS if kind in wire}


def _mount(volume: Volume) -> Manifest:
    return {"name": volume.name, "mountPath": volume.mount_path, "readOnly": volume.read_only}
