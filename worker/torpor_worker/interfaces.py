"""Which network interface has an address: gloo and NCCL want its name, a pod is told its IP."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

_SIOCGIFADDR = 0x8915
_NAME_BYTES = 16
_REQUEST_BYTES = 256
_IPV6_TABLE = Path("/proc/net/if_inet6")


def interface_of(address: str) -> str:
    """The name of the interface with this IP address; empty when there is none."""
    try:
        wanted = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if wanted.version == 6:
        return _interface_in(_ipv6_table(), wanted.packed)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            if _ipv4_of(probe, name) == wanted.packed:
                return name
    return ""


def _ipv4_of(probe: socket.socket, name: str) -> bytes:
    """The first address of an interface; empty when it has none. The kernel's ``ifreq``: the name,
    then a ``sockaddr_in`` with the address at its byte 4."""
    request = struct.pack(f"{_REQUEST_BYTES}s", name.encode()[: _NAME_BYTES - 1])
    try:
        answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
    except OSError:
        return b""
    return answer[_NAME_BYTES + 4 : _NAME_BYTES + 8]


def _ipv6_table() -> str:
    try:
        return _IPV6_TABLE.read_text()
    except OSError:
        return ""


def _interface_in(table: str, packed: bytes) -> str:
    """Lines of 32 hex digits, four numbers and the interface's name."""
    for line in table.splitlines():
        words = line.split()
        if len(words) == 6 and words[0] == packed.hex():
            return words[5]
    return ""
