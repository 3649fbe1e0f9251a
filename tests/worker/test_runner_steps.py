"""What a step costs the host, what it refuses, and what it leaves alone when it refuses."""

from __future__ import annotations

import ast
import collections
import copy
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from runner_cases import BLOCKS, BUDGET, ROWS, loaded_model, maker_of, runner_of, small_config
from step_maker import StepMaker, greedy, run_step
from torpor_protocol.arrays import pack_i32, unpack_i32
from torpor_protocol.config import EngineConfig
from torpor_protocol.errors import TorporError
from torpor_protocol.requests import SamplingParams
from torpor_protocol.steps import NewRequest, SchedulerOutput
from torpor_worker.models.base import ShardedModel
from torpor_worker.runner import model_runner
from torpor_worker.runner.model_runner import ModelRunner

PROMPT = [5, 6, 7, 8, 9, 10]


@pytest.fixture(scope="module")
def config(tiny_llama: Path) -> EngineConfig:
    return small_config(tiny_llama)


@pytest.fixture(scope="module")
def model(config: EngineConfig) -> ShardedModel:
    return loaded_model(config)


@pytest.fixture
def runner(config: EngineConfig, model: ShardedModel) -> ModelRunner:
    made = runner_of(config, model)
    assert isinstance(made, ModelRunner)
    return made


@pytest.fixture
def maker(config: EngineConfig) -> StepMaker:
    return maker_of(config)


# Waiting for the device

WAITING_METHODS = (
    "item",
    "tolist",
    "cpu",
    "numpy",
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
)
WAITING_OPS = ("_local_scalar_dense", "nonzero", "is_nonzero", "masked_select", "unique", "equal")


class WaitingOps(TorchDispatchMode):
    """Counts operations whose result's shape or value the host must know."""

    def __init__(self, counts: collections.Counter[str]) -> None:
        super().__init__()
        self._counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        indices = args[1] if name in ("index", "index_put", "index_put_") else ()
        masked = any(i is not None and i.dtype == torch.bool for i in indices)
        if masked or name.startswith(WAITING_OPS):
            self._counts[name] += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def counted_waits() -> Iterator[collections.Counter[str]]:
    counts: collections.Counter[str] = collections.Counter()

    def counting(name: str) -> Any:
        original = getattr(torch.Tensor, name)

        def method(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return original(self, *args, **kwargs)

        return method

    with pytest.MonkeyPatch.context() as patch, WaitingOps(counts):
        for name in WAITING_METHODS:
            patch.setattr(torch.Tensor, name, counting(name))
        yield counts


SAMPLINGS = {
    "greedy": greedy(100),
    "random": greedy(100, temperature=1.0),
    "filtered": greedy(100, temperature=1.0, top_k=9, top_p=0.8, min_p=0.01),
    "nucleus": greedy(100, temperature=1.0, top_p=0.8, min_p=0.01),
    "processed": greedy(100, logit_bias={3: 1.0}, presence_penalty=0.4, min_tokens=2, logprobs=3),
}


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_step_waits_once(runner: ModelRunner, maker: StepMaker, sampling: str) -> None:
    """For its tokens, whatever else is asked of it."""
    first = maker.join(PROMPT, SAMPLINGS[sampling])
    other = maker.join(PROMPT * 3, greedy(100))
    steps: list[Mapping[int, int]] = [
        {first.row: 6, other.row: 5},
        {first.row: 1, other.row: 13},
        {first.row: 1, other.row: 1},
    ]
    for counts in steps:
        message = maker.step(counts)
        with counted_waits() as waits:
            runner.execute_model(message)
            assert not waits
            output = runner.sample_tokens()
        assert waits == {"numpy": 1}
        assert output is not None
        maker.take(output)


def test_the_counter_counts() -> None:
    with counted_waits() as waits:
        tensor = torch.arange(3)
        tensor[tensor > 1].tolist()
        tensor.max().item()
    assert waits["tolist"] == waits["item"] == 1
    assert waits["index"] + waits["nonzero"] >= 1
    assert waits["_local_scalar_dense"] >= 1


def test_a_step_with_nothing_to_sample_does_not_wait(runner: ModelRunner, maker: StepMaker) -> None:
    row = maker.join(PROMPT, greedy(1)).row
    with counted_waits() as waits:
        runner.execute_model(maker.step({row: 4}))
        output = runner.sample_tokens()
    assert not waits
    assert output is not None and output.rows == output.tokens == b""


def test_decoding_calls_no_request_code(
    runner: ModelRunner, maker: StepMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of Python calls of a decode step does not depend on the number of rows."""
    import sys

    rows = [maker.join(PROMPT, greedy(100)).row for _ in range(ROWS)]
    for row in rows:
        run_step(runner, maker, {row: len(PROMPT)})
    calls: list[int] = []
    for chosen in (rows[:1], rows):
        message = maker.step(dict.fromkeys(chosen, 1))
        count = 0

        def note(*_: Any) -> None:
            nonlocal count
            count += 1

        sys.setprofile(note)
        runner.execute_model(message)
        output = runner.sample_tokens()
        sys.setprofile(None)
        calls.append(count)
        assert output is not None
        maker.take(output)
    assert calls[0] == calls[1]


def test_the_style_contract_holds() -> None:
    source = inspect.getsource(model_runner)
    assert len(source.splitlines()) <= 200
    loops = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.For | ast.While)]
    assert len(loops) == 1  # over requests that join
    waits = [name for name in (".item(", ".tolist(", ".cpu(", ".numpy(") if name in source]
    assert not waits


# Refusals


def message(**changes: Any) -> SchedulerOutput:
    """A step over row 0 and row 1, which are at generation 1 and have one token to compute."""
    arrays = {
        "rows": [0, 1],
        "generations": [1, 1],
        "num_tokens": [1, 1],
        "block_rows": [],
        "block_counts": [],
        "block_ids": [],
        "finished": [],
    }
    fields = {name: pack_i32(changes.pop(name, value)) for name, value in arrays.items()}
    total = changes.pop("total_tokens", int(unpack_i32(fields["num_tokens"]).sum()))
    return SchedulerOutput(step=9, new=changes.pop("new", []), total_tokens=total, **fields)


def newcomer(**changes: Any) -> NewRequest:
    fields: dict[str, Any] = {
        "row": 2,
        "generation": 1,
        "prompt_len": 3,
        "num_computed": 0,
        "tokens": pack_i32([1, 2, 3]),
        "blocks": pack_i32([50]),
        "sampling": greedy(5),
    }
    return NewRequest(**(fields | changes))


REFUSED = {
    "a free row is scheduled": message(rows=[0, 2]),
    "a row that does not exist": message(rows=[0, ROWS]),
    "a negative row": message(rows=[-1, 0]),
    "an old generation": message(generations=[1, 0]),
    "a generation to come": message(generations=[2, 1]),
    "a row twice": message(rows=[0, 0]),
    "more tokens than it has": message(num_tokens=[1, 2]),
    "no tokens": message(num_tokens=[0, 1]),
    "decodes behind": message(num_tokens=[2, 1]),
    "arrays of different lengths": message(generations=[1]),
    "a wrong total": message(total_tokens=3),
    "over the budget": message(num_tokens=[BUDGET, BUDGET]),
    "a free row ends": message(finished=[3]),
    "a row ends twice": message(finished=[0, 0]),
    "rows end out of order": message(finished=[1, 0]),
    "a row ends and is scheduled": message(finished=[0]),
    "blocks for a free row": message(block_rows=[3], block_counts=[1], block_ids=[9]),
    "blocks do not add up": message(block_rows=[0], block_counts=[2], block_ids=[9]),
    "the null block": message(block_rows=[0], block_counts=[1], block_ids=[0]),
    "a block outside": message(block_rows=[0], block_counts=[1], block_ids=[BLOCKS]),
    "too many blocks": message(
        block_rows=[0] * 40, block_counts=[1] * 40, block_ids=list(range(1, 41))
    ),
    "a taken row is filled": message(new=[newcomer(row=1, generation=9)]),
    "a new request of an old generation": message(finished=[1], new=[newcomer(row=1)]),
    "an empty request": message(new=[newcomer(tokens=b"", prompt_len=0)]),
    "a prompt longer than the tokens": message(new=[newcomer(prompt_len=4)]),
    "all computed": message(new=[newcomer(num_computed=3)]),
    "a token outside the vocabulary": message(new=[newcomer(tokens=pack_i32([1, 2, 1024]))]),
    "a new request with a wild block": message(new=[newcomer(blocks=pack_i32([BLOCKS]))]),
    "two new requests on one row": message(new=[newcomer(), newcomer(generation=2)]),
    "a new request without room": message(
        new=[newcomer(blocks=b"")],
        rows=[0, 1, 2],
        generations=[1, 1, 1],
        num_tokens=[1, 1, 3],
    ),
    "a broken array": msgspec.structs.replace(message(), rows=b"abc"),
}


def snapshot(runner: ModelRunner) -> dict[str, Any]:
    """Everything that a refused step must leave alone."""
    kept = {
        name: copy.deepcopy(value)
        for name, value in vars(runner.states).items()
        if isinstance(value, np.ndarray)
    }
    for name in ("token_ids", "last_token", "block_table"):
        staged = getattr(runner.states, name)
        kept[name] = staged.tensor.numpy().copy()
        kept[f"{name} staged"] = len(staged._content)
    kept["uses"] = runner.sampler._uses.copy()
    return kept


@pytest.mark.parametrize("case", REFUSED)
def test_a_step_that_does_not_fit_changes_nothing(
    runner: ModelRunner, maker: StepMaker, case: str
) -> None:
    for _ in range(2):
        run_step(runner, maker, {maker.join(PROMPT, greedy(9)).row: len(PROMPT)})
    before = snapshot(runner)
    with pytest.raises(TorporError) as refused:
        runner.execute_model(REFUSED[case])
    assert refused.value.cause.endswith(".")
    after = snapshot(runner)
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert np.array_equal(value, after[name]), name
    run_step(runner, maker, {0: 1, 1: 1})


def test_halves_alternate(runner: ModelRunner, maker: StepMaker) -> None:
    with pytest.raises(TorporError, match="no step"):
        runner.sample_tokens()
    row = maker.join(PROMPT, greedy(9)).row
    runner.execute_model(maker.step({row: 4}))
    with pytest.raises(TorporError, match="not been sampled"):
        runner.execute_model(maker.step({row: 2}))


# Rows


def test_a_row_that_is_used_again_starts_clean(
    config: EngineConfig, model: ShardedModel, maker: StepMaker
) -> None:
    """Its tokens equal those of the same request on a runner that has seen nothing."""
    busy = SamplingParams(
        max_tokens=9, seed=3, temperature=1.0, top_k=5, logprobs=2, presence_penalty=0.5
    )
    used, fresh = runner_of(config, model), runner_of(config, model)
    first = maker.join([9] * 30, busy)
    run_step(used, maker, {first.row: 30})
    for _ in range(5):
        run_step(used, maker, {first.row: 1})
    maker.leave(first)
    outputs = []
    for runner, books in ((used, maker), (fresh, maker_of(config))):
        again = books.join(PROMPT, greedy(9))
        while again.row != first.row and books is maker:
            books.leave(again)
            again = books.join(PROMPT, greedy(9))
        run_step(runner, books, {again.row: len(PROMPT)})
        for _ in range(6):
            run_step(runner, books, {again.row: 1})
        outputs.append((again.output, again.logprobs))
    assert outputs[0] == outputs[1]


def test_one_row_may_grow_by_many_blocks_at_once(runner: ModelRunner, maker: StepMaker) -> None:
    """Named once for each block, among other rows."""
    long, short = maker.join(list(range(40)), greedy(9)), maker.join([7], greedy(9))
    run_step(runner, maker, {long.row: 2, short.row: 1})
    run_step(runner, maker, {long.row: 38, short.row: 1})
    table = runner.states.block_table.tensor
    for request in (long, short):
        assert table[request.row, : len(request.blocks)].tolist() == request.blocks
        assert runner.states.num_blocks[request.row] == len(request.blocks)
    assert runner.states.token_ids.tensor[long.row, :41].tolist() == long.tokens


def test_a_message_does_not_grow_with_known_prompts(maker: StepMaker) -> None:
    sizes = []
    for length in (8, 120):
        row = maker.join([1] * length, greedy(9)).row
        maker.step({row: length})
        maker.running[row].tokens.append(1)
        sizes.append(len(msgspec.msgpack.encode(maker.step({row: 1}))))
    assert max(sizes) - min(sizes) < 12  # at most one block id


def test_a_full_row_may_sample_its_last_token(
    config: EngineConfig, runner: ModelRunner, maker: StepMaker
) -> None:
    length = config.model.max_model_len
    request = maker.join([3] * length, greedy(1))
    for count in (BUDGET, BUDGET, length - 2 * BUDGET):
        run_step(runner, maker, {request.row: count})
    assert len(request.output) == 1


def test_reset_frees_rows_and_forgets_generations(
    config: EngineConfig, runner: ModelRunner, maker: StepMaker
) -> None:
    row = maker.join(PROMPT, greedy(9)).row
    runner.execute_model(maker.step({row: 6}))
    runner.reset()
    books = maker_of(config)
    assert run_step(runner, books, {books.join(PROMPT, greedy(9)).row: 6}) == [0]
