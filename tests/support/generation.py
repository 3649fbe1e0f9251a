"""Real engines over real models, and transformers' tokens to compare with."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import transformers

from core_thread import CoreThread
from make_model import models_folder
from tiny_models import reference_best, reference_greedy
from torpor_engine.model_folder import read_model_config
from torpor_protocol.arrays import pack_i32
from torpor_protocol.config import (
    CacheConfig,
    EngineConfig,
    ParallelConfig,
    RecoveryConfig,
    SchedulerConfig,
    WakeConfig,
)
from torpor_protocol.requests import AddRequest, SamplingParams

GAP = 1e-4
_ids = itertools.count(1)


def config_of(
    folder: Path,
    *,
    tensor: int = 1,
    pipeline: int = 1,
    max_model_len: int = 256,
    max_num_seqs: int = 16,
    budget: int = 256,
    blocks_memory: int = 0,
    prefix_caching: bool = True,
    chunked: bool = True,
    **changes: Any,
) -> EngineConfig:
    """A float32 engine; ``budget`` tokens in a step, ``blocks_memory`` bytes of KV cache."""
    return EngineConfig(
        model=read_model_config(folder, "float32", max_model_len),
        parallel=ParallelConfig(tensor, pipeline),
        cache=CacheConfig(kv_cache_memory=blocks_memory, prefix_caching=prefix_caching),
        scheduler=SchedulerConfig(max_num_seqs, budget, chunked_prefill=chunked),
        wake=WakeConfig(canary_prompt=(5, 6, 7, 8), canary_tokens=4),
        recovery=RecoveryConfig(max_restarts=1000, backoff_seconds=0.0),
        **changes,
    )


@contextlib.contextmanager
def engine(config: EngineConfig, run_dir: Path) -> Iterator[CoreThread]:
    """A running core with real workers."""
    run_dir.mkdir(parents=True, exist_ok=True)
    run_dir.chmod(0o700)
    core = CoreThread(config, run_dir)
    try:
        core.until(lambda core: core.lifecycle == "Awake", 120.0)
        yield core
    finally:
        core.close()


def greedy(prompt: list[int], max_tokens: int, **fields: Any) -> AddRequest:
    fields = {"temperature": 0.0, "ignore_eos": True, "seed": 0} | fields
    return AddRequest(next(_ids), pack_i32(prompt), SamplingParams(max_tokens=max_tokens, **fields))


def sampled(prompt: list[int], max_tokens: int, seed: int, **fields: Any) -> AddRequest:
    return greedy(prompt, max_tokens, seed=seed, **({"temperature": 1.0} | fields))


def assert_tokens(
    name: str,
    folder: Path,
    prompt: list[int],
    got: list[int],
    reference: tuple[list[int], list[float]],
    ties: frozenset[str],
) -> None:
    """Tokens equal the reference's. From a place on where the reference's two best candidates are
    closer than GAP they may differ, but only for a prompt that the test names, and only if the
    token there is the other one of the two."""
    tokens, gaps = reference
    if got == tokens:
        return
    assert len(got) == len(tokens), f"{name}: {len(got)} tokens, not {len(tokens)}"
    place = next(i for i, (a, b) in enumerate(zip(got, tokens, strict=True)) if a != b)
    assert gaps[place] < GAP, (
        f"{name}: token {place} is {got[place]}, not {tokens[place]} (gap {gaps[place]:.2e})"
    )
    assert name in ties, f"{name} has a tie of {gaps[place]:.2e} at {place}; name it in the test"
    best = reference_best(folder, prompt + tokens[:place], 2)
    assert {got[place], tokens[place]} == set(best), f"{name}: {got[place]} is not of {best}"


def cached_reference(
    folder: Path, prompts: list[list[int]], max_tokens: int
) -> list[tuple[list[int], list[float]]]:
    """transformers' greedy tokens and gaps, kept beside the model cache: they take minutes."""
    weights = next(iter(sorted(folder.glob("*.safetensors")))).stat()
    key = json.dumps([prompts, max_tokens, transformers.__version__, weights.st_size])
    key += str(weights.st_mtime_ns)
    name = hashlib.sha256(key.encode()).hexdigest()[:24]
    path = models_folder().parent / "references" / f"{name}.json"
    if path.is_file():
        return [(tokens, gaps) for tokens, gaps in msgspec.json.decode(path.read_bytes())]
    made = [reference_greedy(folder, prompt, max_tokens) for prompt in prompts]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(made))
    return made
