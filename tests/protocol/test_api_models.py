"""Defaults and helpers of the custom resource's models."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError

from manifests import models, wire
from torpor_protocol import api

DEFAULTS: dict[str, Any] = {
    "model.revision": None,
    "model.digest": None,
    "model.served_names": [],
    "model.dtype": "auto",
    "model.max_model_len": "auto",
    "model.quantization": "none",
    "model.token_secret_ref": None,
    "parallelism.tensor": 1,
    "parallelism.pipeline": 1,
    "replicas": None,
    "standby.min_replicas": 0,
    "standby.max_replicas": 1,
    "standby.level": 2,
    "autoscaling": None,
    "wake.on_request": True,
    "wake.timeout_seconds": 300,
    "wake.max_held_requests": 256,
    "wake.idle_seconds": 300,
    "wake.canary.enabled": True,
    "wake.canary.max_tokens": 8,
    "engine.image": None,
    "engine.env": [],
    "engine.resources.requests": {},
    "engine.max_num_seqs": 64,
    "engine.max_num_batched_tokens": 2048,
    "engine.max_queued_requests": 256,
    "engine.enable_prefix_caching": True,
    "engine.enable_chunked_prefill": True,
    "worker.accelerator": "nvidia.com/gpu",
    "worker.ranks_per_pod": None,
    "worker.shared_memory": "2Gi",
    "worker.kv_cache_memory": None,
    "worker.security_context.run_as_user": None,
    "rollout.max_surge": 0,
    "rollout.max_unavailable": 1,
    "recovery.max_restarts": 10,
    "recovery.window_seconds": 600,
    "recovery.backoff_seconds": 1,
    "progress_deadline_seconds": 1800,
    "drain_timeout_seconds": 60,
}


@pytest.mark.parametrize("path", DEFAULTS)
def test_default(path: str) -> None:
    value: Any = api.InferenceDeployment.from_wire(wire()).spec
    for part in path.split("."):
        value = getattr(value, part)
    assert value == DEFAULTS[path]


def test_autoscaling_defaults() -> None:
    scaling = api.AutoscalingSpec(max_replicas=4)
    assert scaling.to_wire() == {
        "minReplicas": 0,
        "maxReplicas": 4,
        "idleAfterSeconds": 300,
        "targetRequestsPerReplica": 32,
        "scaleUpStabilizationSeconds": 0,
        "scaleDownStabilizationSeconds": 300,
    }


def test_python_names_are_snake_case_and_the_wire_is_camel_case() -> None:
    engine = api.EngineSpec(max_num_seqs=8)
    assert engine.to_wire()["maxNumSeqs"] == 8
    assert api.EngineSpec.from_wire({"maxNumSeqs": 8}) == engine
    with pytest.raises(ValidationError):
        api.EngineSpec.from_wire({"max_num_seqs": 8})


def test_models_are_frozen() -> None:
    with pytest.raises(ValidationError):
        api.EngineSpec().max_num_seqs = 8


def test_null_is_an_absent_field() -> None:
    changes = {"spec.replicas": None, "spec.engine": {"env": None, "image": None}}
    resource = api.InferenceDeployment.from_wire(wire(changes))
    assert resource == api.InferenceDeployment.from_wire(wire())


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (0, 0),
        (1073741824, 2**30),
        ("1", 1),
        ("2Gi", 2 * 2**30),
        ("1.5Ki", 1536),
        ("1Ei", 2**60),
        ("2G", 2 * 10**9),
        ("2k", 2000),
        ("1e3", 1000),
        ("1E", 10**18),
        ("1E3", 1000),
        ("1500m", 2),
        ("1n", 1),
        ("0.1Ki", 103),
    ],
)
def test_quantity_in_bytes(text: int | str, size: int) -> None:
    assert api.parse_quantity(text) == size


def test_quantity_value_is_exact() -> None:
    assert api.quantity_value("500m") == Decimal("0.5")
    assert api.quantity_value("100n") == Decimal("1e-7")


@pytest.mark.parametrize("text", ["", "Gi", "2GB", "2 Gi", "-1", "1e", "0x10", "1\n", "١Gi"])
def test_malformed_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        api.parse_quantity(text)


@pytest.mark.parametrize(
    ("uri", "scheme", "name", "path"),
    [
        ("hf://org/name", "hf", "org/name", ""),
        ("pvc://claim", "pvc", "claim", ""),
        ("pvc://claim/a/b/", "pvc", "claim", "a/b"),
        ("oci://r.io:5000/a/b:1", "oci", "r.io:5000/a/b:1", ""),
        ("s3://bucket.x/a", "s3", "bucket.x", "a"),
        ("file:///models/my model", "file", "", "/models/my model"),
    ],
)
def test_source_taken_apart(uri: str, scheme: api.Scheme, name: str, path: str) -> None:
    assert api.parse_source(uri) == api.ModelSource(scheme, name, path)
    assert api.ModelSpec(source=uri).location == api.ModelSource(scheme, name, path)


@pytest.mark.parametrize("uri", ["", "name", "gs://a/b", "hf://a", "file:///a/../b", "file://"])
def test_source_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="is not a model source"):
        api.parse_source(uri)


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ({"source": "hf://org/name", "served_names": ["a", "b"]}, ["a", "b"]),
        ({"source": "hf://org/name"}, ["name"]),
        ({"source": "file:///models/demo/"}, ["demo"]),
        ({"source": "file:///models/a@b"}, ["a@b"]),
        ({"source": "pvc://claim"}, ["claim"]),
        ({"source": "oci://r.io/models/demo:1@sha256:" + 64 * "0"}, ["demo"]),
    ],
)
def test_served_names(model: dict[str, Any], names: list[str]) -> None:
    assert api.ModelSpec(**model).names == names


def test_ranks_per_pod_follows_tensor() -> None:
    spec = api.InferenceDeployment.from_wire(wire({"spec.parallelism.tensor": 4})).spec
    assert (spec.ranks_per_pod, spec.parallelism.world_size) == (4, 4)


def test_derived_names_fit_a_dns_label() -> None:
    last_replica = 2 * api.MAX_REPLICAS - 1
    name = f"{'d' * api.MAX_NAME}-{last_replica}-worker-{api.MAX_WORLD_SIZE - 1}"
    assert len(name) <= api.MAX_DERIVED_NAME


def test_every_model_is_exported() -> None:
    assert [model.__name__ for model in models() if model.__name__ not in api.__all__] == []
