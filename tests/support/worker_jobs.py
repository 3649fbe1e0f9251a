"""What the workers of a group do in tests; run by ``rank_host``, checked by the test."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from runner_cases import BLOCK_SIZE, small_config
from step_maker import StepMaker, generate, greedy
from torpor_protocol.arrays import pack_i32, unpack_i32
from torpor_protocol.config import ParallelConfig, RankAssignment
from torpor_protocol.steps import ModelRunnerOutput, SchedulerOutput
from torpor_worker.runner.model_runner import ModelRunner
from torpor_worker.worker import Worker

BLOCKS = 200
ROWS = 3


class Follower:
    """A rank that is not told the tokens keeps its books by the tokens in its own rows: they must
    be those of the output rank, or its outputs differ at the end."""

    def __init__(self, worker: Worker, maker: StepMaker) -> None:
        self._worker = worker
        self._maker = maker

    def execute_model(self, output: SchedulerOutput) -> None:
        self._worker.execute_model(output)

    def sample_tokens(self) -> ModelRunnerOutput:
        given = self._worker.sample_tokens()
        runner = self._worker._running()
        assert isinstance(runner, ModelRunner)
        rows = [row for row, request in self._maker.running.items() if request.pending == 0]
        tokens = [int(runner.states.last_token.tensor[row]) for row in rows]
        for row, token in zip(rows, tokens, strict=True):
            length = int(runner.states.total_len[row])
            assert runner.states.token_ids.tensor[row, length - 1] == token
        if given is not None:
            assert sorted(zip(rows, tokens, strict=True)) == sorted(
                zip(unpack_i32(given.rows), unpack_i32(given.tokens), strict=True)
            )
        return ModelRunnerOutput(0, pack_i32(rows), pack_i32(tokens))


def greedy_tokens(
    rank: int,
    folder: Path,
    *,
    model: str,
    tensor: int,
    pipeline: int,
    prompts: list[list[int]],
    max_tokens: int,
    level: int = 0,
) -> None:
    """Generate on a whole worker, with sleep and wake first if ``level``; write the tokens."""
    config = msgspec.structs.replace(
        small_config(Path(model), rows=ROWS), parallel=ParallelConfig(tensor, pipeline)
    )
    assignment = RankAssignment(
        rank=rank,
        local_rank=rank,
        local_size=tensor * pipeline,
        group="ab" * 16,
        store=f"file://{folder}/store",
    )
    worker = Worker(config, assignment)
    worker.init_device()
    worker.load_model()
    assert worker.determine_available_memory() > 0
    worker.initialize_cache(BLOCKS)
    worker.compile_or_warm_up_model()
    if level:
        worker.sleep(level)
        worker.wake_up([])
    maker = StepMaker(ROWS, BLOCKS, BLOCK_SIZE)
    requests = [(prompt, greedy(max_tokens)) for prompt in prompts]
    outputs = generate(Follower(worker, maker), maker, requests, budget=24, chunk=9)
    (folder / f"rank-{rank}.json").write_text(json.dumps(outputs))
    worker.shutdown()
