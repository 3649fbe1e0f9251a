"""The resource itself: metadata, spec and status of one InferenceDeployment."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

from torpor_protocol.api.base import ApiModel, setting
from torpor_protocol.api.forms import DnsLabel, OpaqueObject
from torpor_protocol.api.names import API_VERSION, KIND, MAX_NAME
from torpor_protocol.api.rules import Rule
from torpor_protocol.api.spec import InferenceDeploymentSpec
from torpor_protocol.api.status import InferenceDeploymentStatus

_NAME_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
_NAME_WORDS = "lower-case letters, digits and dashes, with a letter first and no dash last"


def _fits(name: str) -> bool:
    return len(name) <= MAX_NAME and re.fullmatch(_NAME_PATTERN, name) is not None


def _by_server(text: str, example: Any) -> Any:
    return setting(text, unit="see Kubernetes", default=None, shown="absent", example=example)


class ObjectMeta(ApiModel):
    """All fields of Kubernetes' own metadata, because ``kubectl get -o yaml`` writes them; only
    name, namespace, labels and annotations mean something here."""

    name: str = setting(
        f"Name, at most {MAX_NAME} characters, so that the names of pods and Services fit.",
        unit="name",
        example="demo",
    )
    namespace: DnsLabel | None = setting(
        "Namespace.", unit="name", default=None, shown="the one of the command", example="default"
    )
    labels: dict[str, str] = setting(
        "Labels.", unit="map of label to value", factory=dict, example={"team": "search"}
    )
    annotations: dict[str, str] = setting(
        "Annotations.", unit="map of name to text", factory=dict, example={"owner": "search"}
    )
    generate_name: str | None = _by_server("Prefix of a generated name.", "demo-")
    uid: str | None = _by_server("Unique id.", "5e4c0bd2-2c2f-4a0d-9d3c-8f3f6f0f6c11")
    resource_version: str | None = _by_server("Version of the stored object.", "4711")
    generation: int | None = _by_server("Counter of changes of spec.", 3)
    creation_timestamp: str | None = _by_server("Time of creation.", "2026-01-31T12:00:00Z")
    deletion_timestamp: str | None = _by_server("Time of deletion.", "2026-01-31T12:00:00Z")
    deletion_grace_period_seconds: int | None = _by_server("Time left to end.", 30)
    self_link: str | None = _by_server("Path in the API.", "/apis/torpor.dev/v1alpha1/demo")
    finalizers: list[str] | None = _by_server("What delays a deletion.", ["example.com/hold"])
    owner_references: list[OpaqueObject] | None = _by_server("Owners.", [])
    managed_fields: list[OpaqueObject] | None = _by_server("Who set which field.", [])


class InferenceDeployment(ApiModel):
    """One language model, served by replicas that sleep."""

    api_version: Literal["torpor.dev/v1alpha1"] = setting(
        "Group and version of the resource.", unit="group/version", example=API_VERSION
    )
    kind: Literal["InferenceDeployment"] = setting(
        "Kind of the resource.", unit="name", example=KIND
    )
    metadata: ObjectMeta = setting(
        "Name, labels and annotations.", unit="object", example={"name": "demo"}
    )
    spec: InferenceDeploymentSpec = setting(
        "What is wanted.", unit="object", example={"model": {"source": "file:///models/smollm2"}}
    )
    status: InferenceDeploymentStatus | None = setting(
        "What the operator has seen.",
        unit="object",
        default=None,
        shown="absent until the operator has seen the resource",
        example={"replicas": 1},
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "metadata.name",
            f"size(self.metadata.name) <= {MAX_NAME} && "
            f"self.metadata.name.matches(r'{_NAME_PATTERN}')",
            f"must be at most {MAX_NAME} {_NAME_WORDS}",
            "Choose a shorter or simpler name, so that the names of its pods fit 63 characters.",
            lambda resource: _fits(resource.metadata.name),
        ),
    )
