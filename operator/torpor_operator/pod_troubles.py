"""What is wrong with a pod: the words of scheduler and kubelet as a reason and two sentences.

Every message is the same at each retry (see ``words``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from torpor_operator import names
from torpor_operator.model import Manifest, Role
from torpor_operator.reasons import TELLING_EXITS, exit_reason
from torpor_operator.words import last_words, pull_cause, scheduler_words, sentence

_PULL_REASONS: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
OOM_KILLED: Final = "OOMKilled"
_MOUNT_WARNINGS: Final = frozenset({"FailedMount", "FailedAttachVolume", "FailedMapVolume"})
_MODEL_VOLUME: Final = "torpor-model"


@dataclass(frozen=True)
class Trouble:
    """Empty when nothing is wrong; a message alone says what the pod waits for."""

    reason: str = ""
    message: str = ""


def role_of(pod: Manifest) -> Role:
    labels = pod["metadata"].get("labels") or {}
    return "worker" if labels.get(names.LABEL_ROLE) == names.WORKER else "engine"


def trouble_of(
    pod: Manifest, container: dict[str, Any], warning: tuple[str, str] | None
) -> Trouble:
    """``container``: the status of the main container, empty while there is none."""
    status = pod.get("status") or {}
    if status.get("phase") in ("Failed", "Succeeded", "Unknown"):
        return _gone(pod, status)
    unscheduled = _unscheduled(pod, status)
    if unscheduled.reason:
        return unscheduled
    state = container.get("state") or {}
    if state.get("waiting"):
        return _waiting(pod, container, state["waiting"], warning)
    if state.get("terminated"):
        return _ended(pod, state["terminated"])
    if state.get("running") is not None:
        return _running(pod, container)
    return _mounting(warning)


def _gone(pod: Manifest, status: Manifest) -> Trouble:
    cause = status.get("reason") or f"phase {status.get('phase')}"
    words = sentence(status.get("message") or "")
    name = pod["metadata"]["name"]
    return Trouble("PodLost", f"The pod {name} is gone ({cause}). {words}".strip())


def _unscheduled(pod: Manifest, status: Manifest) -> Trouble:
    conditions: list[Manifest] = status.get("conditions") or []
    none: Manifest = {}
    scheduled = next((each for each in conditions if each.get("type") == "PodScheduled"), none)
    if scheduled.get("status") != "False":
        return Trouble()
    words = scheduler_words(scheduled.get("message") or "")
    told = f"No node takes the pod {pod['metadata']['name']}: {words}"
    folded = words.lower()
    if "persistentvolumeclaim" in folded:
        return Trouble("VolumeNotFound", f"{told} Create the claim, or correct its name.")
    accelerators = _accelerators(pod)
    lacking = any(f"Insufficient {name}" in words for name in accelerators)
    if accelerators and (lacking or "Insufficient" not in words):
        fix = f"Free or add nodes with {', '.join(accelerators)}."
        return Trouble("InsufficientGPU", f"{told} {fix}")
    return Trouble("Unschedulable", f"{told} Free or add nodes, or ask for less.")


def _accelerators(pod: Manifest) -> list[str]:
    """Extended resources that the pod asks for; they have a domain in their names."""
    limits = [
        (each.get("resources") or {}).get("limits") or {} for each in pod["spec"]["containers"]
    ]
    return sorted({name for limit in limits for name in limit if "/" in name})


def _waiting(
    pod: Manifest,
    container: dict[str, Any],
    waiting: Manifest,
    warning: tuple[str, str] | None,
) -> Trouble:
    reason, message = waiting.get("reason") or "", waiting.get("message") or ""
    if reason in _PULL_REASONS:
        return _pull(pod, message)
    if reason == "CrashLoopBackOff":
        return _ended(pod, (container.get("lastState") or {}).get("terminated") or {})
    if reason in ("CreateContainerConfigError", "CreateContainerError", "RunContainerError"):
        told = f"The container of {pod['metadata']['name']} cannot start: {sentence(message)}"
        if reason != "CreateContainerConfigError":
            return Trouble("CrashLoop", told)
        fix = f" Create it, or correct spec.{role_of(pod)}.env." if _is_missing(message) else ""
        return Trouble("InvalidSpec", f"{told}{fix}")
    return _mounting(warning)


def _pull(pod: Manifest, message: str) -> Trouble:
    model = next(
        (
            volume["image"]["reference"]
            for volume in pod["spec"].get("volumes") or []
            if volume.get("name") == _MODEL_VOLUME and "image" in volume
        ),
        None,
    )
    image = pod["spec"]["containers"][0]["image"]
    cause = pull_cause(message)
    if model is not None and model in message and image not in message:
        kind = "ModelAccessDenied" if "denied" in cause else "ModelNotFound"
        fix = "Push it, or correct spec.model.source."
        return Trouble(kind, f"The model's image {model} cannot be pulled{cause}. {fix}")
    fix = f"Push it, or correct spec.{role_of(pod)}.image."
    return Trouble("ImagePullFailed", f"The image {image} cannot be pulled{cause}. {fix}")


def _mounting(warning: tuple[str, str] | None) -> Trouble:
    reason, message = warning or ("", "")
    if reason in _MOUNT_WARNINGS:
        fix = " Create what is missing, or correct its name." if _is_missing(message) else ""
        return Trouble("VolumeNotFound", f"A volume cannot be mounted: {sentence(message)}{fix}")
    return Trouble("", "The container is being created.")


def _is_missing(message: str) -> bool:
    return "not found" in message or "couldn't find" in message


def _running(pod: Manifest, container: dict[str, Any]) -> Trouble:
    """Between two ends of an engine that cannot start, the cause stays until it is ready. One end
    of unknown cause may be an accident; the second one in a row is not."""
    ended = (container.get("lastState") or {}).get("terminated") or {}
    if container.get("ready") or not ended.get("exitCode"):
        return Trouble()
    if ended["exitCode"] in TELLING_EXITS or container.get("restartCount", 0) > 1:
        return _ended(pod, ended)
    return Trouble()


def _ended(pod: Manifest, ended: dict[str, Any]) -> Trouble:
    name, code = pod["metadata"]["name"], ended.get("exitCode", -1)
    words = last_words(ended.get("message") or "")
    if ended.get("reason") == OOM_KILLED:
        fix = f"Raise the memory limit in spec.{role_of(pod)}.resources."
        return Trouble("OutOfMemory", f"The container of {name} used up its memory limit. {fix}")
    if not words:
        words = "It restarts; its log tells more." if code else "It ended without being asked to."
    told = f"The container of {name} ended with status {code}. {words}"
    return Trouble(exit_reason(code, words), told)
