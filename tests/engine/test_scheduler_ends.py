"""The rules by which a request ends, and what is handed out before."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_driver import Driver, request, small_config
from torpor_engine.scheduler import Scheduler
from torpor_protocol.arrays import pack_i32, unpack_i32
from torpor_protocol.steps import ModelRunnerOutput

EOS, STOP, WORD = 2, 7, 50


def answers(tokens: list[int], **fields: Any) -> tuple[list[int], str, int]:
    """Run one request of a 3-token prompt whose model says these tokens."""
    scheduler = Scheduler(small_config(max_model_len=12, eos=(EOS, 3)), 17)
    scheduler.add(request(1, [9, 9, 9], **({"max_tokens": 99} | fields)))
    out: list[int] = []
    for index, token in enumerate(tokens):
        message = scheduler.schedule()
        assert message is not None, f"ended before {token} was asked for"
        news = scheduler.update(
            message, ModelRunnerOutput(message.step, message.rows, pack_i32([token]))
        )
        out += unpack_i32(news.tokens).tolist()
        if news.finished:
            assert index == len(tokens) - 1, f"ended before its time at {token}"
            (end,) = news.finished
            assert not scheduler.has_unfinished()
            return out, end.reason, end.stop_token
    assert scheduler.num_running == 1
    return out, "", -1


@pytest.mark.parametrize(
    ("tokens", "fields", "wanted"),
    [
        ([WORD, EOS], {}, ([WORD], "stop", EOS)),
        ([WORD, 3], {}, ([WORD], "stop", 3)),
        ([EOS, WORD], {"ignore_eos": True}, ([EOS, WORD], "", -1)),
        ([WORD, STOP], {"stop_token_ids": (STOP, 8)}, ([WORD], "stop", STOP)),
        ([WORD, EOS], {"stop_token_ids": (STOP, 8)}, ([WORD], "stop", EOS)),
        ([EOS, 8], {"stop_token_ids": (STOP, 8), "ignore_eos": True}, ([EOS], "stop", 8)),
        ([STOP, WORD], {}, ([STOP, WORD], "", -1)),
        ([EOS, 51, EOS], {"min_tokens": 2}, ([EOS, 51], "stop", EOS)),
        ([STOP, STOP], {"min_tokens": 1, "stop_token_ids": (STOP,)}, ([STOP], "stop", STOP)),
        ([51, 52, 53], {"max_tokens": 3}, ([51, 52, 53], "length", -1)),
        ([51, EOS], {"max_tokens": 2}, ([51], "stop", EOS)),
        ([51], {"max_tokens": 1}, ([51], "length", -1)),
        (list(range(51, 60)), {}, (list(range(51, 60)), "length", -1)),
        (list(range(51, 60)), {"max_tokens": 9}, (list(range(51, 60)), "length", -1)),
        ([*range(51, 59), EOS], {}, (list(range(51, 59)), "stop", EOS)),
    ],
)
def test_ends(
    tokens: list[int], fields: dict[str, Any], wanted: tuple[list[int], str, int]
) -> None:
    assert answers(tokens, **fields) == wanted


def test_stop_tokens_of_one_request_do_not_end_another() -> None:
    scheduler = Scheduler(small_config(), 33)
    scheduler.add(request(1, [9, 9]))
    scheduler.add(request(2, [9, 9], stop_token_ids=(STOP, 8, 9, 10, 11)))
    scheduler.add(request(3, [9, 9]))
    message = scheduler.schedule()
    assert message is not None
    tokens = pack_i32([STOP, STOP, EOS])
    news = scheduler.update(message, ModelRunnerOutput(message.step, message.rows, tokens))
    assert [(end.id, end.stop_token) for end in news.finished] == [(2, STOP), (3, EOS)]
    scheduler.add(request(4, [9, 9]))
    scheduler.add(request(5, [9, 9]))
    message = scheduler.schedule()
    assert message is not None
    rows = unpack_i32(message.rows)
    news = scheduler.update(
        message, ModelRunnerOutput(message.step, message.rows, pack_i32([11] * len(rows)))
    )
    assert news.finished == []


@pytest.mark.parametrize("length", [64, 65, 200])
def test_a_prompt_that_leaves_no_room_ends_with_the_reason(length: int) -> None:
    driver = Driver(small_config(), 99)
    client = driver.add(request(1, [9] * length))
    assert driver.scheduler.has_unfinished()
    assert driver.step() is None
    assert client.end is not None and client.end.reason == "error"
    assert f"{length} tokens" in client.end.message and "64" in client.end.message
    driver.check_quiet()


def test_a_prompt_larger_than_the_cache_ends_with_the_reason() -> None:
    driver = Driver(small_config(), 6)
    fits = driver.add(request(1, [9] * 20, max_tokens=1))
    too_long = driver.add(request(2, [9] * 21))
    driver.run()
    assert fits.end is not None and fits.end.reason == "length"
    assert too_long.end is not None and too_long.end.reason == "error"
    assert "21 tokens and the KV cache holds 20" in too_long.end.message
    driver.check_quiet()


def test_a_request_that_outgrows_the_cache_alone_keeps_what_it_got() -> None:
    driver = Driver(small_config(), 5)
    client = driver.add(request(1, [9] * 10, max_tokens=40, ignore_eos=True))
    other = driver.add(request(2, [8] * 3, max_tokens=4, ignore_eos=True))
    driver.run()
    assert client.end is not None and client.end.reason == "error"
    assert len(client.tokens) == 7
    assert other.end is not None and other.end.reason == "length"
    driver.check_quiet()
