"""Everything secret of a deployment, derived from the master key; nothing is read back."""

from __future__ import annotations

import base64
from collections.abc import Iterable

import msgspec

from torpor_operator import names
from torpor_protocol.pods import EngineKeys
from torpor_protocol.rpc import RankKeys
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
    texts = {names.engine_item(replica): _text(EngineKeys(engine.public, engine.secret, known))}
    for worker, pair in enumerate(pairs):
        keys = RankKeys(pair.public, pair.secret, engine.public)
        texts[names.worker_item(replica, worker)] = _text(keys)
    return texts


def _text(keys: EngineKeys | RankKeys) -> str:
    """As ``read_engine_keys`` and ``read_worker_keys`` in the pods take it."""
    return msgspec.json.encode(keys).decode("ascii")
