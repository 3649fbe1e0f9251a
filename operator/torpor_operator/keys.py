"""Everything secret of a deployment, derived from the master key; nothing is read back."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable

from torpor_operator import names
from torpor_protocol.transport.derive import bearer_token, curve_keys, derive
from torpor_protocol.transport.keys import CurveKeys


def admin_token(master: bytes, uid: str) -> str:
    """Bearer token of the admin ports of a deployment's engines."""
    return bearer_token(derive(master, uid, "admin"))


def engine_keys(master: bytes, uid: str, replica: int) -> CurveKeys:
    return curve_keys(derive(master, uid, f"engine/{replica}"))


def worker_keys(master: bytes, uid: str, replica: int, worker: int) -> CurveKeys:
    return curve_keys(derive(master, uid, f"worker/{replica}/{worker}"))


def secret_data(master: bytes, uid: str, replicas: Iterable[int], workers: int) -> dict[str, str]:
    """``data`` of the Secret (base64): the token, and for each replica the keys of its engine and
    of each of its ``workers``."""
    texts = {names.ADMIN_TOKEN: admin_token(master, uid)}
    for replica in sorted(set(replicas)):
        texts |= _replica_texts(master, uid, replica, workers)
    return {key: base64.b64encode(text.encode()).decode("ascii") for key, text in texts.items()}


def _replica_texts(master: bytes, uid: str, replica: int, workers: int) -> dict[str, str]:
    engine = engine_keys(master, uid, replica)
    pairs = [worker_keys(master, uid, replica, worker) for worker in range(workers)]
    known = [pair.public for pair in pairs]
    texts = {
        names.engine_item(replica): json.dumps(
            {"public": engine.public, "secret": engine.secret, "workers": known}
        )
    }
    for worker, pair in enumerate(pairs):
        texts[names.worker_item(replica, worker)] = json.dumps(
            {"public": pair.public, "secret": pair.secret, "server": engine.public}
        )
    return texts
