"""Who gets through to a replica: by network policy, and where that lets somebody in, by key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from besieged import Besieged, found_in, operator_pod, operator_secrets, reached
from cluster_kit import SYSTEM
from cluster_stream import ClusterStream
from guests import Guests, guests, policies_are_enforced
from impostors import admin_requests, attempts, forger, impostors, strange_keys
from infd import infd
from inside import Running, ask, run_inside
from kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.real_model, pytest.mark.timeout(600, func_only=True)]

NAME = "besieged"
NOWHERE = {"torpor.dev/no-such-node": "true"}
TOKENS = 32
FLOOD_SECONDS = 6  # longer than a handshake may take


@pytest.fixture(scope="module")
def around(kube: Kube, images: dict[str, str]) -> Iterator[Guests]:
    with guests(kube, NAME, images["runtime"]) as made:
        yield made


@pytest.fixture(scope="module")
def enforced(around: Guests) -> None:
    if not policies_are_enforced(around):
        pytest.skip("This cluster's network plug-in does not enforce NetworkPolicies.")


@pytest.fixture(scope="module")
def replica(kube: Kube, images: dict[str, str], around: Guests) -> Iterator[Besieged]:
    """Two ranks in pods of their own, so that they talk over the network."""
    # Beside it a deployment that has keys, but no pod that runs.
    worker = {"ranksPerPod": 1}
    nowhere: dict[str, Any] = {
        "engine": {"nodeSelector": NOWHERE},
        "worker": {"accelerator": "none"},
    }
    nowhere["worker"]["nodeSelector"] = NOWHERE
    kube.apply(
        infd(NAME, images["model"], parallelism={"pipeline": 2}, worker=worker),
        infd("other", images["model"], **nowhere),
    )
    kube.wait_ready(NAME, 600)
    wait_for(lambda: kube.exists("secret", "other-keys"), 30, lambda: "no keys of the other one")
    yield Besieged(kube, NAME, around)
    kube.kubectl("delete", "infd", NAME, "other", "--timeout=60s")


def stream(kube: Kube, tokens: int = TOKENS) -> ClusterStream:
    body = {"model": NAME, "prompt": "In the mountains a besieged town", "max_tokens": tokens}
    return ClusterStream(kube, NAME, body)


@pytest.fixture(scope="module")
def golden(kube: Kube, replica: Besieged) -> str:
    return stream(kube).finish()


# By policy


@pytest.mark.parametrize("who", ["client", "neighbour", "stranger"])
def test_a_foreign_pod_reaches_the_client_port_only(
    enforced: None, replica: Besieged, who: str
) -> None:
    targets = [port for pod in replica.pods for port in replica.open_ports(pod)]
    engines = {replica.client_port, replica.admin_port, replica.wire_port}
    assert engines < set(targets), "the ranks listen nowhere: there is nothing to guard"
    foreign = replica.guests.foreign[who]
    assert reached(foreign.kube, foreign.pod, targets) == [replica.client_port]


def test_the_groups_own_pods_and_the_operator_are_let_in(
    enforced: None, kube: Kube, replica: Besieged
) -> None:
    engine = [replica.client_port, replica.admin_port, replica.wire_port]
    first, second = replica.workers
    for pod, others in ((first, second), (second, first), ("insider", first), ("insider", second)):
        targets = replica.open_ports(others)
        assert reached(kube, pod, targets + engine) == [
            *targets,
            replica.client_port,
            replica.wire_port,
        ]
    ranks = replica.open_ports(first) + replica.open_ports(second)
    overseer = replica.guests.overseer
    for pod in (operator_pod(), overseer.pod):
        assert reached(Kube(SYSTEM), pod, engine + ranks) == engine[:2]


@pytest.mark.parametrize("policy", ["engine", "workers"])
def test_a_policy_that_was_opened_or_deleted_comes_back(
    kube: Kube, replica: Besieged, policy: str
) -> None:
    name = f"{NAME}-{policy}"
    wanted = kube.get("networkpolicy", name)["spec"]
    kube.kubectl("patch", "networkpolicy", name, "--type=merge", "-p", '{"spec":{"ingress":[{}]}}')
    wait_for(lambda: kube.get("networkpolicy", name)["spec"] == wanted, 30, lambda: "stays open")
    kube.kubectl("delete", "networkpolicy", name)
    wait_for(lambda: kube.exists("networkpolicy", name), 30, lambda: "does not come back")
    assert kube.get("networkpolicy", name)["spec"] == wanted


# By key


def test_the_admin_port_tells_nothing_without_its_token(replica: Besieged) -> None:
    before = replica.life()
    overseer = replica.guests.overseer
    requests = admin_requests(replica, "other")
    answers = ask(overseer.kube, overseer.pod, replica.admin_port, *requests)
    assert {status for status, _ in answers} == {401}
    assert len({body for _, body in answers}) == 1, "answers differ"
    assert replica.life() == before


def test_inside_the_policy_the_wire_gives_nothing_without_the_key(
    kube: Kube, replica: Besieged, golden: str
) -> None:
    """Nor with the key of one pod, beyond what that pod may say for itself."""
    sent = impostors(replica, "other")
    before, refused = replica.life(), replica.refused()
    told = {"attack": "forged", "peers": [peer for _, peer in sent], "seconds": 3}
    result = run_inside(kube, "insider", "wire_attack", told | {"address": replica.wire_port})
    assert result == {"connections": len(sent), "answers": 0}
    for reason, count in attempts(sent).items():
        replica.wait_refused(reason, refused.get(reason, 0) + count)
    assert stream(kube).finish() == golden
    assert replica.life() == before


# Under load


def serve_during(attacks: list[Running], kube: Kube, golden: str) -> list[Any]:
    """Streams until the attacks have ended; gives what they tell."""
    while any(attack.going_on() for attack in attacks):
        assert stream(kube).finish() == golden
    return [attack.finish() for attack in attacks]


@pytest.mark.slow
def test_streams_go_on_under_floods_of_the_wire(kube: Kube, replica: Besieged, golden: str) -> None:
    """Connections that say nothing, half a handshake or noise, and peers with a key of nobody."""
    before, refused = replica.life(), replica.refused().get("handshake", 0)
    counts = {"idle": 200, "half": 200, "noise": 1000, "forged": 100}
    peers = [forger(replica)(replica.workers[0], strange_keys(replica))] * counts["forged"]
    told = {"address": replica.wire_port, "seconds": FLOOD_SECONDS, "peers": peers}
    attacks = [
        Running(kube, "insider", "wire_attack", told | {"attack": attack, "count": count})
        for attack, count in counts.items()
    ]
    for result, count in zip(serve_during(attacks, kube, golden), counts.values(), strict=True):
        assert result["connections"] >= count and result["answers"] == 0
    replica.wait_refused("handshake", refused + sum(counts.values()))
    assert replica.life() == before


@pytest.mark.slow
def test_streams_go_on_under_bad_requests_and_slow_connections(
    kube: Kube, replica: Besieged, golden: str
) -> None:
    before = replica.life()
    ports = {
        (replica.guests.foreign["client"], "/v1/completions"): replica.client_port,
        (replica.guests.overseer, "/sleep"): replica.admin_port,
    }
    told = {"slow": 100, "seconds": FLOOD_SECONDS}
    attacks = [
        Running(guest.kube, guest.pod, "http_attack", told | {"address": address, "path": path})
        for (guest, path), address in ports.items()
    ]
    for result in serve_during(attacks, kube, golden):
        assert result["slow"] == 100
        wrong = {what: got for what, got in result["answers"].items() if got // 100 not in (0, 4)}
        assert not wrong, wrong
    assert replica.life() == before


@pytest.mark.slow
def test_connections_of_clients_do_not_make_it_look_dead(
    kube: Kube, replica: Besieged, golden: str
) -> None:
    """More than the client port takes, for longer than a readiness probe is patient."""
    before, running = replica.life(), stream(kube, 4 * TOKENS)
    running.wait_pieces(1)
    told = {"attack": "idle", "count": 4300, "seconds": 12, "address": replica.client_port}
    attacker = replica.guests.foreign["neighbour"]
    assert run_inside(attacker.kube, attacker.pod, "wire_attack", told)["connections"] >= 4300
    assert running.finish().startswith(golden)
    assert replica.life() == before


# From within


@pytest.mark.parametrize("role", ["engine", "worker"])
def test_the_pods_have_no_rights(replica: Besieged, role: str) -> None:
    for pod in [replica.engine] if role == "engine" else replica.workers:
        facts = replica.facts(pod)
        assert facts["processes"]
        for process in facts["processes"]:
            assert 0 not in process["uids"], process["arguments"]
            assert not any(process["capabilities"]), process["arguments"]
            assert process["seccomp"] == 2 and process["no_new_privileges"] == 1
        assert all(facts["refused_writes"].values()), facts["refused_writes"]
        assert all(facts["read_only"].values()), facts["read_only"]
        assert not facts["kubernetes_token"]
        own = {"engine.json", "admin-token"} if role == "engine" else {"worker.json"}
        assert facts["keys"].keys() == own
        # Of root, and for the group of the pod to read: nobody in the pod can change it.
        assert {mode for mode, _ in facts["keys"].values()} == {0o440}


def test_no_secret_is_where_it_can_be_read(kube: Kube, replica: Besieged, golden: str) -> None:
    """Not in an argument, a variable, a log or an object of the cluster."""
    secrets = replica.secrets()
    assert len(secrets) >= 1 + 1 + len(replica.workers)
    for pod in replica.pods:
        seen = {f"log of {pod}": kube.kubectl("logs", pod)}
        for process in replica.facts(pod)["processes"]:
            seen[f"arguments in {pod}"] = process["arguments"]
            seen[f"variables in {pod}"] = process["environment"]
            assert found_in(seen, secrets) == []
    system = Kube(SYSTEM)
    objects = "infd,pods,services,events,networkpolicies,poddisruptionbudgets,configmaps"
    seen = {
        "log of the operator": system.kubectl("logs", operator_pod()),
        "objects": kube.kubectl("get", objects, "-o", "json"),
        "metrics": ask(kube, "client", replica.client_port, ("GET", "/metrics", {}))[0][1],
    }
    assert all(seen.values())
    assert found_in(seen, secrets | operator_secrets()) == []
