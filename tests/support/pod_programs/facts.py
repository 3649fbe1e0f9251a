"""What a pod is from within: its processes, ports, mounts and key files."""

import ipaddress
import json
import os
import struct
from pathlib import Path
from typing import Any

KEYS = Path("/run/torpor/keys")
LISTEN = "0A"
PLACES = ("/", "/model", str(KEYS), "/opt/torpor", "/etc")


def process(pid: str) -> dict[str, Any]:
    folder = Path("/proc", pid)
    status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines())
    return {
        "pid": int(pid),
        "uids": [int(number) for number in status["Uid"].split()],
        "capabilities": [int(status[f"Cap{kind}"], 16) for kind in ("Eff", "Prm", "Inh", "Bnd")],
        "seccomp": int(status["Seccomp"]),
        "no_new_privileges": int(status["NoNewPrivs"]),
        "arguments": (folder / "cmdline").read_bytes().decode(errors="replace"),
        "environment": (folder / "environ").read_bytes().decode(errors="replace"),
    }


def processes() -> list[dict[str, Any]]:
    found = []
    for pid in filter(str.isdigit, (path.name for path in Path("/proc").iterdir())):
        if int(pid) != os.getpid():
            try:
                found.append(process(pid))
            except FileNotFoundError:  # it has ended
                continue
    return found


def address(text: str) -> str:
    """The kernel shows addresses as words in the order of this machine."""
    words = [int(text[start : start + 8], 16) for start in range(0, len(text), 8)]
    return str(ipaddress.ip_address(struct.pack(f"={len(words)}I", *words)))


def listening() -> list[tuple[str, int]]:
    found = set()
    for table in ("tcp", "tcp6"):
        path = Path("/proc/net", table)
        for line in path.read_text().splitlines()[1:] if path.exists() else []:
            local, state = line.split()[1], line.split()[3]
            host, _, port = local.partition(":")
            if state == LISTEN:
                found.add((address(host), int(port, 16)))
    return sorted(found)


def written(place: str) -> str:
    """Nothing when a file can be made there, else the error."""
    try:
        Path(place, "written-by-a-test").touch()
        return ""
    except OSError as error:
        return type(error).__name__


def key_files() -> dict[str, tuple[int, int]]:
    """Mode and group of each. Secrets are mounted by links to hidden folders."""
    files = [path for path in KEYS.iterdir() if not path.name.startswith("..")]
    return {path.name: (path.stat().st_mode & 0o7777, path.stat().st_gid) for path in files}


print(
    json.dumps(
        {
            "processes": processes(),
            "listening": listening(),
            "refused_writes": {place: written(place) for place in PLACES},
            "read_only": {
                place: bool(os.statvfs(place).f_flag & os.ST_RDONLY) for place in PLACES[:3]
            },
            "keys": key_files(),
            "kubernetes_token": Path("/var/run/secrets/kubernetes.io").exists(),
        }
    )
)
