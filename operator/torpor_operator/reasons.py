"""From others' codes and words to the closed list of reasons of a condition."""

from __future__ import annotations

from typing import Final, get_args

from torpor_protocol.api import Reason
from torpor_protocol.errors import (
    ConfigError,
    EngineDead,
    GroupLost,
    MemoryBudgetError,
    ModelError,
    PortError,
)

REASONS: Final[frozenset[str]] = frozenset(get_args(get_args(Reason)[0]))

# Something broke; the other reasons are steps of a start, or what it waits for.
FAULTS: Final = frozenset(
    {
        "OutOfMemory",
        "RankLost",
        "RankFailed",
        "PodLost",
        "EngineStalled",
        "WakeFailed",
        "SleepFailed",
        "CrashLoop",
    }
)
# Nothing moves until the user, the cluster or a kubelet's next attempt changes something.
BLOCKING: Final = frozenset(
    {
        "InsufficientGPU",
        "Unschedulable",
        "ImagePullFailed",
        "VolumeNotFound",
        "InvalidSpec",
        "ModelNotFound",
        "ModelAccessDenied",
        "ModelUnsupported",
        "WeightsCorrupt",
        "KVCacheDoesNotFit",
        "OutOfMemory",
        "CrashLoop",
    }
)

# Worth a warning; the others are steps on the way.
PROBLEMS: Final = BLOCKING | FAULTS | {"NameTaken", "QuotaExceeded", "ProgressDeadlineExceeded"}

EXIT_SETTINGS: Final = ConfigError.exit_code
EXIT_MODEL: Final = ModelError.exit_code
EXIT_PORT: Final = PortError.exit_code
EXIT_MEMORY: Final = MemoryBudgetError.exit_code
EXIT_WORKERS: Final = GroupLost.exit_code
EXIT_CORE: Final = EngineDead.exit_code
# An engine that ended so tells a cause that stays until something is changed.
TELLING_EXITS: Final = frozenset(
    {EXIT_SETTINGS, EXIT_MODEL, EXIT_PORT, EXIT_MEMORY, EXIT_WORKERS, EXIT_CORE}
)

_ENGINE_REASONS: Final = {
    "PeerGone": "RankLost",
    "SupervisorLost": "PodLost",
    "RankStalled": "EngineStalled",
    "DeadlineMissed": "EngineStalled",
    "NoOutput": "RankFailed",
    "WireError": "RankFailed",
    "GroupLost": "RankLost",
    "WorldSize": "GroupForming",
    "ConfigError": "InvalidSpec",
    "PortError": "CrashLoop",
    "RecoveryExhausted": "RankLost",
    "EngineDead": "CrashLoop",
}
_MODEL_WORDS: Final = (
    (("permission", "denied", "unauthorized"), "ModelAccessDenied"),
    (("not supported", "unsupported", "gguf", "pickle"), "ModelUnsupported"),
    (("digest", "damaged", "cannot be read", "corrupt", "lacks", "has shape"), "WeightsCorrupt"),
)


def engine_reason(reason: str, message: str, otherwise: str) -> str:
    """The engine's word for a loss or a failure; ``otherwise`` where it is not known here."""
    if reason in REASONS:
        return reason
    if reason == "ModelError":
        return model_reason(message)
    if reason == "MemoryBudgetError":
        return memory_reason(message)
    return _ENGINE_REASONS.get(reason, otherwise)


def exit_reason(code: int, message: str) -> str:
    """Why a container ended with ``code``; ``message`` is the end of its log."""
    if code == EXIT_SETTINGS:
        return "InvalidSpec"
    if code == EXIT_MODEL:
        return model_reason(message)
    if code == EXIT_MEMORY:
        return memory_reason(message)
    return "RankLost" if code == EXIT_WORKERS else "CrashLoop"


def model_reason(message: str) -> str:
    folded = message.lower()
    for marks, reason in _MODEL_WORDS:
        if any(mark in folded for mark in marks):
            return reason
    return "ModelNotFound"


def memory_reason(message: str) -> str:
    return "KVCacheDoesNotFit" if "kv cache" in message.lower() else "OutOfMemory"
