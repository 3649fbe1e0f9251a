"""Addresses on which the wire may be opened.

tcp only with keys, and only on a named address unless the caller asks for all interfaces, as in a
pod whose address is not known beforehand; ipc only in a directory that nobody else can enter,
because that directory is the whole authentication.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from pathlib import Path

from torpor_protocol.errors import ConfigError
from torpor_protocol.transport.security import ClientSecurity

_MAX_IPC_PATH = 107  # sockaddr_un.sun_path without its terminating zero


def check_endpoint(endpoint: str, security: ClientSecurity) -> None:
    """Raises ConfigError unless both ends may talk over ``endpoint`` under ``security``."""
    scheme, separator, address = endpoint.partition("://")
    if not separator or scheme not in ("tcp", "ipc"):
        raise ConfigError(
            f"{endpoint!r} is not an address of the worker wire.",
            "Use tcp://IP:PORT or ipc:///absolute/path.",
        )
    if scheme not in security.schemes:
        raise ConfigError(
            f"{endpoint} would be open to everybody who can reach it.",
            "Give CURVE keys, or use ipc:// on one machine.",
        )
    if scheme == "ipc":
        _check_path(address)


def check_bind_address(endpoint: str, all_interfaces: bool = False) -> None:
    """Raises ConfigError when ``endpoint`` stands for a name, or for all interfaces unasked."""
    if not endpoint.startswith("tcp://"):
        return
    address = _ip_address(endpoint)
    if address is None or (address.is_unspecified and not all_interfaces):
        raise ConfigError(
            f"{endpoint} does not name one address of this machine.",
            "Bind to the IP of the pod, or to 127.0.0.1.",
        )


def is_unspecified(endpoint: str) -> bool:
    """Whether a tcp endpoint stands for all interfaces."""
    address = _ip_address(endpoint)
    return address is not None and address.is_unspecified


def wants_ipv6(endpoint: str) -> bool:
    """Whether a socket for ``endpoint`` has to speak IPv6: for such an address, and for a name,
    which may stand for either (libzmq then takes IPv4 addresses as well)."""
    if not endpoint.startswith("tcp://"):
        return False
    address = _ip_address(endpoint)
    return address is None or address.version == 6


def _ip_address(endpoint: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The host of a tcp endpoint; None for a name."""
    try:
        return ipaddress.ip_address(endpoint.partition("://")[2].rpartition(":")[0].strip("[]"))
    except ValueError:
        return None


def _check_path(address: str) -> None:
    path = Path(address)
    if not path.is_absolute() or len(os.fsencode(address)) > _MAX_IPC_PATH:
        raise ConfigError(
            f"{address!r} cannot be the path of a socket.",
            f"Use an absolute path of at most {_MAX_IPC_PATH} bytes.",
        )
    try:
        status = path.parent.lstat()
    except OSError as error:
        raise ConfigError(
            f"The directory {path.parent} cannot be used: {error.strerror}.",
            "Make it with mode 0700.",
        ) from None
    private = stat.S_ISDIR(status.st_mode) and not stat.S_IMODE(status.st_mode) & 0o077
    if not private or status.st_uid != os.geteuid():
        raise ConfigError(
            f"The directory {path.parent} is open to other users.",
            "Use a directory of your own with mode 0700.",
        )
