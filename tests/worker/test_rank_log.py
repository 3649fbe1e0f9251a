"""The log of a rank: bounded, line by line, and never in the way."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from torpor_protocol.limits import MAX_LOG_TAIL
from torpor_worker.rank_log import RankLog


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """What takes the place of this process's stderr: (reading end, writing end)."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    yield reading, writing
    os.close(reading)
    os.close(writing)


def written(pipe: tuple[int, int], *chunks: bytes) -> RankLog:
    """A log after a rank wrote this and closed its output."""
    reading, writing = os.pipe()
    log = RankLog(4, reading, out=pipe[1])
    for chunk in chunks:
        os.write(writing, chunk)
        assert log.read()
    os.close(writing)
    return log


def test_lines_are_passed_on_whole_with_the_ranks_number(pipe: tuple[int, int]) -> None:
    log = written(pipe, b"one\ntw", b"o\n\nthree")
    assert os.read(pipe[0], 9999) == b"[rank 4] one\n[rank 4] two\n[rank 4] \n"
    log.close()
    assert os.read(pipe[0], 9999) == b"[rank 4] three\n"
    assert log.tail == "one\ntwo\n\nthree"


def test_the_tail_is_the_last_part(pipe: tuple[int, int]) -> None:
    log = written(pipe, *[bytes([65 + index]) * 3000 for index in range(5)])
    log.close()
    assert log.tail == "C" * (MAX_LOG_TAIL - 6000) + "D" * 3000 + "E" * 3000


def test_bytes_that_are_no_text_do_no_harm(pipe: tuple[int, int]) -> None:
    log = written(pipe, b"\xff\xfe\n")
    log.close()
    assert log.tail == "\ufffd\ufffd\n"


def test_an_endless_line_is_cut_into_lines(pipe: tuple[int, int]) -> None:
    log = written(pipe, *[b"x" * 1000] * 10)
    log.close()
    lines = os.read(pipe[0], 99_999).splitlines()
    assert sum(line.count(b"x") for line in lines) == 10_000
    assert all(line.startswith(b"[rank 4] ") and len(line) < 4096 for line in lines)


def test_a_reader_that_stopped_costs_lines_and_not_time(pipe: tuple[int, int]) -> None:
    chunk = (b"y" * 99 + b"\n") * 500
    log = written(pipe, *[chunk] * 10)
    log.close()
    taken = os.read(pipe[0], 10**6)
    assert 0 < taken.count(b"y" * 99 + b"\n") < 5000
    assert len(log.tail) == MAX_LOG_TAIL


def test_the_end_is_noticed_once_the_rank_has_closed(pipe: tuple[int, int]) -> None:
    log = written(pipe, b"last\n")
    assert not log.ended
    assert not log.read()
    assert log.ended
    log.close()
