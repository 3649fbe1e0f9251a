"""Manifests: a YAML file with one InferenceDeployment, read for ``torpor serve FILE``.

Whatever is wrong with the file, the reader gets one sentence with the cause (file, field, value,
what is allowed) and one with the fix.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from pydantic import ValidationError

from torpor_protocol.api import API_VERSION, KIND, InferenceDeployment
from torpor_protocol.api.explain import explain
from torpor_protocol.errors import ConfigError
from torpor_protocol.safe_yaml import MAX_BYTES, read_documents
from torpor_protocol.words import shorten
from torpor_protocol.yaml_scan import YamlRefused

_START = f"Begin it with apiVersion: {API_VERSION} and kind: {KIND}."


class ManifestError(ConfigError):
    """A manifest that cannot be used."""


def load_manifest(path: Path) -> InferenceDeployment:
    """Read the one InferenceDeployment of a file. ManifestError for everything that is wrong."""
    try:
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "not an ordinary file"
            raise ManifestError(f"{path} is {kind}, not a manifest.", "Give the path of a file.")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or "the path is not valid"
        raise ManifestError(
            f"{path} cannot be read: {reason}.", "Give the path of a file that you may read."
        ) from error
    return parse_manifest(data, str(path))


def parse_manifest(data: bytes, origin: str) -> InferenceDeployment:
    """The same for bytes; ``origin`` names them in messages."""
    try:
        documents = read_documents(data)
    except YamlRefused as refused:
        raise ManifestError(f"{origin} {refused.cause}.", refused.fix) from refused
    return _checked(_only_one(documents, origin), origin)


def parse_json(text: str, origin: str) -> InferenceDeployment:
    """The same for JSON, as the operator hands it to an engine."""
    try:
        resource = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ManifestError(f"{origin} is no JSON: {error}.", _START) from error
    return _checked(_only_one([resource], origin), origin)


def _checked(resource: dict[object, object], origin: str) -> InferenceDeployment:
    try:
        return InferenceDeployment.from_wire(resource)
    except ValidationError as error:
        problem = explain(error, InferenceDeployment)
        noun = "problem" if problem.more == 1 else "problems"
        more = f" (and {problem.more} more {noun})" if problem.more else ""
        raise ManifestError(f"{origin}: {problem.cause}{more}.", problem.fix) from error


def _only_one(documents: list[object], origin: str) -> dict[object, object]:
    if not documents:
        raise ManifestError(f"{origin} is empty.", _START)
    if len(documents) > 1:
        kinds = ", ".join(_kind_of(document) for document in documents[:5])
        raise ManifestError(
            f"{origin} holds {len(documents)} documents ({kinds}), "
            f"but must hold exactly one {KIND}.",
            f"Keep one {KIND} in a file of its own.",
        )
    resource = documents[0]
    if not isinstance(resource, dict):
        raise ManifestError(f"{origin} holds {shorten(resource)}, not an {KIND}.", _START)
    kind, version = resource.get("kind"), resource.get("apiVersion")
    if kind is None or version is None:
        missing = "kind" if kind is None else "apiVersion"
        raise ManifestError(f"{origin}: {missing} is missing.", _START)
    if kind != KIND:
        raise ManifestError(f"{origin}: kind is {shorten(kind)}, but must be {KIND}.", _START)
    if version != API_VERSION:
        raise ManifestError(
            f"{origin}: apiVersion is {shorten(version)}, but this version of Torpor reads "
            f"{API_VERSION}.",
            f"Write apiVersion: {API_VERSION}.",
        )
    return resource


def _kind_of(document: object) -> str:
    return shorten(document.get("kind") if isinstance(document, dict) else document)
