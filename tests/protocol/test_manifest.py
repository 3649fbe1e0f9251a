"""Manifests: what is read, and the two sentences for everything that is wrong."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from manifest_strategies import resources, spoilt_resources
from manifests import CASES, wire
from torpor_protocol import api
from torpor_protocol.errors import ConfigError
from torpor_protocol.manifest import ManifestError, load_manifest, parse_manifest

START = "Begin it with apiVersion: torpor.dev/v1alpha1 and kind: InferenceDeployment."
HEAD = b"apiVersion: torpor.dev/v1alpha1\nkind: InferenceDeployment\nmetadata: {name: demo}\n"
SPEC = b"spec: {model: {source: file:///models/demo}}\n"
SECRET = b"---\napiVersion: v1\nkind: Secret\n"
LAUGHS = b"a: &a [x, x, x, x, x, x, x, x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (98 + n, 98 + n, b", ".join([b"*%c" % (97 + n)] * 8)) for n in range(9)
)
JARGON = re.compile(
    r"pydantic|Input should|validation error|Extra inputs|yaml\.|Traceback|Error\b|None\b|\n"
)


def refused(data: bytes) -> ManifestError:
    """The error for a file's content, after a look at its two sentences."""
    with pytest.raises(ManifestError) as caught:
        parse_manifest(data, "demo.yaml")
    check_sentences(caught.value)
    return caught.value


def check_sentences(error: ManifestError) -> None:
    assert isinstance(error, ConfigError) and error.exit_code == 2
    assert error.cause.startswith("demo.yaml") and error.cause.endswith(".")
    assert error.fix.endswith((".", "?")) and len(error.cause) < 600
    assert not JARGON.search(error.cause + error.fix), error


def test_smallest_manifest(tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"
    path.write_bytes(b"# a comment\n---\n" + HEAD + SPEC + b"---\n")
    resource = load_manifest(path)
    assert resource == api.InferenceDeployment.from_wire(wire())
    assert resource.metadata.name == "demo"


def test_output_of_kubectl_get_is_read() -> None:
    changes = {
        "metadata": {
            "name": "demo",
            "namespace": "default",
            "uid": "5e4c0bd2",
            "resourceVersion": "4711",
            "generation": 3,
            "creationTimestamp": "2026-01-31T12:00:00Z",
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
        },
        "status": {
            "observedGeneration": 3,
            "replicas": 1,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "Asleep",
                    "lastTransitionTime": "2026-01-31T12:00:00Z",
                }
            ],
        },
    }
    resource = parse_manifest(yaml.safe_dump(wire(changes)).encode(), "demo.yaml")
    assert resource.status is not None and resource.status.conditions[0].reason == "Asleep"
    assert resource.metadata.generation == 3


def test_unquoted_dates_stay_texts() -> None:
    head = HEAD.replace(b"name: demo", b"name: demo, creationTimestamp: 2026-01-31T12:00:00Z")
    assert parse_manifest(head + SPEC, "f").metadata.creation_timestamp == "2026-01-31T12:00:00Z"


def test_small_references_are_read() -> None:
    spec = SPEC + b"  engine: &pod {nodeSelector: {zone: a}}\n  worker: *pod\n"
    spec = spec.replace(b"spec: {model: {source: file:///models/demo}}", b"spec:\n  model: &m\n")
    spec = spec.replace(b"&m\n", b"{source: 'file:///m'}")
    resource = parse_manifest(HEAD + spec, "demo.yaml")
    assert resource.spec.engine.node_selector == resource.spec.worker.node_selector == {"zone": "a"}


@pytest.mark.parametrize(
    ("data", "cause", "fix"),
    [
        (b"", "demo.yaml is empty.", START),
        (b"---\n# nothing\n---\n", "demo.yaml is empty.", START),
        (b"- a\n- b\n", "demo.yaml holds a list, not an InferenceDeployment.", START),
        (b"hello", 'demo.yaml holds "hello", not an InferenceDeployment.', START),
        (b"\x7fELF\x00\xff\xfe", "demo.yaml is not text in UTF-8: byte 5 is wrong.", "binary"),
        (b"PK\x03\x04", "demo.yaml is not valid YAML: it holds a character", "Correct the YAML"),
        (b"a: b: c", "demo.yaml is not valid YAML at line 1, column 5: mapping values", "YAML"),
        (b"a: [", "demo.yaml is not valid YAML at line 2", "Correct the YAML"),
        (b"#" * (2**20 + 1), "demo.yaml is larger than 1 MiB.", "one InferenceDeployment"),
        (b"[" * 900, "demo.yaml is nested deeper than 32 levels.", "without such nesting"),
        (b"a: &a\n  b: " * 40, "demo.yaml", "YAML"),
        (LAUGHS, "holds more than 50000 values once its references", "one InferenceDeployment"),
        (b"- a\n" * 60_000, "holds more than 50000 values", "one InferenceDeployment"),
        (b"a: &a [*a]", 'refers at line 1 to "a", which is not complete', "Write the part out"),
        (b"a: *b", 'refers at line 1 to "b", which is not complete', "Write the part out"),
        (b"---\n" * 200, "holds more than 100 documents.", "one InferenceDeployment"),
        (b"a: 1\nb: 2\na: 3\n", 'has the key "a" twice in one map, again at line 3.', "Keep one."),
        (b"a: !!python/object/apply:os.system [x]", 'has the tag "!!python/', "Remove the tag"),
        (b"? [a]\n: b\n", "has a key at line 1 that is not a plain text.", "as a text"),
        (b"on: 1", "has the key true, which YAML does not read as a text.", "in quotes"),
        (b'"\\e[31m": 1\n"\\e[31m": 2', r'the key "\u001b[31m" twice', "Keep one."),
        (b"~: 1", "has the key null, which YAML does not read as a text.", "in quotes"),
        (b"a: .nan", "holds a number that is not finite or beyond 64 bits.", "in quotes"),
        (b"a: 0x" + b"f" * 20_000, "not finite or beyond 64 bits.", "in quotes"),
        (b"? 0x" + b"f" * 20_000, "not finite or beyond 64 bits.", "in quotes"),
        (b"a: 1" + b"0" * 5_000, "holds a number that cannot be read.", "in quotes"),
        (b"kind: InferenceDeployment", "demo.yaml: apiVersion is missing.", START),
        (b"apiVersion: v1", "demo.yaml: kind is missing.", START),
        (SECRET, 'demo.yaml: kind is "Secret", but must be InferenceDeployment.', START),
        (HEAD.replace(b"v1alpha1", b"v2") + SPEC, 'apiVersion is "torpor.dev/v2", but', "Write"),
        (HEAD + SPEC + SECRET, 'holds 2 documents ("InferenceDeployment", "Secret")', "Keep one"),
        ((HEAD + SPEC + b"---\n") * 2, "must hold exactly one InferenceDeployment.", "Keep one"),
    ],
)
def test_wrong_file(data: bytes, cause: str, fix: str) -> None:
    error = refused(data)
    assert cause in error.cause and fix in error.fix


@pytest.mark.parametrize(
    ("changes", "cause", "fix"),
    [
        (
            {"spec.parallelism.tensor": 0},
            "demo.yaml: spec.parallelism.tensor is 0, but must be a whole number from 1 to 1024.",
            "Correct spec.parallelism.tensor, for example 2.",
        ),
        (
            {"spec.modle": {}},
            "demo.yaml: spec.modle is not a known field.",
            "Did you mean spec.model?",
        ),
        (
            {"spec.model": {}},
            "demo.yaml: spec.model.source is missing.",
            "Add spec.model.source, for example file:///models/smollm2-135m-instruct.",
        ),
        (
            {"spec.model.source": "x" * 2000},
            f'demo.yaml: spec.model.source is "{"x" * 58}…, but must have 3 to 1024 characters.',
            "Correct spec.model.source, for example file:///models/smollm2-135m-instruct.",
        ),
        (
            {"spec.replicas": -1, "spec.standby.level": 0},
            "demo.yaml: spec.replicas is -1, but must be a whole number from 0 to 500 "
            "(and 1 more problem).",
            "Correct spec.replicas, for example 2.",
        ),
        (
            {"spec.replicas": -1, "spec.x": 0, "spec.y": 0},
            "demo.yaml: spec.replicas is -1, but must be a whole number from 0 to 500 "
            "(and 2 more problems).",
            "Correct spec.replicas, for example 2.",
        ),
        (
            {"spec.engine.env": [{"name": "A", "value": 1}]},
            "demo.yaml: spec.engine.env[0].value is 1, but must be a text "
            "(numbers and true or false go in quotes).",
            "Correct spec.engine.env[0].value, for example INFO.",
        ),
        (
            {"spec.engine.resources.limits": {"nvidia.com/gpu": "x"}},
            'demo.yaml: spec.engine.resources.limits["nvidia.com/gpu"] is "x", but must be a '
            "quantity such as 4, 500m or 16Gi; a fraction goes in quotes.",
            'Correct spec.engine.resources.limits["nvidia.com/gpu"].',
        ),
        (
            {"spec.engine.nodeSelector": {"a b": "c"}},
            'demo.yaml: the key "a b" of spec.engine.nodeSelector must be a qualified name such '
            "as example.com/name.",
            "Correct the key.",
        ),
        (
            {"spec.standby.minReplicas": 2},
            "demo.yaml: spec.standby.minReplicas is 2, but must not exceed maxReplicas.",
            "Lower minReplicas or raise maxReplicas.",
        ),
        (
            {"spec.engine.affinity": 1},
            "demo.yaml: spec.engine.affinity is 1, but must be a map.",
            'Correct spec.engine.affinity, for example {"nodeAffinity": {}}.',
        ),
        (
            {"status.conditions": [{"type": "Odd"}]},
            'demo.yaml: status.conditions[0].type is "Odd", but must be Ready, SpecValid, '
            "ResourcesCreated, WorkersReady, ModelLoaded, EngineReady, Asleep, Progressing or "
            "Degraded (and 3 more problems).",
            "Correct status.conditions[0].type, for example Ready.",
        ),
    ],
)
def test_both_sentences(changes: dict[str, Any], cause: str, fix: str) -> None:
    error = refused(yaml.safe_dump(wire(changes)).encode())
    assert (error.cause, error.fix) == (cause, fix)


@pytest.mark.parametrize("name", CASES)
def test_every_refused_case_reads_well(name: str) -> None:
    case = CASES[name]
    assert case.words in refused(yaml.safe_dump(wire(case.refused)).encode()).cause
    assert parse_manifest(yaml.safe_dump(wire(case.accepted)).encode(), "demo.yaml")


def test_paths_that_are_no_manifest(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    paths = {
        tmp_path: "is a folder, not a manifest.",
        pipe: "is not an ordinary file, not a manifest.",
        tmp_path / "absent": "cannot be read: No such file or directory.",
        tmp_path / ("x" * 300): "cannot be read: File name too long.",
        Path("a\0b"): "cannot be read: the path is not valid.",
    }
    for path, words in paths.items():
        with pytest.raises(ManifestError) as caught:
            load_manifest(path)
        assert caught.value.cause == f"{path} {words}"
        assert caught.value.fix.startswith("Give the path of a file")


@settings(deadline=None)
@given(resources())
def test_load_of_a_dumped_model_is_the_model(
    tmp_path_factory: pytest.TempPathFactory, resource: dict[str, Any]
) -> None:
    model = api.InferenceDeployment.from_wire(resource)
    path = tmp_path_factory.getbasetemp() / "dumped.yaml"
    path.write_text(yaml.safe_dump(model.to_wire()), encoding="utf-8")
    loaded = load_manifest(path)
    assert loaded == model
    assert loaded.to_wire() == model.to_wire()


@settings(deadline=None)
@given(spoilt_resources())
def test_anything_in_one_place_is_read_or_refused_in_two_sentences(spoilt: dict[str, Any]) -> None:
    try:
        model = parse_manifest(yaml.safe_dump(spoilt).encode(), "demo.yaml")
    except ManifestError as error:
        check_sentences(error)
    else:
        assert api.InferenceDeployment.from_wire(model.to_wire()) == model


@settings(deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8")))
def test_any_bytes_are_refused_in_two_sentences(data: bytes) -> None:
    refused(data)
