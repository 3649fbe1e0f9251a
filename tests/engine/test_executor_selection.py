"""Which executor runs what: one row per case."""

from __future__ import annotations

import msgspec
import pytest

from engine_builders import engine_config
from torpor_engine.executor import executor_class, select_executor
from torpor_protocol.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "tensor", "pipeline", "expected"),
    [
        (None, 1, 1, "uni"),
        (None, 2, 1, "mp"),
        (None, 1, 2, "mp"),
        ("mp", 1, 1, "mp"),
        ("kubernetes", 1, 1, "kubernetes"),
        ("kubernetes", 2, 2, "kubernetes"),
        ("uni", 1, 1, "uni"),
        ("package.module.Class", 4, 1, "package.module.Class"),
        ("package.module:Class", 1, 1, "package.module:Class"),
    ],
)
def test_choice(name: str | None, tensor: int, pipeline: int, expected: str) -> None:
    config = engine_config(executor=name, tensor=tensor, pipeline=pipeline)
    choice = select_executor(config)
    assert choice.name == expected
    assert choice.reason


def test_a_dotted_path_and_a_colon_name_the_same_class() -> None:
    dotted = select_executor(engine_config(executor="torpor_engine.executor.mp.MpExecutor"))
    colon = select_executor(engine_config(executor="torpor_engine.executor.mp:MpExecutor"))
    assert dotted.target == colon.target
    assert executor_class(dotted) is executor_class(select_executor(engine_config(executor="mp")))


@pytest.mark.parametrize(
    ("name", "tensor", "cause"),
    [("uni", 2, "tensor x pipeline is 2"), ("nothing", 1, "no executor 'nothing'")],
)
def test_refusals_name_cause_and_fix(name: str, tensor: int, cause: str) -> None:
    with pytest.raises(ConfigError, match=cause) as refused:
        select_executor(engine_config(executor=name, tensor=tensor))
    assert refused.value.fix


@pytest.mark.parametrize("path", ["no.such:Thing", "msgspec:Struct", "torpor_engine.executor:no"])
def test_a_path_that_is_no_executor_is_refused(path: str) -> None:
    assert msgspec.Struct is not None
    with pytest.raises(ConfigError) as refused:
        executor_class(select_executor(engine_config(executor=path)))
    assert refused.value.fix
