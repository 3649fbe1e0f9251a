"""Every rule of the custom resource accepts and refuses what it should, with its own words."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationError

from manifests import CASES, RULES, Case, models, wire
from torpor_protocol import api
from torpor_protocol.api.explain import Problem, explain


def problem_of(case: Case) -> Problem:
    with pytest.raises(ValidationError) as caught:
        api.InferenceDeployment.from_wire(wire(case.refused))
    return explain(caught.value, api.InferenceDeployment)


@pytest.mark.parametrize("name", CASES)
def test_accepted(name: str) -> None:
    resource = api.InferenceDeployment.from_wire(wire(CASES[name].accepted))
    assert resource.kind == api.KIND


@pytest.mark.parametrize("name", CASES)
def test_refused(name: str) -> None:
    problem = problem_of(CASES[name])
    assert CASES[name].words in problem.cause
    assert problem.more == 0
    assert problem.fix.endswith((".", "?"))


def test_every_rule_has_a_refused_example() -> None:
    refusals = {problem_of(case).cause for case in RULES.values()}
    rules = [rule for model in models() for rule in model.rules]
    assert len(rules) > 20
    assert [rule.must for rule in rules if not any(rule.must in text for text in refusals)] == []


def test_every_rule_points_at_a_field_that_exists() -> None:
    for model in models():
        for rule in model.rules:
            place: object = model
            for part in rule.field.split("."):
                assert isinstance(place, type) and issubclass(place, BaseModel)
                fields = {field.alias: field for field in place.model_fields.values()}
                assert part in fields, f"{model.__name__}: {rule.field}"
                place = fields[part].annotation
            assert rule.fix.endswith(".") and not rule.must.endswith(".")


@pytest.mark.parametrize(
    ("field", "suggestion"),
    [
        ("spec.parallelism.tensr", "Did you mean spec.parallelism.tensor?"),
        ("spec.model.max_model_len", "Did you mean spec.model.maxModelLen?"),
        ("spec.model.MaxModelLen", "Did you mean spec.model.maxModelLen?"),
        ("spec.tensor", "Did you mean spec.parallelism.tensor?"),
        ("spec.model.kvCacheMemory", "Did you mean spec.worker.kvCacheMemory?"),
        ("spec.rollout.xyz", "the fields of spec.rollout are maxSurge, maxUnavailable."),
    ],
)
def test_nearest_known_field(field: str, suggestion: str) -> None:
    problem = problem_of(Case({}, {field: 1}, ""))
    assert problem.cause == f"{field} is not a known field"
    assert suggestion in problem.fix


def test_several_problems_are_counted() -> None:
    changes = {"spec.replicas": -1, "spec.standby.level": 9, "spec.x": 1}
    problem = problem_of(Case({}, changes, ""))
    assert problem.path == "spec.replicas"
    assert problem.more == 2
