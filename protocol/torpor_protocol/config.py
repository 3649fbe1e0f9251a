"""The resolved configuration of one replica, as the engine makes it and every rank receives it.

Frozen structs, checked where they are made (``torpor_engine.configure``); a rank never reads a
manifest, a flag or the model's ``config.json`` itself.
"""

from __future__ import annotations

from typing import Literal

import msgspec

DType = Literal["float32", "bfloat16", "float16"]


class RopeScaling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rotary scaling, after Hugging Face's ``rope_scaling``/``rope_parameters``."""

    kind: Literal["default", "linear", "llama3"] = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 0


class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A decoder of the Llama family, from its ``config.json``. Sizes are of the whole model."""

    path: str
    architecture: str
    dtype: DType
    max_model_len: int
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling
    max_position: int
    tie_word_embeddings: bool
    attention_bias: bool
    mlp_bias: bool
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None


class ParallelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``rank = pp_rank * tensor + tp_rank``: tensor parallel ranks are neighbours."""

    tensor: int = 1
    pipeline: int = 1

    @property
    def world_size(self) -> int:
        return self.tensor * self.pipeline

    @property
    def output_rank(self) -> int:
        """Tensor-parallel rank 0 of the last pipeline stage: the one that samples."""
        return (self.pipeline - 1) * self.tensor


class CacheConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``kv_cache_memory``: bytes for the KV cache on each rank; 0 = what profiling finds."""

    block_size: int = 16
    kv_cache_memory: int = 0
    prefix_caching: bool = True


class SchedulerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    max_queued: int = 256
    chunked_prefill: bool = True


class WakeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``idle_seconds``: a replica woken by a request sleeps again after that; 0 = stays awake.
    ``canary_prompt``: token ids, not empty where ``canary`` is on."""

    on_request: bool = True
    timeout_seconds: float = 300.0
    max_held: int = 256
    idle_seconds: float = 0.0
    level: int = 2
    canary: bool = True
    canary_prompt: tuple[int, ...] = ()
    canary_tokens: int = 8


class RecoveryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Losses tolerated in a sliding window before the replica gives up.

    ``step_timeout``: seconds a step may take at least before its rank counts as hung; profiling
    raises it where the largest batch is slow. ``load_timeout``: the outer deadline of start-up.
    """

    max_restarts: int = 10
    window_seconds: float = 600.0
    backoff_seconds: float = 1.0
    step_timeout: float = 8.0
    load_timeout: float = 1800.0


class EngineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: ModelConfig
    parallel: ParallelConfig = ParallelConfig()
    cache: CacheConfig = CacheConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    wake: WakeConfig = WakeConfig()
    recovery: RecoveryConfig = RecoveryConfig()
    platform: Literal["cpu", "cuda"] = "cpu"
    executor: str | None = None
    runner: Literal["v2", "reference"] = "v2"
    worker_transport: Literal["ipc", "tcp"] = "ipc"
    worker_class: str = "torpor_worker.worker:Worker"


class RankAssignment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one rank is told about its place in the group.

    ``store``: rendezvous, ``file:///path`` on one machine or ``tcp://ip:port`` between pods.
    ``group``: 32 hex digits, the group id, also the prefix of every key in the store.
    """

    rank: int
    local_rank: int
    local_size: int
    group: str
    store: str
    interface: str = ""


class KVCacheSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The KV cache of one rank: ``page_bytes`` is one block over all of the rank's layers."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    dtype: DType
    page_bytes: int


class MemoryReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes. ``resident`` is the process's RSS on a CPU, device memory in use on an accelerator."""

    rank: int
    pid: int
    resident: int
    weights: int
    kv_cache: int
    freed: int = 0
