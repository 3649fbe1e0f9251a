"""Which security a worker's DEALER uses: CURVE with the keys it was handed, or ipc without any."""

from __future__ import annotations

from torpor_protocol.rpc import RankKeys
from torpor_protocol.transport import ClientSecurity, CurveClient, CurveKeys, IpcSecurity


def client_security(keys: RankKeys) -> ClientSecurity:
    """No secret key means one machine, where the socket's folder is what protects it."""
    if not keys.secret:
        return IpcSecurity()
    return CurveClient(CurveKeys(keys.public, keys.secret), keys.server)
