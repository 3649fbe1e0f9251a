"""From a manifest (or a model folder) and flags to the resolved configuration: one pure function.

Flags win over the manifest, the manifest over defaults. The result is what every process of the
replica is told; nothing reads the manifest after this.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from torpor_engine.executor.selection import select_executor
from torpor_engine.model_folder import read_model_config
from torpor_engine.parallelism import check_parallel
from torpor_protocol.api import InferenceDeployment, InferenceDeploymentSpec, parse_quantity
from torpor_protocol.config import (
    CacheConfig,
    EngineConfig,
    ParallelConfig,
    RecoveryConfig,
    SchedulerConfig,
    WakeConfig,
)
from torpor_protocol.errors import ConfigError
from torpor_protocol.manifest import load_manifest

MANIFEST_SUFFIXES = (".yaml", ".yml", ".json")


class Flags(msgspec.Struct, frozen=True):
    """What the command line may set; None = not given."""

    tensor: int | None = None
    pipeline: int | None = None
    dtype: str | None = None
    max_model_len: int | None = None
    kv_cache_memory: str | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    served_model_names: tuple[str, ...] = ()
    executor: str | None = None
    runner: str | None = None
    platform: str | None = None
    worker_transport: str | None = None


class Resolved(msgspec.Struct, frozen=True):
    """``drain_seconds``: how long a stop waits for requests. ``canary``: the prompt's text; whoever
    has the tokenizer puts its tokens into the configuration."""

    config: EngineConfig
    canary: str
    served_names: tuple[str, ...]
    drain_seconds: float


def resolve(target: str, flags: Flags) -> Resolved:
    """``target``: a manifest file or a model folder. Raises ConfigError or ModelError."""
    path = Path(target)
    is_manifest = path.suffix in MANIFEST_SUFFIXES
    deployment = load_manifest(path) if is_manifest else _bare_deployment(path)
    folder = model_folder(deployment.spec.model.source)
    return _resolve_spec(deployment.spec, flags, folder)


def resolve_pod(deployment: InferenceDeployment, folder: Path) -> Resolved:
    """What an engine pod runs: the resource alone, the model where it is mounted.

    Raises ConfigError or ModelError."""
    flags = Flags(executor="kubernetes", worker_transport="tcp")
    return _resolve_spec(deployment.spec, flags, folder)


def _bare_deployment(folder: Path) -> InferenceDeployment:
    return InferenceDeployment.model_validate(
        {
            "apiVersion": "torpor.dev/v1alpha1",
            "kind": "InferenceDeployment",
            "metadata": {"name": "local"},
            "spec": {
                "model": {"source": f"file://{folder.resolve()}"},
                "worker": {"accelerator": "none"},
            },
        }
    )


def _resolve_spec(spec: InferenceDeploymentSpec, flags: Flags, folder: Path) -> Resolved:
    length = flags.max_model_len
    if length is None and spec.model.max_model_len != "auto":
        length = int(spec.model.max_model_len)
    model = read_model_config(folder, flags.dtype or spec.model.dtype, length)
    parallel = ParallelConfig(
        tensor=flags.tensor or spec.parallelism.tensor,
        pipeline=flags.pipeline or spec.parallelism.pipeline,
    )
    check_parallel(model, parallel)
    config = EngineConfig(
        model=model,
        parallel=parallel,
        cache=_cache(spec, flags),
        scheduler=_scheduler(spec, flags, model.max_model_len),
        wake=_wake(spec),
        recovery=_recovery(spec),
        platform="cpu" if spec.worker.accelerator == "none" else "cuda",
        executor=flags.executor,
    )
    overrides = {
        key: value
        for key in ("runner", "platform", "worker_transport")
        if (value := getattr(flags, key)) is not None
    }
    config = _checked(msgspec.structs.replace(config, **overrides))
    select_executor(config)
    names = flags.served_model_names or tuple(spec.model.names)
    return Resolved(config, spec.wake.canary.prompt, names, float(spec.drain_timeout_seconds))


def _checked(config: EngineConfig) -> EngineConfig:
    """Flags with a closed set of values are checked by the struct's own types."""
    try:
        return msgspec.convert(msgspec.to_builtins(config), EngineConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"A setting has no such value: {error}.", "See torpor serve --help."
        ) from (None)


def model_folder(source: str) -> Path:
    """The folder of a ``file://`` source. Other sources need a cluster."""
    scheme, _, rest = source.partition("://")
    if scheme != "file":
        raise ConfigError(
            f"The model source {source} cannot be opened on this machine.",
            "Use file:///path with torpor serve; other sources are mounted by the operator.",
        )
    return Path(rest)


def _cache(spec: InferenceDeploymentSpec, flags: Flags) -> CacheConfig:
    memory = flags.kv_cache_memory or spec.worker.kv_cache_memory
    try:
        size = parse_quantity(memory) if memory else 0
    except ValueError:
        raise ConfigError(
            f"--kv-cache-memory {memory!r} is not an amount of memory.",
            "Use bytes or a quantity such as 512Mi or 2Gi.",
        ) from None
    return CacheConfig(kv_cache_memory=size, prefix_caching=spec.engine.enable_prefix_caching)


def _scheduler(spec: InferenceDeploymentSpec, flags: Flags, max_len: int) -> SchedulerConfig:
    seqs = flags.max_num_seqs or spec.engine.max_num_seqs
    tokens = flags.max_num_batched_tokens or spec.engine.max_num_batched_tokens
    if tokens < seqs:
        raise ConfigError(
            f"A step of {tokens} tokens cannot hold one token of {seqs} sequences.",
            "Use a --max-num-batched-tokens of at least --max-num-seqs.",
        )
    chunked = spec.engine.enable_chunked_prefill
    if not chunked and tokens < max_len:
        raise ConfigError(
            f"Without chunked prefill {max_len} prompt tokens do not fit a step of {tokens}.",
            f"Set maxNumBatchedTokens to {max_len} or more, or leave chunked prefill on.",
        )
    return SchedulerConfig(
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        max_queued=spec.engine.max_queued_requests,
        chunked_prefill=chunked,
    )


def _wake(spec: InferenceDeploymentSpec) -> WakeConfig:
    return WakeConfig(
        on_request=spec.wake.on_request,
        timeout_seconds=float(spec.wake.timeout_seconds),
        max_held=spec.wake.max_held_requests,
        idle_seconds=float(spec.wake.idle_seconds),
        level=spec.standby.level,
        canary=spec.wake.canary.enabled,
        canary_tokens=spec.wake.canary.max_tokens,
    )


def _recovery(spec: InferenceDeploymentSpec) -> RecoveryConfig:
    return RecoveryConfig(
        max_restarts=spec.recovery.max_restarts,
        window_seconds=float(spec.recovery.window_seconds),
        backoff_seconds=float(spec.recovery.backoff_seconds),
        load_timeout=float(spec.progress_deadline_seconds),
    )
