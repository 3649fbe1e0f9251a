"""Which functions of the product make up which phase of a step.

The one place that knows them by name; a name that is gone is an error of the benchmark, not a row
that silently stays at zero.
"""

from __future__ import annotations

from typing import Any

from benchmarks.timers import PhaseOf, Timers

ENGINE: dict[str, str] = {
    "torpor_engine.core.loop:Core._turn": "loop",
    "torpor_engine.core.loop:Core.take_messages": "take messages",
    "torpor_engine.core.loop:Core.publish": "state",
    "torpor_engine.scheduler:Scheduler.schedule": "schedule",
    "torpor_engine.scheduler:Scheduler.update": "update",
    "torpor_engine.executor:Executor.step": "executor",
    "torpor_engine.core.publisher:Publisher.outputs": "publish",
}

WORKER: dict[str, str] = {
    "torpor_worker.worker:Worker.execute_model": "worker",
    "torpor_worker.runner.model_runner:check_step": "check step",
    "torpor_worker.runner.model_runner:ModelRunner._apply_differences": "apply differences",
    "torpor_worker.runner.model_runner:prepare_inputs": "prepare inputs",
    "torpor_worker.attention.cpu_paged:CpuPagedAttention.plan": "plan attention",
    "torpor_worker.runner.model_runner:ModelRunner._forward": "forward",
    "torpor_worker.models.llama:LlamaForCausalLM.compute_logits": "logits",
    "torpor_worker.sampling.sampler:Sampler.sample": "sample",
    "torpor_worker.runner.states:RequestStates.append_tokens": "append tokens",
}


def _row_parallel(layer: Any, *_: Any) -> str:
    return "o" if layer.prefix.endswith("o_proj") else "down"


LAYERS: dict[str, str | PhaseOf] = {
    "torpor_worker.layers.vocab:VocabParallelEmbedding.forward": "embedding",
    "torpor_worker.layers.rotary:RotaryEmbedding.forward": "rotary",
    "torpor_worker.models.llama:rotate": "rotary",
    "torpor_worker.layers.norm:RMSNorm.forward": "norms",
    "torpor_worker.layers.linear:QKVParallelLinear.forward": "qkv",
    "torpor_worker.attention.cpu_paged:CpuRun.__call__": "attention",
    "torpor_worker.layers.linear:RowParallelLinear.forward": _row_parallel,
    "torpor_worker.layers.linear:MergedColumnParallelLinear.forward": "gate and up",
    "torpor_worker.models.llama:silu_and_mul": "activation",
}

# Rows of the tables, in the order of a step.
ENGINE_ORDER = ("take messages", "state", "schedule", "executor", "update", "publish", "loop")
WORKER_ORDER = (
    "check step",
    "apply differences",
    "prepare inputs",
    "plan attention",
    "embedding",
    "norms",
    "qkv",
    "rotary",
    "attention",
    "o",
    "gate and up",
    "activation",
    "down",
    "forward",
    "logits",
    "sample",
    "append tokens",
    "worker",
)


def time_engine(timers: Timers) -> None:
    for place, phase in ENGINE.items():
        timers.wrap(place, phase)


def time_worker(timers: Timers, layers: bool) -> None:
    """``layers``: the parts of the forward pass too."""
    for place, phase in WORKER.items():
        timers.wrap(place, phase)
    if layers:
        for place, layer_phase in LAYERS.items():
            timers.wrap(place, layer_phase)
