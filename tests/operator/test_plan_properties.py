"""What every plan must hold, whatever the operator finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operator_builders import SETTINGS, children, engine_pod, resource, worker_pod
from operator_world import World
from torpor_operator.model import Child, EngineView, Plan, PodView, child_key
from torpor_operator.plan import plan
from torpor_operator.replica_view import view_replicas
from torpor_operator.replicas import choose_roles
from torpor_protocol.api import InferenceDeploymentStatus

LIFECYCLES = (
    "Starting",
    "Awake",
    "Draining",
    "Sleeping",
    "Asleep",
    "Waking",
    "Recovering",
    "Failed",
)
KEYS = (
    "Service/demo",
    "Service/demo-pods",
    "Secret/demo-keys",
    "NetworkPolicy/demo-engine",
    "PodDisruptionBudget/demo",
    "Pod/demo-0-engine",
    "Pod/demo-1-worker-0",
)
PARALLELISMS = ({"tensor": 2}, {"tensor": 1}, {"pipeline": 3}, {"tensor": 2, "pipeline": 2})
LOSS = {"reason": "RankLost", "message": "Rank 1 was killed.", "time": 1.0, "group": "g"}
ROUNDS = 80


@st.composite
def pods(draw: st.DrawFn, revision: str) -> PodView:
    replica = draw(st.integers(0, 3))
    build: Callable[..., PodView] = draw(st.sampled_from((engine_pod, worker_pod)))
    place = (replica,) if build is engine_pod else (replica, draw(st.integers(0, 2)))
    deleting = draw(st.sampled_from((False, False, False, True)))
    phases = ("Pending", "Running", "Running", "Running", "Failed", "Succeeded", "Unknown")
    return build(
        *place,
        revision=draw(st.sampled_from((revision, revision, "old"))),
        phase=draw(st.sampled_from(phases)),
        deleting=deleting,
        ends_at=1_800_000_000.0 + draw(st.integers(-200, 30)) if deleting else 0.0,
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    least = draw(st.integers(0, 2))
    world = World(
        resource(
            replicas=draw(st.integers(0, 3)),
            parallelism=draw(st.sampled_from(PARALLELISMS)),
            standby={"minReplicas": least, "maxReplicas": least + draw(st.integers(0, 2))},
        ),
        stuck=frozenset(draw(st.sets(st.sampled_from(("demo-0-engine", "demo-1-worker-1"))))),
        foreign=frozenset(draw(st.sets(st.sampled_from(KEYS), max_size=1))),
    )
    for pod in draw(st.lists(pods(world.deployment.revision), max_size=12)):
        if child_key("Pod", pod.name) in world.foreign:
            continue
        world.pods[pod.name] = pod
        if pod.role == "engine" and pod.phase == "Running":
            world.engines[pod.uid] = {
                "lifecycle": draw(st.sampled_from(LIFECYCLES)),
                "on_call": draw(st.booleans()),
                "woken_by": draw(st.sampled_from(("", "request", "call"))),
                "last_loss": draw(st.sampled_from((None, LOSS))),
            }
    for key in world.foreign:
        kind, _, name = key.partition("/")
        if kind not in ("Secret", "Pod"):
            world.children[key] = Child(kind, name, {"metadata": {"name": name}}, False)
    world.children |= draw(found_children(world))
    return world


@st.composite
def found_children(draw: st.DrawFn, world: World) -> dict[str, Child]:
    """Of its own: as they should be, changed by somebody, or missing."""
    found = {}
    for child in children(world.deployment):
        key = child_key(child.kind, child.name)
        state = draw(st.sampled_from(("kept", "changed", "missing")))
        if key not in world.foreign and state != "missing":
            changed = replace(child, manifest=child.manifest | {"spec": {}})
            found[key] = child if state == "kept" else changed
    return found


def check(world: World, decided: Plan) -> None:
    """One plan against the world that it was made for."""
    before = {pod.name: pod for pod in world.look().pods}
    created = [manifest["metadata"]["name"] for manifest in decided.create]
    deleted = [ref.name for ref in decided.delete]
    assert len(set(created)) == len(created) and not set(created) & set(before)
    assert len(set(deleted)) == len(deleted) and set(deleted) <= set(before)
    touched = [child_key(each["kind"], each["metadata"]["name"]) for each in decided.apply]
    known = world.taken | {key for key, child in world.children.items() if not child.owned}
    assert not known & {*touched, *(child_key("Pod", name) for name in created)}
    replicas = view_replicas(world.deployment, world.look())
    members = choose_roles(world.deployment, replicas).members
    ended: set[int] = set()
    for ref in decided.delete:
        pod = before[ref.name]
        healthy = pod.phase in ("Pending", "Running") and not pod.deleting
        current = pod.revision == world.deployment.revision
        wanted = pod.replica in members and pod.worker < world.deployment.workers
        assert not (healthy and current and wanted), ref
        if healthy and current and pod.worker < world.deployment.workers:
            ended.add(pod.replica)
    # However they are chosen: no more end than there are too many.
    spec = world.deployment.spec
    enough = (1 if spec.replicas is None else spec.replicas) + spec.standby.max_replicas
    assert len(ended) <= max(0, len({pod.replica for pod in before.values()}) - enough)
    InferenceDeploymentStatus.from_wire(decided.status)


def run(world: World) -> Plan:
    """Until nothing is left to do; the last plan."""
    for _ in range(ROUNDS):
        observed = world.look()
        decided = plan(observed, SETTINGS, world.now)
        assert decided == plan(observed, SETTINGS, world.now)
        check(world, decided)
        before = (world.resource.get("status"), dict(world.pods), repr(world.engines))
        world.carry_out(decided)
        world.tick()
        after = (world.resource.get("status"), dict(world.pods), repr(world.engines))
        if decided.idle and before == after:
            return decided
    pytest.fail(f"no fixed point: {decided}")


@settings(max_examples=80, deadline=None)
@given(world=worlds())
def test_every_world_comes_to_rest(world: World) -> None:
    decided = run(world)
    assert decided.events == ()
    for child in children(world.deployment):
        key = child_key(child.kind, child.name)
        assert world.children[key] == child or key in world.foreign
    if not world.foreign and not world.stuck and not _failed(world):
        status = decided.status
        wanted = world.deployment.wanted
        by_request = _woken_by_request(world)
        assert status["readyReplicas"] - by_request <= wanted <= status["readyReplicas"]
        least = world.deployment.spec.standby.min_replicas
        assert status["sleepingReplicas"] + by_request >= least
        assert status["updatedReplicas"] == len(status["replicaStatuses"])
        assert _on_call(world) == (0 if status["readyReplicas"] else min(1, _asleep(world)))


@settings(max_examples=60, deadline=None)
@given(world=worlds(), data=st.data())
def test_an_answer_that_is_missed_changes_nothing(world: World, data: st.DataObject) -> None:
    """As when a new operator is not let through by the network at once. Of engines that rest, that
    is: one that recovers is looked at again a second later."""
    run(world)
    seen = world.look()
    resting = [index for index, view in seen.engines.items() if _rests(view)]
    silent = [index for index in resting if data.draw(st.booleans())]
    missed = {index: EngineView(None, "timeout", world.now) for index in silent}
    observed = replace(seen, engines={**seen.engines, **missed})
    decided = plan(observed, SETTINGS, world.now)
    assert decided.idle and decided.events == ()
    assert decided.status == world.resource["status"]


def _rests(view: EngineView) -> bool:
    return view.state is not None and view.state["lifecycle"] in ("Awake", "Asleep", "Failed")


def _told(world: World) -> list[dict[str, Any]]:
    return [world.engines[pod.uid] for pod in world.pods.values() if pod.uid in world.engines]


def _failed(world: World) -> bool:
    return any(told["lifecycle"] == "Failed" for told in _told(world))


def _woken_by_request(world: World) -> int:
    awake = [told for told in _told(world) if told["lifecycle"] == "Awake"]
    return sum(told.get("woken_by") == "request" for told in awake)


def _asleep(world: World) -> int:
    return sum(told["lifecycle"] == "Asleep" for told in _told(world))


def _on_call(world: World) -> int:
    return sum(told["lifecycle"] == "Asleep" and told["on_call"] for told in _told(world))


@settings(max_examples=30, deadline=None)
@given(world=worlds(), data=st.data())
def test_rest_is_found_again_after_any_scaling(world: World, data: st.DataObject) -> None:
    for _ in range(2):
        run(world)
        spec = world.resource["spec"] | {"replicas": data.draw(st.integers(0, 3))}
        world.resource = world.resource | {"spec": spec}
    decided = run(world)
    assert decided.status["desiredReplicas"] == world.deployment.wanted


@settings(max_examples=12, deadline=None)
@given(awake=st.integers(1, 3), lost=st.sampled_from(("engine", "worker-0", "worker-1")))
def test_only_a_lost_pod_is_made_again(awake: int, lost: str) -> None:
    world = World(resource(replicas=awake))
    run(world)
    name = f"demo-{awake - 1}-{lost}"
    kept = {pod.name: pod.uid for pod in world.pods.values() if pod.name != name}
    del world.pods[name]
    decided = run(world)
    assert {pod.name: pod.uid for pod in world.pods.values() if pod.name != name} == kept
    assert decided.status["readyReplicas"] == awake
