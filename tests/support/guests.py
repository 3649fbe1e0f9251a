"""Pods around a deployment: foreign ones, one that its policies take for its own, and one that they
take for the operator. All can do the same; what they reach differs by their labels alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cluster_kit import CLIENT, SYSTEM, client_pod
from inside import PROGRAMS, settled
from kube import Kube, Object

PROBE_PORT = 9000
_OPERATOR = {"app.kubernetes.io/name": "torpor-operator"}
_POLICY_SECONDS = 20.0  # for a network plug-in to carry out a policy


def worker_labels(deployment: str) -> dict[str, str]:
    return {"torpor.dev/deployment": deployment, "torpor.dev/role": "worker"}


@dataclass(frozen=True)
class Guest:
    """A pod to run programs in."""

    kube: Kube
    pod: str


@dataclass(frozen=True)
class Guests:
    """``foreign``: a plain pod; one with the labels of another deployment and of the operator, but
    in the deployment's namespace; one with all the right labels, but in another namespace.
    ``insider``: in the deployment's namespace with a worker's labels. ``overseer``: in the
    operator's namespace with the operator's label."""

    foreign: dict[str, Guest]
    insider: Guest
    overseer: Guest


@contextmanager
def guests(kube: Kube, deployment: str, image: str) -> Iterator[Guests]:
    system, elsewhere = Kube(SYSTEM), Kube(f"{kube.namespace}-elsewhere")
    overseer = f"overseer-of-{kube.namespace}"
    listen = ["python", "-c", (PROGRAMS / "listen.py").read_text(), str(PROBE_PORT)]
    _clear(elsewhere, system, overseer)
    system.kubectl("create", "namespace", elsewhere.namespace)
    kube.apply(
        _guest(image, "neighbour", _OPERATOR | worker_labels(f"{deployment}-too")),
        _guest(image, "insider", worker_labels(deployment)),
    )
    elsewhere.apply(_guest(image, "stranger", _OPERATOR | worker_labels(deployment), listen))
    system.apply(_guest(image, overseer, _OPERATOR))
    made = Guests(
        foreign={
            "client": Guest(kube, CLIENT),
            "neighbour": Guest(kube, "neighbour"),
            "stranger": Guest(elsewhere, "stranger"),
        },
        insider=Guest(kube, "insider"),
        overseer=Guest(system, overseer),
    )
    for guest in (*made.foreign.values(), made.insider, made.overseer):
        guest.kube.kubectl(
            "wait", "pod", guest.pod, "--for=condition=Ready", "--timeout=120s", timeout=150
        )
    yield made
    _clear(elsewhere, system, overseer)


def _guest(
    image: str, name: str, labels: dict[str, str], command: list[str] | None = None
) -> Object:
    pod = client_pod(image)
    pod["metadata"] = {"name": name, "labels": labels}
    [container] = pod["spec"]["containers"]
    container["command"] = command or container["command"]
    return pod


def _clear(elsewhere: Kube, system: Kube, overseer: str) -> None:
    system.kubectl("delete", "pod", overseer, "--ignore-not-found", "--timeout=60s")
    system.kubectl(
        "delete", "namespace", elsewhere.namespace, "--ignore-not-found", "--timeout=120s"
    )


def policies_are_enforced(guests: Guests) -> bool:
    """Whether this cluster does what a NetworkPolicy says: a port that is open is shut by one."""
    client, stranger = guests.foreign["client"], guests.foreign["stranger"]
    target = (pod_ip(stranger.kube, stranger.pod), PROBE_PORT)
    assert settled(client.kube, client.pod, target, True, _POLICY_SECONDS), "no network at all"
    stranger.kube.apply(_deny_all())
    return settled(client.kube, client.pod, target, False, _POLICY_SECONDS)


def _deny_all() -> Object:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "deny-all"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
    }


def pod_ip(kube: Kube, pod: str) -> str:
    return str(kube.get("pod", pod)["status"]["podIP"])
