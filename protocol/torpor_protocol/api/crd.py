"""The CustomResourceDefinition, made from the models and from nothing else.

``make crds`` writes it to ``crds/`` and into the chart. The models' JSON schema is structural
already (see ``base``); what is added here is what no model says: names, subresources and the
columns of ``kubectl get``. Pure, and without YAML, so that everybody may ask for the schema.
"""

from __future__ import annotations

from typing import Any

from torpor_protocol.api.names import (
    CATEGORIES,
    GROUP,
    KIND,
    PLURAL,
    SHORT_NAMES,
    SINGULAR,
    VERSION,
)
from torpor_protocol.api.resource import InferenceDeployment

Schema = dict[str, Any]

_DESCRIPTION = (
    "One language model, served by replicas that sleep. spec.replicas counts the awake ones; "
    "kubectl scale puts replicas to sleep and wakes them."
)
_NESTED = ("items", "additionalProperties")


def crd() -> dict[str, Any]:
    """The whole definition as plain JSON types; every call returns a new one."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": SINGULAR,
                "shortNames": list(SHORT_NAMES),
                "categories": list(CATEGORIES),
            },
            "scope": "Namespaced",
            "versions": [_version()],
        },
    }


def openapi_schema() -> Schema:
    """The schema of spec and status without references; metadata is Kubernetes' own."""
    whole = InferenceDeployment.model_json_schema()
    schema = _resolved(whole, whole.pop("$defs"))
    for own in ("apiVersion", "kind", "metadata"):
        del schema["properties"][own]
    return {"description": _DESCRIPTION, **schema, "required": ["spec"]}


def _version() -> dict[str, Any]:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        # spec.replicas has no default (rules of the spec), so that GET on scale answers an error
        # until it is written. kubectl scale only patches and needs no GET.
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": _columns(),
        "schema": {"openAPIV3Schema": openapi_schema()},
    }


def _columns() -> list[dict[str, Any]]:
    ready = '.status.conditions[?(@.type=="Ready")]'
    status = ".status."
    return [
        _column("Ready", "string", f"{ready}.status", "Whether it serves, or sleeps as wanted."),
        _column("Reason", "string", f"{ready}.reason", "Why it is ready, or why not."),
        _column("Awake", "integer", f"{status}replicas", "Replicas that are awake."),
        _column("Asleep", "integer", f"{status}sleepingReplicas", "Replicas that sleep."),
        _column("Desired", "integer", f"{status}desiredReplicas", "Awake replicas wanted."),
        _column("Model", "string", f"{status}modelName", "Name that clients use."),
        _column("Age", "date", ".metadata.creationTimestamp", "Time since it was made."),
        _column("URL", "string", f"{status}url", "Address of the client Service.", wide=True),
        _column(
            "Progress",
            "integer",
            f"{status}loadProgress.percent",
            "Weights loaded, in per cent.",
            wide=True,
        ),
        _column("Revision", "string", f"{status}currentRevision", "What serves now.", wide=True),
        _column("Message", "string", f"{ready}.message", "The reason in words.", wide=True),
    ]


def _column(name: str, kind: str, path: str, text: str, wide: bool = False) -> dict[str, Any]:
    column = {"name": name, "type": kind, "jsonPath": path, "description": text}
    return column | {"priority": 1} if wide else column


def _resolved(schema: Schema, definitions: Schema) -> Schema:
    """A copy without ``$ref``; what stands beside a reference (description, default) wins."""
    schema = dict(schema)
    if "$ref" in schema:
        target = definitions[schema.pop("$ref").removeprefix("#/$defs/")]
        schema = target | schema
    if "properties" in schema:
        properties = schema["properties"].items()
        schema["properties"] = {name: _resolved(each, definitions) for name, each in properties}
    for key in _NESTED:
        if isinstance(schema.get(key), dict):
            schema[key] = _resolved(schema[key], definitions)
    return schema
