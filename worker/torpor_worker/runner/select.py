"""Which runner a rank uses, and why. Pure choice; the reason goes into the log and the state."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import NamedTuple

from torpor_worker.runner.interface import Runner, RunnerParts
from torpor_worker.runner.model_runner import ModelRunner
from torpor_worker.runner.reference import ReferenceRunner

RUNNERS: dict[str, Callable[[RunnerParts], Runner]] = {
    "v2": ModelRunner,
    "reference": ReferenceRunner,
}


class RunnerChoice(NamedTuple):
    """``name``: a key of RUNNERS."""

    name: str
    reason: str


def choose_runner(wanted: str, device_type: str, has_triton: bool) -> RunnerChoice:
    """``wanted``: the configuration's; an accelerator needs Triton for more than the reference."""
    if wanted == "reference":
        return RunnerChoice("reference", "the configuration asks for it")
    if device_type != "cpu" and not has_triton:
        return RunnerChoice("reference", f"Triton is missing, which v2 needs on {device_type}")
    return RunnerChoice("v2", "nothing speaks against it")


def triton_installed() -> bool:
    return importlib.util.find_spec("triton") is not None


def make_runner(name: str, parts: RunnerParts) -> Runner:
    return RUNNERS[name](parts)
