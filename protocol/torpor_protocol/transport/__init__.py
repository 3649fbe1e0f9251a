"""The wire between an engine and its supervisors and ranks.

The engine's ``Router`` listens; each supervisor and rank connects one ``Dealer``. Over tcp both
sides prove themselves with CURVE keys; on one machine an ``ipc`` socket in a private directory
does the same. Whatever a peer sends, the worst that happens is that it is counted and dropped.

    keys, security     who may talk: CURVE keys, and how a socket is secured with them
    admission, gate    whom the engine takes: names, their keys, the answer to a handshake (ZAP)
    identity           the routing identity that a peer connects under: its name and a nonce
    endpoints, options addresses that are safe to use, socket options
    frames, intake     one message off a socket without copies; which ones the engine takes
    handshakes         connections that never got through their handshake
    refusals           counting, logging and cutting off what is refused
    router, dealer     the two ends
"""

from torpor_protocol.errors import PeerGone
from torpor_protocol.transport.dealer import Dealer, Delivered
from torpor_protocol.transport.intake import Received
from torpor_protocol.transport.keys import CurveKeys
from torpor_protocol.transport.router import Router
from torpor_protocol.transport.security import ClientSecurity, CurveClient, CurveServer, IpcSecurity

__all__ = [
    "ClientSecurity",
    "CurveClient",
    "CurveKeys",
    "CurveServer",
    "Dealer",
    "Delivered",
    "IpcSecurity",
    "PeerGone",
    "Received",
    "Router",
]
