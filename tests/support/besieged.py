"""A replica under attack: what its attackers and its operator know, and what must not change."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cluster_kit import SYSTEM
from guests import Guests, pod_ip
from inside import ask, reach, run_inside
from kube import Kube, Object, wait_for
from torpor_protocol.pods import ADMIN_PORT, CLIENT_PORT, WIRE_PORT

WORKERS = 2  # pods of one rank
LOOPBACK = ("127.", "::1")


@dataclass
class Besieged:
    """A ready replica 0 of a deployment, and the pods around it, some of which have its labels."""

    kube: Kube
    name: str
    guests: Guests

    def __post_init__(self) -> None:
        self.engine = f"{self.name}-0-engine"
        self.workers = [f"{self.name}-0-worker-{index}" for index in range(WORKERS)]
        self.pods = [self.engine, *self.workers]
        self.engine_ip = pod_ip(self.kube, self.engine)
        self.client_port = (self.engine_ip, CLIENT_PORT)
        self.admin_port = (self.engine_ip, ADMIN_PORT)
        self.wire_port = (self.engine_ip, WIRE_PORT)

    # What is secret

    @cached_property
    def keys(self) -> dict[str, str]:
        return secret_data(self.kube, f"{self.name}-keys")

    @property
    def token(self) -> str:
        return self.keys["admin-token"]

    def worker_keys(self, worker: int = 0) -> dict[str, str]:
        return dict(json.loads(self.keys[f"worker-0-{worker}.json"]))

    def secrets(self) -> set[str]:
        """Each that pods of the deployment have."""
        pairs = [json.loads(text) for key, text in self.keys.items() if key.endswith(".json")]
        return {self.token, *(pair["secret"] for pair in pairs)}

    # What it is

    def facts(self, pod: str) -> Any:
        return run_inside(self.kube, pod, "facts")

    def open_ports(self, pod: str) -> list[tuple[str, int]]:
        """Where the pod listens for other pods."""
        ip = pod_ip(self.kube, pod)
        found = self.facts(pod)["listening"]
        return sorted({(ip, port) for host, port in found if not host.startswith(LOOPBACK)})

    def state(self) -> Any:
        """As the operator sees it."""
        header = {"authorization": f"Bearer {self.token}"}
        overseer = self.guests.overseer
        [(status, body)] = ask(
            overseer.kube, overseer.pod, self.admin_port, ("GET", "/state", header)
        )
        assert status == 200, body
        return json.loads(body)

    def refused(self) -> dict[str, int]:
        """What the wire has refused so far, by reason."""
        return dict(self.state()["wire_rejected"])

    def wait_refused(self, reason: str, count: int) -> None:
        """Until so much was refused for this reason; a connection counts when it has ended."""
        wait_for(
            lambda: self.refused().get(reason, 0) >= count,
            30,
            lambda: f"{self.refused()}, and not {reason}: {count}",
        )

    def life(self) -> dict[str, Any]:
        """What changes when anything was lost, or not ready for a moment."""
        state = self.state()
        return {
            "pods": {pod: _life_of(self.kube.get("pod", pod)) for pod in self.pods},
            "ready": _since(self.kube.get("infd", self.name)),
            "group": state["group"],
            "ranks": [rank["pid"] for rank in state["ranks"]],
            "restarts": state["restarts"],
            "lifecycle": state["lifecycle"],
        }

    def hello(self, worker: int = 0) -> dict[str, Any]:
        """What the worker's supervisor would say, in every word."""
        pod = self.kube.get("pod", self.workers[worker])
        variables = {
            one["name"]: one.get("value", "") for one in pod["spec"]["containers"][0]["env"]
        }
        return {
            "deployment_uid": variables["TORPOR_DEPLOYMENT_UID"],
            "replica": 0,
            "revision": variables["TORPOR_REVISION"],
            "pod_uid": pod["metadata"]["uid"],
            "pod_name": pod["metadata"]["name"],
            "address": pod["status"]["podIP"],
            "pid": 1,
            "devices": 1,
        }


def secret_data(kube: Kube, name: str) -> dict[str, str]:
    data = kube.get("secret", name)["data"]
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def operator_secrets() -> set[str]:
    """The master key, in every form in which it might be written down."""
    system = Kube(SYSTEM)
    volumes = system.get("pod", operator_pod())["spec"]["volumes"]
    [secret] = [volume["secret"] for volume in volumes if volume["name"] == "master-key"]
    text = system.get("secret", secret["secretName"])["data"][secret["items"][0]["key"]]
    key = base64.b64decode(text)
    return {text, key.hex(), base64.urlsafe_b64encode(key).decode(), repr(key)[2:-1]}


def found_in(texts: dict[str, str], secrets: set[str]) -> list[str]:
    """Which texts hold a secret; never the secret itself, which would be in the test's report."""
    return [what for what, text in texts.items() if any(secret in text for secret in secrets)]


def operator_pod() -> str:
    """Name of the operator's own pod."""
    selector = "app.kubernetes.io/name=torpor-operator,app.kubernetes.io/component=operator"
    [pod] = Kube(SYSTEM).listed("pods", selector)
    return str(pod["metadata"]["name"])


def reached(kube: Kube, pod: str, targets: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return [target for target, what in reach(kube, pod, targets).items() if what == "open"]


def _since(thing: Object) -> dict[str, str]:
    [ready] = [each for each in thing["status"]["conditions"] if each["type"] == "Ready"]
    return {key: ready[key] for key in ("status", "lastTransitionTime")}


def _life_of(pod: Object) -> tuple[str, int, dict[str, str]]:
    restarts = sum(each["restartCount"] for each in pod["status"]["containerStatuses"])
    return pod["metadata"]["uid"], restarts, _since(pod)
