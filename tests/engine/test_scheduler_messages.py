"""What the workers are told, and how much of it."""

from __future__ import annotations

import msgspec
import pytest

from scheduler_driver import Driver, request, small_config
from torpor_engine.scheduler import Scheduler
from torpor_engine.scheduler.admission import MAX_NEW_BYTES
from torpor_protocol.arrays import pack_i32, unpack_i32
from torpor_protocol.limits import MAX_FRAME_BYTES
from torpor_protocol.steps import ModelRunnerOutput, SchedulerOutput

LONG = {"max_tokens": 30, "ignore_eos": True}


def prompt(length: int, first: int = 10) -> list[int]:
    return list(range(first, first + length))


def counts(message: SchedulerOutput | None) -> list[tuple[int, int]]:
    """(row, tokens) in batch order."""
    assert message is not None
    rows, tokens = unpack_i32(message.rows).tolist(), unpack_i32(message.num_tokens).tolist()
    return list(zip(rows, tokens, strict=True))


def test_a_request_is_described_once() -> None:
    driver = Driver(small_config(), 17)
    added = request(1, prompt(5), temperature=0.5)
    driver.add(added)
    first, second = driver.step(), driver.step()
    assert first is not None and second is not None
    (new,) = first.new
    assert (new.row, new.prompt_len, new.num_computed) == (0, 5, 0)
    assert new.tokens == added.prompt and new.sampling == added.sampling
    assert len(unpack_i32(new.blocks)) == 2
    assert second.new == [] and counts(second) == [(0, 1)]


def test_freed_rows_are_told_once_and_in_order() -> None:
    driver = Driver(small_config(), 65)
    for index in range(4):
        driver.add(request(index, prompt(3), **LONG))
    driver.step()
    driver.abort(3, 0, 2)
    driver.add(request(9, prompt(3), **LONG))
    message = driver.step()
    assert message is not None
    assert unpack_i32(message.finished).tolist() == [0, 2, 3]
    assert message.new[0].generation == 2
    message = driver.step()
    assert message is not None and message.finished == b""


def size(message: SchedulerOutput) -> int:
    return len(msgspec.msgpack.encode(message))


@pytest.mark.parametrize("rows", [1, 8])
def test_a_step_of_known_requests_does_not_grow_with_their_prompts(rows: int) -> None:
    sizes = []
    for length in (16, 4096):
        config = small_config(rows=rows, budget=8192 * rows, max_model_len=8192, block_size=16)
        scheduler = Scheduler(config, 10_000)
        for index in range(rows):
            scheduler.add(request(index, prompt(length, first=index), **LONG))
        messages = []
        for _ in range(3):
            message = scheduler.schedule()
            assert message is not None
            messages.append(message)
            tokens = pack_i32([7] * rows)
            scheduler.update(message, ModelRunnerOutput(message.step, message.rows, tokens))
        assert size(messages[0]) > rows * length * 4
        sizes.append([size(message) for message in messages[1:]])
    assert sizes[0] == sizes[1]
    assert max(sizes[0]) < 200 + 40 * rows


def test_many_long_cached_prompts_do_not_overflow_a_frame() -> None:
    length = 100_000
    rows = 3 * MAX_NEW_BYTES // (4 * length)
    config = small_config(rows=rows, budget=2 * length, max_model_len=length + 10, block_size=16)
    scheduler = Scheduler(config, 20_000)
    data = pack_i32(prompt(length, first=0))
    for index in range(rows):
        scheduler.add(msgspec.structs.replace(request(index, [1]), prompt=data))
    seen = 0
    while seen < rows:
        message = scheduler.schedule()
        assert message is not None and size(message) < MAX_FRAME_BYTES
        seen += len(message.new)
        tokens = pack_i32([7] * len(unpack_i32(message.rows)))
        scheduler.update(message, ModelRunnerOutput(message.step, message.rows, tokens))
        for index in range(seen):
            scheduler.abort([index])
