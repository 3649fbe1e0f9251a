"""The real API server takes and refuses what the models do, and shows the resource as it should.

The cases are those of the quick tests of the models, so that both sides are asked the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from api_proxy import ApiProxy, api_proxy
from kube import Kube
from manifests import CASES, RULES, Case, wire

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600, func_only=True)]

CRD = Path(__file__).resolve().parents[2] / "crds/inferencedeployments.torpor.dev.yaml"
SCHEMA = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
PARTS = SCHEMA["properties"]["spec"]["properties"]
MIRRORED = " in the other role"
SHARED = set(PARTS["engine"]["properties"]) & set(PARTS["worker"]["properties"])


def mirrored(cases: dict[str, Case]) -> dict[str, Case]:
    """With each case of a field that engine and worker both have, tried in the other one too."""
    other = {"engine": "worker", "worker": "engine"}

    def swap(path: str) -> str:
        _, part, field, *rest = path.split(".")
        return ".".join(["spec", other[part], field, *rest])

    def shared(path: str) -> bool:
        return path.split(".")[1] in other and path.split(".")[2] in SHARED

    found = dict(cases)
    for name, case in cases.items():
        if all(map(shared, [*case.accepted, *case.refused])):
            accepted = {swap(path): value for path, value in case.accepted.items()}
            refused = {swap(path): value for path, value in case.refused.items()}
            found[name + MIRRORED] = Case(accepted, refused, case.words)
    return found


ALL = mirrored(CASES)


def rules(schema: Any, path: str) -> Iterator[tuple[str, str]]:
    """Path, as the API server writes it but without indices, and message of each rule below."""
    for rule in schema.get("x-kubernetes-validations", ()):
        yield path, rule["message"]
    for name, field in schema.get("properties", {}).items():
        yield from rules(field, f"{path}.{name}".lstrip("."))
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from rules(schema[key], f"{path}[]")


@pytest.fixture(scope="module")
def api() -> Iterator[ApiProxy]:
    with api_proxy() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def refusals(api: ApiProxy, space: Kube) -> dict[str, str]:
    """Words of the API server for each case; "" where it was accepted."""
    asked = {
        name: api.try_create(space.namespace, wire(case.refused)) for name, case in ALL.items()
    }
    return {name: "" if answer.accepted else answer.words for name, answer in asked.items()}


@pytest.mark.parametrize("name", ALL)
def test_accepted(api: ApiProxy, space: Kube, name: str) -> None:
    answer = api.try_create(space.namespace, wire(ALL[name].accepted))
    assert answer.accepted, answer.words


@pytest.mark.parametrize("name", ALL)
def test_refused_with_the_field(refusals: dict[str, str], name: str) -> None:
    assert refusals[name], "it was accepted"
    if name.removesuffix(MIRRORED) in RULES:
        # Field, limit and fix are one text, the same that `torpor serve` shows.
        assert ALL[name].words in refusals[name]
    else:
        assert any(path in refusals[name] for path in ALL[name].refused), refusals[name]


def test_every_rule_of_the_definition_refuses_something(refusals: dict[str, str]) -> None:
    told = "\n".join(re.sub(r"\[\d+\]", "[]", words) for words in refusals.values())
    known = list(rules(SCHEMA, ""))
    assert len(known) > 40
    missing = [
        (path, message)
        for path, message in known
        if not re.search(re.escape(path or "<nil>") + r"[^\n]*" + re.escape(message), told)
    ]
    assert missing == [], "rules without a refused example in tests/support/manifests.py"
