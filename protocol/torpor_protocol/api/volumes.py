"""Volumes of engine and worker pods, each with the place where it is mounted.

An allow-list of kinds: no host path, no projected token, nothing outside the namespace.
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final, Literal

from torpor_protocol.api.base import ApiModel, setting
from torpor_protocol.api.forms import DnsLabel, Form, ObjectName
from torpor_protocol.api.quantity import MemorySize
from torpor_protocol.api.rules import Rule

# The root, the kernel's folders, and what the operator mounts itself.
_TAKEN: Final = r"^/(dev|proc|sys|tmp|var/run|run)?(/.*)?$"
_PARENT: Final = r"/\.\.?(/|$)"
_KINDS: Final = ("emptyDir", "persistentVolumeClaim", "configMap", "secret")

MountPath = Annotated[str, Form("an absolute path without : in it", r"^/[^:\x00-\x1f\x7f]*$", 1024)]


def _one_kind(volume: Volume) -> bool:
    kinds = (volume.empty_dir, volume.persistent_volume_claim, volume.config_map, volume.secret)
    return sum(kind is not None for kind in kinds) == 1


class EmptyDir(ApiModel):
    medium: Literal["Memory"] | None = setting(
        "Memory keeps the files in memory, where they count against the pod's limit.",
        unit="one of the names",
        default=None,
        shown="the node's disk",
        example="Memory",
    )
    size_limit: MemorySize | None = setting(
        "Size at which the pod is evicted.",
        unit="bytes, as a quantity",
        default=None,
        shown="no limit",
        example="10Gi",
    )


class ClaimSource(ApiModel):
    claim_name: ObjectName = setting(
        "Name of the PersistentVolumeClaim.", unit="name", example="model-cache"
    )


class ConfigMapSource(ApiModel):
    name: ObjectName = setting("Name of the ConfigMap.", unit="name", example="settings")


class SecretSource(ApiModel):
    secret_name: ObjectName = setting("Name of the Secret.", unit="name", example="ca-bundle")


class Volume(ApiModel):
    name: DnsLabel = setting("Name of the volume, unique in the pod.", unit="name", example="cache")
    mount_path: MountPath = setting(
        "Where the volume appears in the container; not /, /dev, /proc, /sys, /tmp, /run or below.",
        unit="absolute path",
        example="/cache",
    )
    read_only: bool = setting(
        "Whether the container may only read it.", unit="true or false", default=False, example=True
    )
    empty_dir: EmptyDir | None = setting(
        "A folder that lives as long as the pod.",
        unit="object",
        default=None,
        shown="absent",
        example={"sizeLimit": "10Gi"},
    )
    persistent_volume_claim: ClaimSource | None = setting(
        "A claim of the same namespace.",
        unit="object",
        default=None,
        shown="absent",
        example={"claimName": "model-cache"},
    )
    config_map: ConfigMapSource | None = setting(
        "The files of a ConfigMap.",
        unit="object",
        default=None,
        shown="absent",
        example={"name": "settings"},
    )
    secret: SecretSource | None = setting(
        "The files of a Secret.",
        unit="object",
        default=None,
        shown="absent",
        example={"secretName": "ca-bundle"},
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "mountPath",
            f"!self.mountPath.matches(r'{_TAKEN}') && !self.mountPath.matches(r'{_PARENT}')",
            "must not hold the parts . or .. nor be /, /dev, /proc, /sys, /tmp, /run or below them",
            "Mount the volume in a folder of its own, for example /cache.",
            lambda volume: not re.search(f"{_TAKEN}|{_PARENT}", volume.mount_path),
        ),
        Rule(
            "name",
            f"[{', '.join(f'has(self.{kind})' for kind in _KINDS)}].filter(set, set).size() == 1",
            f"must have exactly one of {', '.join(_KINDS)} beside it",
            "Keep one kind of volume.",
            _one_kind,
        ),
    )
