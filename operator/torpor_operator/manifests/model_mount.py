"""How the model's folder comes into a pod: as a claim, as an image, or it is there already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from torpor_operator import names
from torpor_operator.deployment import Deployment
from torpor_operator.model import Manifest

_VOLUME: Final = "torpor-model"


@dataclass(frozen=True)
class ModelMount:
    """``path``: of the folder inside the container."""

    path: str
    volumes: tuple[Manifest, ...] = ()
    mounts: tuple[Manifest, ...] = ()


def model_mount(deployment: Deployment) -> ModelMount:
    model = deployment.spec.model
    source = model.location
    if source.scheme == "file":
        return ModelMount(source.path)
    mount = {"name": _VOLUME, "mountPath": names.MODEL_FOLDER, "readOnly": True}
    if source.scheme == "pvc":
        claim = {"claimName": source.name, "readOnly": True}
        volume = {"name": _VOLUME, "persistentVolumeClaim": claim}
        path = f"{names.MODEL_FOLDER}/{source.path}".rstrip("/")
        return ModelMount(path, (volume,), (mount,))
    reference = source.name
    if model.digest and "@" not in reference:
        reference = f"{reference}@{model.digest}"
    image = {"reference": reference, "pullPolicy": "IfNotPresent"}
    return ModelMount(names.MODEL_FOLDER, ({"name": _VOLUME, "image": image},), (mount,))
