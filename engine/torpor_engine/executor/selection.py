"""Which executor runs a configuration: a pure function, so that each row of it is a test."""

from __future__ import annotations

import importlib
from typing import NamedTuple

from torpor_engine.executor.base import Executor
from torpor_protocol.config import EngineConfig
from torpor_protocol.errors import ConfigError

BUILT_IN = {
    "uni": "torpor_engine.executor.uni:UniExecutor",
    "mp": "torpor_engine.executor.mp:MpExecutor",
    "kubernetes": "torpor_engine.executor.kubernetes:KubernetesExecutor",
}


class Choice(NamedTuple):
    """``target``: "module:Class". ``reason``: why, for the log."""

    name: str
    target: str
    reason: str


def select_executor(config: EngineConfig) -> Choice:
    """Raises ConfigError when the named executor cannot run this world size or is unknown."""
    world = config.parallel.world_size
    name = config.executor
    if name is None:
        if world == 1:
            return Choice("uni", BUILT_IN["uni"], "one rank needs no other process")
        return Choice("mp", BUILT_IN["mp"], f"{world} ranks need a process each")
    if name == "uni" and world != 1:
        raise ConfigError(
            f"Executor uni holds one rank, but tensor x pipeline is {world}.",
            "Use executor mp, or tensor and pipeline 1.",
        )
    if name in BUILT_IN:
        return Choice(name, BUILT_IN[name], "asked for by name")
    if ":" in name or "." in name:
        target = name if ":" in name else ":".join(name.rsplit(".", 1))
        return Choice(name, target, "asked for by path")
    raise ConfigError(
        f"There is no executor {name!r}.",
        f"Use one of {', '.join(BUILT_IN)} or a path such as package.module:Class.",
    )


def executor_class(choice: Choice) -> type[Executor]:
    """Import the chosen class. Raises ConfigError when it is not an Executor."""
    module, _, attribute = choice.target.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"Executor {choice.name!r} cannot be imported: {error}.",
            "Give a path such as package.module:Class that this Python can import.",
        ) from error
    if not (isinstance(found, type) and issubclass(found, Executor)):
        raise ConfigError(
            f"{choice.target} is not an executor class.",
            "Derive it from torpor_engine.executor.Executor.",
        )
    return found
