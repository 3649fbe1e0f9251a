"""Hypothesis strategies for InferenceDeployments, whole ones and spoilt ones."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from manifests import wire

Wire = dict[str, Any]

NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
SIZES = st.integers(1, 2**50) | st.from_regex(
    r"[1-9][0-9]{0,3}(\.[0-9]{1,3})?([KMGT]i|[kMGT])?", fullmatch=True
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)
SOURCES = st.one_of(
    st.builds("hf://{}/{}".format, NAMES, NAMES),
    st.builds("pvc://{}/{}".format, NAMES, NAMES),
    st.builds("oci://registry.example.com:5000/{}:{}".format, NAMES, NAMES),
    st.builds("s3://{}/{}/{}".format, NAMES, NAMES, NAMES),
    st.builds("file:///{}/{}".format, NAMES, NAMES),
)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Wire]:
    """A map with any part of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


def uniquely_named(
    names: st.SearchStrategy[str], **fields: st.SearchStrategy[Any]
) -> st.SearchStrategy[list[Wire]]:
    named = st.fixed_dictionaries({"name": names, **fields})
    return st.lists(named, max_size=3, unique_by=lambda item: item["name"])


POD_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "image": st.builds("registry.example.com/{}:{}".format, NAMES, NAMES),
    "resources": some(requests=st.dictionaries(NAMES, SIZES, max_size=3)),
    "env": uniquely_named(st.from_regex("ENV_[A-Z0-9_]{0,9}", fullmatch=True), value=TEXTS),
    "nodeSelector": st.dictionaries(NAMES, NAMES, max_size=3),
    "tolerations": st.lists(st.fixed_dictionaries({"key": NAMES, "value": NAMES}), max_size=2),
    "affinity": OBJECTS,
    "topologySpreadConstraints": st.lists(OBJECTS, max_size=2),
    "runtimeClassName": NAMES,
    "securityContext": some(runAsUser=st.integers(1, 9999)),
    "volumes": uniquely_named(NAMES, mountPath=st.just("/cache"), emptyDir=some(sizeLimit=SIZES)),
}
SPEC = some(
    replicas=st.integers(0, 500),
    parallelism=some(tensor=st.integers(1, 32), pipeline=st.integers(1, 32)),
    standby=some(level=st.integers(1, 3), maxReplicas=st.integers(0, 500)),
    wake=some(onRequest=st.booleans(), canary=some(prompt=TEXTS.filter(bool))),
    engine=some(**POD_FIELDS, maxNumBatchedTokens=st.integers(64, 4096)),
    worker=some(**POD_FIELDS, kvCacheMemory=SIZES, accelerator=st.just("none")),
    recovery=some(maxRestarts=st.integers(0, 9)),
    drainTimeoutSeconds=st.integers(0, 3600),
)
MODEL = some(
    servedNames=st.lists(NAMES, max_size=3, unique=True),
    dtype=st.sampled_from(["auto", "float32", "bfloat16", "float16"]),
    maxModelLen=st.just("auto") | st.integers(1, 2**24),
)
METADATA = some(
    labels=st.dictionaries(TEXTS, TEXTS, max_size=2),
    annotations=st.dictionaries(TEXTS, TEXTS, max_size=2),
    generation=st.integers(0, 2**62),
    creationTimestamp=st.just("2026-01-31T12:00:00Z"),
)


@st.composite
def resources(draw: st.DrawFn) -> Wire:
    """A valid resource on the wire."""
    resource = wire({"metadata": {**draw(METADATA), "name": draw(NAMES)}})
    resource["spec"] |= draw(SPEC)
    resource["spec"]["model"] = {**draw(MODEL), "source": draw(SOURCES)}
    return resource


@st.composite
def spoilt_resources(draw: st.DrawFn) -> Wire:
    """A valid resource with anything at all in one place, at any depth."""
    resource = draw(resources())
    place = resource
    while True:
        deeper = [key for key, inner in place.items() if isinstance(inner, dict) and inner]
        if not deeper or draw(st.integers(0, 3)) == 0:
            place[draw(st.sampled_from(sorted(place)) | TEXTS)] = draw(JSON)
            return resource
        place = place[draw(st.sampled_from(sorted(deeper, reverse=True)))]
