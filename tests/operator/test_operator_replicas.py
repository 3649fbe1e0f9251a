"""Which replicas there shall be, which are awake, which is on call, and what engines are told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from operator_builders import (
    NOW,
    deployment,
    engine,
    engine_pod,
    no_answer,
    observed,
    replica_pods,
)
from torpor_operator.model import EngineView, Manifest, PodView
from torpor_operator.replica_view import Replica, view_replicas
from torpor_operator.replicas import Roles, choose_roles, engine_calls, next_to_replace

ASLEEP = {"lifecycle": "Asleep"}


@dataclass(frozen=True)
class Case:
    """Replicas by what their engines say; a text instead of a state: all pods are like that."""

    given: dict[int, Any]
    replicas: int = 1
    standby: Manifest = field(default_factory=dict)
    awake: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    surplus: tuple[int, ...] = ()
    on_call: int | None = None
    calls: tuple[str, ...] = ()


def look(given: dict[int, Any], **spec: Any) -> dict[int, Replica]:
    pods: list[PodView] = []
    engines: dict[int, EngineView] = {}
    for index, said in given.items():
        if said == "deleting":
            pods += replica_pods(index, deleting=True)
        elif said == "ending":
            pods += [replace(pod, deleting=pod.role == "engine") for pod in replica_pods(index)]
        elif said == "without engine":
            pods += replica_pods(index)[1:]
        elif said == "blocked":
            pods += replica_pods(index, phase="Pending", reason="ImagePullFailed")
        elif said == "old":
            pods += replica_pods(index, revision="old")
            engines[index] = engine()
        elif said == "old and asleep":
            pods += replica_pods(index, revision="old")
            engines[index] = engine("Asleep")
        elif said == "old and starting":
            pods += replica_pods(index, revision="old")
            engines[index] = engine("Starting")
        else:
            fields = {key: value for key, value in said.items() if key in UNREADY}
            pods += replica_pods(index, **fields)
            engines[index] = engine(**{key: said[key] for key in said if key not in UNREADY})
    return view_replicas(deployment(**spec), observed(pods, engines, spec=spec))


AWAKE: dict[str, Any] = {}
STARTING = {"lifecycle": "Starting"}
WOKEN = {"woken_by": "request"}
NOT_ON_CALL = {"on_call": False}
UNREADY = {"ready": False}  # of the pod
CASES = {
    "a first one": Case({}, awake=(0,)),
    "as it is wanted": Case({0: AWAKE}, awake=(0,)),
    "to sleep": Case({0: AWAKE}, replicas=0, kept=(0,), on_call=0, calls=("sleep 0",)),
    "on its way to sleep": Case({0: {"lifecycle": "Draining"}}, replicas=0, kept=(0,), on_call=0),
    "asleep and on call": Case({0: ASLEEP}, replicas=0, kept=(0,), on_call=0),
    "to wake": Case({0: ASLEEP}, awake=(0,), calls=("wake 0",)),
    "waking": Case({0: {"lifecycle": "Waking"}}, awake=(0,)),
    "not wanted at all": Case({}, replicas=0),
    "no standby": Case({0: AWAKE}, replicas=0, standby={"maxReplicas": 0}, surplus=(0,)),
    "one more wakes before it is made": Case(
        {0: AWAKE, 1: ASLEEP | NOT_ON_CALL},
        replicas=2,
        awake=(0, 1),
        calls=("on_call 1 True", "wake 1"),
    ),
    "one more is made": Case({0: AWAKE}, replicas=2, awake=(0, 1)),
    "a gap is filled": Case({1: AWAKE}, replicas=2, awake=(0, 1)),
    "one less leaves the Service": Case(
        {0: AWAKE, 1: AWAKE}, awake=(0,), kept=(1,), calls=("on_call 1 False",)
    ),
    "and is waited for": Case({0: AWAKE, 1: NOT_ON_CALL}, awake=(0,), kept=(1,)),
    "and sleeps": Case(
        {0: AWAKE, 1: NOT_ON_CALL | UNREADY}, awake=(0,), kept=(1,), calls=("sleep 1",)
    ),
    "a late request has woken it": Case(
        {0: AWAKE, 1: WOKEN | NOT_ON_CALL | UNREADY}, awake=(0,), kept=(1,), calls=("sleep 1",)
    ),
    "one that cannot be ready anyway is taken off call first": Case(
        {0: AWAKE, 1: UNREADY}, awake=(0,), kept=(1,), calls=("on_call 1 False",)
    ),
    "the end of one goes on though the other has come to nothing": Case(
        {0: "ending", 1: "blocked"}, standby={"maxReplicas": 0}, awake=(1,), surplus=(0,)
    ),
    "and when its engine is gone": Case(
        {0: "without engine", 1: "blocked"}, standby={"maxReplicas": 0}, awake=(1,), surplus=(0,)
    ),
    "two less: one sleeps and one ends": Case(
        {0: AWAKE, 1: AWAKE, 2: AWAKE},
        awake=(0,),
        kept=(1,),
        surplus=(2,),
        calls=("on_call 1 False",),
    ),
    "standby is topped up": Case(
        {0: AWAKE}, standby={"minReplicas": 1, "maxReplicas": 1}, awake=(0,), kept=(1,)
    ),
    "a sleeper takes over from one that starts": Case(
        {0: STARTING, 1: ASLEEP},
        awake=(1,),
        kept=(0,),
        calls=("on_call 0 False", "wake 1"),
    ),
    "a sleeper takes over from one that is blocked": Case(
        {0: "blocked", 1: ASLEEP | NOT_ON_CALL},
        awake=(1,),
        kept=(0,),
        calls=("on_call 1 True", "wake 1"),
    ),
    "one that recovers stays": Case(
        {0: {"lifecycle": "Recovering"}, 1: ASLEEP | NOT_ON_CALL}, awake=(0,), kept=(1,)
    ),
    "one that ends is not chosen": Case({0: "deleting", 1: STARTING}, awake=(1,), kept=(0,)),
    "woken by a request": Case({0: WOKEN}, replicas=0, kept=(0,), on_call=0),
    "woken by a request and now wanted": Case({0: WOKEN}, awake=(0,), calls=("wake 0",)),
    "who is on call stays so": Case(
        {0: ASLEEP | NOT_ON_CALL, 1: ASLEEP},
        replicas=0,
        standby={"maxReplicas": 2},
        kept=(0, 1),
        on_call=1,
    ),
    "of several the lowest stays on call": Case(
        {0: ASLEEP, 1: ASLEEP},
        replicas=0,
        standby={"maxReplicas": 2},
        kept=(0, 1),
        on_call=0,
        calls=("on_call 1 False",),
    ),
    "the last awake one sleeps on call": Case(
        {0: AWAKE, 1: ASLEEP | NOT_ON_CALL},
        replicas=0,
        standby={"maxReplicas": 2},
        kept=(0, 1),
        on_call=0,
        calls=("sleep 0",),
    ),
    "nobody leaves before another is in the Service": Case(
        {0: AWAKE | UNREADY, 1: {"lifecycle": "Recovering"}}, awake=(0,), kept=(1,)
    ),
    "one that recovers is not kept for one that serves": Case(
        {0: {"lifecycle": "Recovering"} | UNREADY, 1: AWAKE},
        awake=(1,),
        kept=(0,),
        calls=("on_call 0 False",),
    ),
    "nor while the one on call is not": Case(
        {0: AWAKE, 1: WOKEN | UNREADY},
        replicas=0,
        standby={"maxReplicas": 2},
        kept=(0, 1),
        on_call=1,
    ),
    "one that a request woke stays on call": Case(
        {0: ASLEEP | NOT_ON_CALL, 1: WOKEN},
        replicas=0,
        standby={"maxReplicas": 2},
        kept=(0, 1),
        on_call=1,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_roles_and_calls(case: Case) -> None:
    spec = {"replicas": case.replicas, "standby": case.standby}
    replicas = look(case.given, **spec)
    roles = choose_roles(deployment(**spec), replicas)
    assert roles == Roles(case.awake, case.kept, case.surplus, case.on_call)
    told = []
    for call in engine_calls(deployment(**spec), replicas, roles):
        assert call.ip == f"10.0.{call.replica}.1"
        told.append(f"{call.verb} {call.replica}" + f" {call.value}" * (call.verb == "on_call"))
    assert tuple(told) == case.calls


def test_sleep_has_the_level_of_the_spec() -> None:
    spec = {"replicas": 0, "standby": {"level": 1}}
    replicas = look({0: AWAKE}, **spec)
    (call,) = engine_calls(deployment(**spec), replicas, choose_roles(deployment(**spec), replicas))
    assert (call.verb, call.level) == ("sleep", 1)


@pytest.mark.parametrize(
    ("given", "then"),
    [
        ({0: AWAKE}, set()),
        ({0: "old"}, {0}),
        ({0: "old", 1: "old"}, {0}),
        ({0: "old", 1: "old and asleep"}, {1}),
        ({0: AWAKE, 1: "old"}, {1}),
        ({0: STARTING, 1: "old"}, set()),
        ({0: "old", 1: "blocked"}, set()),
        ({0: "old and starting", 1: "old and starting"}, {0, 1}),
        ({0: "old and starting", 1: "old"}, {0}),
        ({0: "old"} | {1: {"lifecycle": "Recovering"}}, set()),
        ({0: "old", 1: AWAKE | UNREADY}, set()),
    ],
)
def test_one_replica_at_a_time_is_replaced(given: dict[int, Any], then: set[int]) -> None:
    awake = sum(said != "old and asleep" for said in given.values())
    spec = {"replicas": awake}
    replicas = look(given, **spec)
    roles = choose_roles(deployment(**spec), replicas)
    assert next_to_replace(deployment(**spec), replicas, roles) == then


SILENT = "The engine of replica 0 does not answer."
STALLED = "The engine of replica 0 does not answer any more."
YOUNG = "The engine of replica 0 does not answer yet."


def previous(state: str, reason: str = "", message: str = "") -> Manifest:
    entry = {"index": 0, "revision": "r", "state": state, "message": message}
    return {"replicaStatuses": [entry | ({"reason": reason} if reason else {})]}


STUCK = previous("Failed", "EngineStalled", STALLED)


@pytest.mark.parametrize(
    ("before", "silent", "pod", "then"),
    [
        (previous("Awake"), 3.0, {}, ("Awake", "", "")),
        (previous("Awake"), 10.0, {}, ("Awake", "", SILENT)),
        (previous("Awake", message=SILENT), 3.0, {}, ("Awake", "", SILENT)),
        (previous("Awake"), 3.0, {"ready": False}, ("Awake", "", "")),
        (previous("Awake"), 10.0, {"ready": False}, ("Failed", "EngineStalled", STALLED)),
        (STUCK, 3.0, {"ready": False}, ("Failed", "EngineStalled", STALLED)),
        (STUCK, 3.0, {}, ("Failed", "EngineStalled", STALLED)),
        (STUCK, 10.0, {}, ("Pending", "", SILENT)),
        (previous("Asleep"), 10.0, {"ready": False}, ("Asleep", "", "")),
        (previous("Draining", "Draining"), 10.0, {"ready": False}, ("Draining", "Draining", "")),
        (previous("Failed", "CrashLoop", "x"), 3.0, {"ready": False}, ("Failed", "CrashLoop", "x")),
        (previous("Failed", "CrashLoop", "x"), 10.0, {"ready": False}, ("Pending", "", SILENT)),
        (previous("Awake"), 10.0, {"started_at": NOW - 5}, ("Pending", "", YOUNG)),
        (previous("Pending", "ImagePullFailed"), 3.0, {"ready": False}, ("Pending", "", SILENT)),
        (None, 3.0, {}, ("Pending", "", SILENT)),
    ],
)
def test_an_engine_that_does_not_answer(
    before: Manifest | None, silent: float, pod: dict[str, Any], then: tuple[str, str, str]
) -> None:
    pods = [engine_pod(**pod), *replica_pods()[1:]]
    seen = view_replicas(deployment(), observed(pods, {0: no_answer(silent)}, status=before))[0]
    assert (seen.state, seen.reason, seen.message) == then


def test_pods_whose_names_do_not_fit_their_labels_are_of_no_replica() -> None:
    moved = [replace(engine_pod(0), name="demo-7-engine")]
    assert view_replicas(deployment(), observed(moved)) == {}


def test_one_that_is_taken_away_neither_covers_another_nor_is_told_anything() -> None:
    spec: Manifest = {"replicas": 0, "standby": {"maxReplicas": 2}}
    replicas = look({0: AWAKE, 1: AWAKE}, **spec)
    roles = choose_roles(deployment(**spec), replicas)
    told = [call.verb for call in engine_calls(deployment(**spec), replicas, roles)]
    assert told == ["sleep", "on_call"]
    assert not engine_calls(deployment(**spec), replicas, roles, going=frozenset({0}))
