"""The custom resource as the operator works with it: checked, with its revision and its layout."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from torpor_operator.model import Manifest
from torpor_protocol.api import API_VERSION, KIND, InferenceDeployment, InferenceDeploymentSpec
from torpor_protocol.api.explain import explain
from torpor_protocol.errors import ConfigError

_REVISION_DIGITS: Final = 10
_SHAPING: Final = (
    "model",
    "parallelism",
    "engine",
    "worker",
    "wake",
    "recovery",
    "drainTimeoutSeconds",
    "progressDeadlineSeconds",
)


@dataclass(frozen=True)
class Deployment:
    """``revision``: of the fields that shape pods. ``generation``: of the resource."""

    name: str
    namespace: str
    uid: str
    generation: int
    spec: InferenceDeploymentSpec
    revision: str

    @property
    def wanted(self) -> int:
        """Awake replicas that are wanted."""
        return 1 if self.spec.replicas is None else self.spec.replicas

    @property
    def workers(self) -> int:
        """Worker pods of one replica."""
        return -(-self.spec.parallelism.world_size // self.spec.ranks_per_pod)

    def ranks(self, worker: int) -> int:
        """Ranks in that worker pod; the last one may hold fewer."""
        first = worker * self.spec.ranks_per_pod
        return min(self.spec.ranks_per_pod, self.spec.parallelism.world_size - first)


def read_deployment(resource: Manifest) -> Deployment:
    """Raises ConfigError, with cause and fix, for a spec that cannot be carried out.

    The status is left out: an older or newer operator may have written it."""
    metadata = resource["metadata"]
    named = {key: metadata[key] for key in ("name", "namespace", "uid") if key in metadata}
    bare = {"apiVersion": API_VERSION, "kind": KIND, "metadata": named}
    try:
        checked = InferenceDeployment.from_wire(bare | {"spec": resource.get("spec")})
    except ValidationError as error:
        problem = explain(error, InferenceDeployment)
        raise ConfigError(f"{problem.cause}.", problem.fix) from error
    _refuse_unsupported(checked.spec)
    return Deployment(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        spec=checked.spec,
        revision=revision_of(checked.spec),
    )


def _refuse_unsupported(spec: InferenceDeploymentSpec) -> None:
    scheme = spec.model.location.scheme
    if scheme in ("hf", "s3"):
        raise ConfigError(
            f"spec.model.source begins with {scheme}://, which is not supported by this version.",
            "Put the model on a volume (pvc://claim/path) or into an image (oci://image).",
        )
    if spec.autoscaling is not None:
        raise ConfigError(
            "spec.autoscaling is not supported by this version.",
            "Set spec.replicas, or let an HPA or KEDA write it.",
        )


def revision_of(spec: InferenceDeploymentSpec) -> str:
    """Hash of what shapes pods, of the values that differ from the defaults: neither a field that
    a later version adds nor defaults that the API server fills in make a new revision."""
    given: dict[str, Any] = spec.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude_defaults=True
    )
    shaping: dict[str, Any] = {name: given[name] for name in _SHAPING if name in given}
    text = json.dumps({"v": 1, **shaping}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_REVISION_DIGITS]
