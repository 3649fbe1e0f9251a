"""Those who have everything but the key: requests to an admin port, and frames to a wire port."""

from __future__ import annotations

import json
from typing import Any

from besieged import Besieged, secret_data
from torpor_protocol.transport import CurveKeys

ADMIN_REQUESTS = (
    ("GET", "/state"),
    ("GET", "/is_sleeping"),
    ("POST", "/sleep?level=3"),
    ("POST", "/wake_up"),
    ("POST", "/drain"),
    ("PUT", "/on_call?value=false"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/no/such/path"),
    ("DELETE", "/state"),
)
_NO_GROUP = bytes(16).hex()
_OTHER_GROUP = "ab" * 16
_OF_A_GROUP = ("RankExited", "RankHello", "Reply")

Told = dict[str, Any]


def admin_requests(replica: Besieged, other: str) -> list[tuple[str, str, dict[str, str]]]:
    """Each request under each wrong header. ``other``: a deployment with a token of its own."""
    token = replica.token
    foreign = secret_data(replica.kube, f"{other}-keys")["admin-token"]
    values = [
        "Bearer",
        "Bearer x",
        f"Bearer {foreign}",
        f"Basic {token}",
        token,
        f"Bearer {token}x",
    ]
    heads = [{}, *({"authorization": value} for value in values), {"x-api-key": token}]
    return [(method, path, head) for method, path in ADMIN_REQUESTS for head in heads]


def forgery(replica: Besieged, keys: dict[str, str], name: str, **more: Any) -> Told:
    """Everything right but the key: the engine's public key, the group, the hello of a worker."""
    return {
        "attack": "forged",
        "address": replica.wire_port,
        "server": "",
        "hello": replica.hello(),
        "groups": [_NO_GROUP, replica.state()["group"]],
        "kinds": None,
        "name": name,
        "count": 1,
        "seconds": 2,
    } | {**keys, **more}


def impostors(replica: Besieged, other: str) -> dict[str, tuple[Told, str]]:
    """What is sent to the wire port, and as what it is refused there."""
    first, second = replica.workers
    own = replica.worker_keys(1)
    nobody = CurveKeys.generate()
    strange = {"public": nobody.public, "secret": nobody.secret, "server": own["server"]}
    foreign = _a_workers_keys(replica, other) | {"server": own["server"]}
    rank = f"rank-0-{replica.state()['group']}"
    stale: dict[str, Any] = {"kinds": _OF_A_GROUP}
    return {
        "no key": (forgery(replica, {}, first), "handshake"),
        "a key of nobody": (forgery(replica, strange, first), "handshake"),
        "a key of nobody, as a rank": (forgery(replica, strange, rank), "handshake"),
        "a key of another deployment": (forgery(replica, foreign, first), "handshake"),
        "a public key without its secret": (
            forgery(replica, strange | {"public": own["public"]}, second),
            "handshake",
        ),
        "another worker's name": (forgery(replica, own, first), "wrong_identity"),
        "a rank's name": (forgery(replica, own, rank), "wrong_identity"),
        "another group": (
            forgery(replica, own, second, groups=[_OTHER_GROUP], **stale),
            "stale_group",
        ),
        "no group": (forgery(replica, own, second, groups=[_NO_GROUP], **stale), "stale_group"),
    }


def _a_workers_keys(replica: Besieged, deployment: str) -> dict[str, str]:
    secrets = secret_data(replica.kube, f"{deployment}-keys")
    return dict(json.loads(secrets["worker-0-0.json"]))
