"""Those who have everything but the key: requests to an admin port, and frames to a wire port."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
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
_KINDS = (*_OF_A_GROUP, "Hello", "SupervisorStatus", "Disbanded")

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


def forger(replica: Besieged) -> Callable[..., Told]:
    """Makes peers with everything right but the key: the engine's public key, the group, the hello
    of a worker."""
    groups = [_NO_GROUP, replica.state()["group"]]
    known = {"server": "", "hello": replica.hello(), "groups": groups, "kinds": _KINDS}
    return lambda name, keys, **more: known | {"name": name} | keys | more


def strange_keys(replica: Besieged) -> dict[str, str]:
    """A pair that nobody knows, and the engine's own public key."""
    nobody = CurveKeys.generate()
    server = replica.worker_keys()["server"]
    return {"public": nobody.public, "secret": nobody.secret, "server": server}


def impostors(replica: Besieged, other: str) -> list[tuple[str, Told]]:
    """As what it is refused, and who sends what."""
    forge = forger(replica)
    first, second = replica.workers
    own, strange = replica.worker_keys(1), strange_keys(replica)
    foreign = _a_workers_keys(replica, other) | {"server": own["server"]}
    half = strange | {"public": own["public"]}
    rank = f"rank-0-{replica.state()['group']}"
    return [
        ("handshake", forge(first, {})),
        ("handshake", forge(first, strange)),
        ("handshake", forge(rank, strange)),
        ("handshake", forge(first, foreign)),
        ("handshake", forge(second, half)),
        # With the key of a worker: as another worker, as a rank, and of another group or none.
        ("wrong_identity", forge(first, own)),
        ("wrong_identity", forge(rank, own)),
        ("stale_group", forge(second, own, groups=[_OTHER_GROUP], kinds=_OF_A_GROUP)),
        ("stale_group", forge(second, own, groups=[_NO_GROUP], kinds=_OF_A_GROUP)),
    ]


def attempts(sent: list[tuple[str, Told]]) -> dict[str, int]:
    """How much has to be refused, by reason: each connection without a key, else each frame."""
    counts: Counter[str] = Counter()
    for reason, peer in sent:
        counts[reason] += 1 if reason == "handshake" else len(peer["groups"]) * len(peer["kinds"])
    return dict(counts)


def _a_workers_keys(replica: Besieged, deployment: str) -> dict[str, str]:
    secrets = secret_data(replica.kube, f"{deployment}-keys")
    return dict(json.loads(secrets["worker-0-0.json"]))
