"""``spec``: everything that the user wants. Rules that span several parts are here."""

from __future__ import annotations

from typing import ClassVar

from torpor_protocol.api.base import ApiModel, setting
from torpor_protocol.api.lifecycle import RecoverySpec, RolloutSpec, WakeSpec
from torpor_protocol.api.model import ModelSpec
from torpor_protocol.api.names import HOUR, MAX_REPLICAS, MAX_WORLD_SIZE
from torpor_protocol.api.roles import EngineSpec, WorkerSpec
from torpor_protocol.api.rules import Rule, value_or
from torpor_protocol.api.scaling import AutoscalingSpec, StandbySpec


class ParallelismSpec(ApiModel):
    tensor: int = setting(
        "Ranks that share each layer; it must divide the heads of the model.",
        unit="ranks",
        default=1,
        example=2,
        ge=1,
        le=MAX_WORLD_SIZE,
    )
    pipeline: int = setting(
        "Stages that the layers are divided into.",
        unit="stages",
        default=1,
        example=2,
        ge=1,
        le=MAX_WORLD_SIZE,
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "tensor",
            f"{value_or('tensor', 1)} * {value_or('pipeline', 1)} <= {MAX_WORLD_SIZE}",
            f"times pipeline must not exceed {MAX_WORLD_SIZE} ranks",
            "Lower tensor or pipeline.",
            lambda parallelism: parallelism.world_size <= MAX_WORLD_SIZE,
        ),
    )

    @property
    def world_size(self) -> int:
        return self.tensor * self.pipeline


_TENSOR = value_or("parallelism.tensor", 1)
_PIPELINE = value_or("parallelism.pipeline", 1)


def _budget_holds_prompt(spec: InferenceDeploymentSpec) -> bool:
    longest = spec.model.max_model_len
    if spec.engine.enable_chunked_prefill or isinstance(longest, str):
        return True
    return spec.engine.max_num_batched_tokens >= longest


class InferenceDeploymentSpec(ApiModel):
    model: ModelSpec = setting(
        "The model that is served.", unit="object", example={"source": "file:///models/smollm2"}
    )
    parallelism: ParallelismSpec = setting(
        "How a replica is divided into ranks.",
        unit="object",
        factory=ParallelismSpec,
        example={"tensor": 2},
    )
    replicas: int | None = setting(
        "Awake replicas that are wanted. kubectl scale, an HPA or KEDA write this field and so put "
        "replicas to sleep and wake them; an HPA needs it to be present.",
        unit="replicas",
        default=None,
        shown="1, or what autoscaling decides where that is set",
        example=2,
        ge=0,
        le=MAX_REPLICAS,
    )
    standby: StandbySpec = setting(
        "Sleeping replicas beside the awake ones.",
        unit="object",
        factory=StandbySpec,
        example={"maxReplicas": 1, "level": 2},
    )
    autoscaling: AutoscalingSpec | None = setting(
        "Built-in scaling by load, instead of replicas. Not supported by this version.",
        unit="object",
        default=None,
        shown="absent, replicas decides",
        example={"maxReplicas": 4},
    )
    wake: WakeSpec = setting(
        "What happens to requests while every replica sleeps.",
        unit="object",
        factory=WakeSpec,
        example={"idleSeconds": 60},
    )
    engine: EngineSpec = setting(
        "Engine pods: API, scheduler and their tuning.",
        unit="object",
        factory=EngineSpec,
        example={"maxNumSeqs": 256},
    )
    worker: WorkerSpec = setting(
        "Worker pods: the ranks of the model.",
        unit="object",
        factory=WorkerSpec,
        example={"accelerator": "none"},
    )
    rollout: RolloutSpec = setting(
        "How a new revision replaces the old one.",
        unit="object",
        factory=RolloutSpec,
        example={"maxUnavailable": 1},
    )
    recovery: RecoverySpec = setting(
        "How often a replica may fail before it is given up.",
        unit="object",
        factory=RecoverySpec,
        example={"maxRestarts": 3},
    )
    progress_deadline_seconds: int = setting(
        "Time without progress after which a start counts as failed.",
        unit="seconds",
        default=1800,
        example=3600,
        ge=10,
        le=24 * HOUR,
    )
    drain_timeout_seconds: int = setting(
        "How long running requests may go on before their replica sleeps or ends.",
        unit="seconds",
        default=60,
        example=300,
        ge=0,
        le=HOUR,
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "replicas",
            "!has(self.replicas) || !has(self.autoscaling)",
            "must be absent where autoscaling is set",
            "Keep replicas or autoscaling, not both.",
            lambda spec: spec.replicas is None or spec.autoscaling is None,
        ),
        Rule(
            "worker.ranksPerPod",
            "!has(self.worker) || !has(self.worker.ranksPerPod) || "
            f"({_TENSOR} * {_PIPELINE}) % self.worker.ranksPerPod == 0",
            "must divide parallelism.tensor times parallelism.pipeline",
            "Use a number of ranks that fills every pod.",
            lambda spec: spec.parallelism.world_size % spec.ranks_per_pod == 0,
        ),
        Rule(
            "engine.maxNumBatchedTokens",
            f"{value_or('engine.enableChunkedPrefill', True)} || !has(self.model.maxModelLen) || "
            "type(self.model.maxModelLen) == string || "
            f"{value_or('engine.maxNumBatchedTokens', 2048)} >= self.model.maxModelLen",
            "must not be less than model.maxModelLen while chunked prefill is off",
            "Raise maxNumBatchedTokens, lower maxModelLen or leave enableChunkedPrefill on.",
            _budget_holds_prompt,
        ),
    )

    @property
    def ranks_per_pod(self) -> int:
        return self.worker.ranks_per_pod or self.parallelism.tensor
