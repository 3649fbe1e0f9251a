"""Manifests of deployments for tests that need more than flags say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def write_manifest(path: Path, model: Path, /, **spec: Any) -> Path:
    """A CPU deployment of a model folder, with parts of its spec as given."""
    body: dict[str, Any] = {
        "model": {"source": f"file://{model}", "dtype": "float32", "maxModelLen": 512},
        "worker": {"accelerator": "none"},
        "recovery": {"maxRestarts": 1000, "backoffSeconds": 0},
        "wake": {"idleSeconds": 0},
    }
    for key, value in spec.items():
        body[key] = {**body.get(key, {}), **value} if isinstance(value, dict) else value
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "torpor.dev/v1alpha1",
                "kind": "InferenceDeployment",
                "metadata": {"name": "tested"},
                "spec": body,
            }
        )
    )
    return path
