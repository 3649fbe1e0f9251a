"""What a replica is made of, from a manifest, a folder, or a pod's environment."""

from __future__ import annotations

from pathlib import Path

from deployments import write_manifest
from torpor_engine.configure import Flags, resolve, resolve_pod
from torpor_protocol.manifest import load_manifest


def test_without_served_names_clients_ask_for_the_last_part_of_the_source(
    tiny_llama: Path, tmp_path: Path
) -> None:
    """The name that the operator shows, too."""
    path = write_manifest(tmp_path / "tested.yaml", tiny_llama)
    manifest = load_manifest(path)
    for resolved in (
        resolve(str(path), Flags()),
        resolve(str(tiny_llama), Flags()),
        resolve_pod(manifest, tiny_llama),
    ):
        assert list(resolved.served_names) == manifest.spec.model.names == [tiny_llama.name]
    named = resolve(str(path), Flags(served_model_names=("a", "b")))
    assert named.served_names == ("a", "b")
