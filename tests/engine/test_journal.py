"""The journal keeps what a request needs to be continued."""

from __future__ import annotations

import numpy as np

from scheduler_driver import request
from torpor_engine.journal import NO_ROW, Journal


def test_requests_keep_the_order_of_their_arrival() -> None:
    journal = Journal(2, 16)
    entries = [journal.open(request(id, [1, 2])) for id in (7, 3, 5)]
    journal.close(entries[0])
    entries.append(journal.open(request(1, [1])))
    assert [entry.id for entry in journal] == [3, 5, 1]
    assert [entry.arrival for entry in entries] == [0, 1, 2, 3]


def test_tokens_follow_a_request_through_rows_and_the_queue() -> None:
    journal = Journal(2, 16)
    entry = journal.open(request(1, [5, 6, 7], seed=42))
    assert journal.tokens_of(entry).tolist() == [5, 6, 7]
    journal.seat(entry, 1)
    journal.append(np.array([1], np.int32), np.array([8], np.int32))
    assert journal.tokens_of(entry).tolist() == [5, 6, 7, 8]
    journal.unseat(entry)
    journal.tokens[:] = -1
    assert entry.row == NO_ROW
    assert journal.tokens_of(entry).tolist() == [5, 6, 7, 8]
    journal.seat(entry, 0)
    journal.append(np.array([0], np.int32), np.array([9], np.int32))
    assert journal.tokens_of(entry).tolist() == [5, 6, 7, 8, 9]
    assert (entry.prompt_len, journal.delivered(entry), entry.sampling.seed) == (3, 2, 42)


def test_a_row_does_not_show_the_request_before() -> None:
    journal = Journal(1, 16)
    long = journal.open(request(1, list(range(10))))
    journal.seat(long, 0)
    journal.unseat(long)
    short = journal.open(request(2, [1]))
    journal.seat(short, 0)
    assert journal.tokens_of(short).tolist() == [1]
    assert len(journal.tokens_of(long)) == 10


def test_a_step_appends_to_many_rows_at_once() -> None:
    journal = Journal(4, 8)
    entries = [journal.open(request(id, [0] * (id + 1))) for id in range(4)]
    for row, entry in enumerate(reversed(entries)):
        journal.seat(entry, row)
    journal.append(np.array([3, 0, 2], np.int32), np.array([30, 0, 20], np.int32))
    assert [journal.delivered(entry) for entry in entries] == [1, 1, 0, 1]
    assert journal.tokens_of(entries[0]).tolist() == [0, 30]


def test_an_ended_request_is_forgotten() -> None:
    journal = Journal(1, 8)
    entry = journal.open(request(1, [1]))
    assert journal.get(1) is entry and journal.get(2) is None
    journal.close(entry)
    assert journal.get(1) is None and len(journal) == 0
