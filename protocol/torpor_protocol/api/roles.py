"""``spec.engine`` and ``spec.worker``: the two kinds of pods and what is tuned in each."""

from __future__ import annotations

from typing import ClassVar

from torpor_protocol.api.base import setting
from torpor_protocol.api.forms import ResourceName
from torpor_protocol.api.names import MAX_BATCHED_TOKENS, MAX_QUEUE, MAX_SEQUENCES, MAX_WORLD_SIZE
from torpor_protocol.api.pods import PodSettings
from torpor_protocol.api.quantity import MemorySize
from torpor_protocol.api.rules import Rule, value_or


class EngineSpec(PodSettings):
    max_num_seqs: int = setting(
        "Requests that run at the same time.",
        unit="sequences",
        default=64,
        example=256,
        ge=1,
        le=MAX_SEQUENCES,
    )
    max_num_batched_tokens: int = setting(
        "Tokens of one step, over all requests.",
        unit="tokens",
        default=2048,
        example=8192,
        ge=1,
        le=MAX_BATCHED_TOKENS,
    )
    max_queued_requests: int = setting(
        "Requests that may wait; the next one is answered with 429.",
        unit="requests",
        default=256,
        example=1024,
        ge=0,
        le=MAX_QUEUE,
    )
    enable_prefix_caching: bool = setting(
        "Whether equal beginnings of prompts are computed once.",
        unit="true or false",
        default=True,
        example=False,
    )
    enable_chunked_prefill: bool = setting(
        "Whether a long prompt is spread over several steps.",
        unit="true or false",
        default=True,
        example=False,
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "maxNumBatchedTokens",
            f"{value_or('maxNumBatchedTokens', 2048)} >= {value_or('maxNumSeqs', 64)}",
            "must not be less than maxNumSeqs, because each running request needs a token",
            "Raise maxNumBatchedTokens or lower maxNumSeqs.",
            lambda engine: engine.max_num_batched_tokens >= engine.max_num_seqs,
        ),
    )


def _leaves_accelerator(worker: WorkerSpec) -> bool:
    named = {*worker.resources.requests, *worker.resources.limits}
    return worker.accelerator not in named


_ACCELERATOR = value_or("accelerator", "nvidia.com/gpu")


class WorkerSpec(PodSettings):
    accelerator: ResourceName = setting(
        "Device of each rank, as a resource name; none runs the ranks on the CPU.",
        unit="resource name",
        default="nvidia.com/gpu",
        example="none",
    )
    ranks_per_pod: int | None = setting(
        "Ranks in one worker pod; NVLink and shared memory reach only inside a pod.",
        unit="ranks",
        default=None,
        shown="spec.parallelism.tensor",
        example=1,
        ge=1,
        le=MAX_WORLD_SIZE,
    )
    shared_memory: MemorySize = setting(
        "Size limit of /dev/shm of one worker pod; what is used counts against its memory limit.",
        unit="bytes, as a quantity",
        default="2Gi",
        example="8Gi",
    )
    kv_cache_memory: MemorySize | None = setting(
        "Memory of the KV cache on each rank.",
        unit="bytes per rank, as a quantity",
        default=None,
        shown="what a profiling run finds free",
        example="2Gi",
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "resources",
            "!has(self.resources) || "
            f"((!has(self.resources.requests) || !({_ACCELERATOR} in self.resources.requests)) && "
            f"(!has(self.resources.limits) || !({_ACCELERATOR} in self.resources.limits)))",
            "must not name the accelerator, because the operator sets one for each rank",
            "Remove it from resources; accelerator and ranksPerPod say what a pod gets.",
            _leaves_accelerator,
        ),
    )
