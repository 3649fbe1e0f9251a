"""Slices cover the whole exactly once, heads stay whole, and what cannot be split is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor_protocol.errors import ConfigError
from torpor_worker.layers.sharding import (
    Span,
    check_heads,
    scaled,
    split,
    split_kv_heads,
    tensor_parallel_sizes,
)


@given(st.integers(1, 500), st.integers(1, 40))
def test_shares_are_equal_in_size_and_cover_all(total: int, parts: int) -> None:
    spans = [split(total, parts, index) for index in range(parts)]
    assert [entry for span in spans for entry in range(span.start, span.stop)] == list(range(total))
    assert {span.size for span in spans} == {-(-total // parts)}
    assert all(span.stop - span.start <= span.size for span in spans)


def test_padding_is_at_the_end() -> None:
    assert [split(10, 4, rank) for rank in range(4)] == [
        Span(0, 3, 3),
        Span(3, 6, 3),
        Span(6, 9, 3),
        Span(9, 10, 3),
    ]
    assert split(9, 4, 3) == Span(9, 9, 3)


@given(st.integers(1, 8), st.integers(1, 8))
def test_every_query_head_is_with_its_kv_head(kv_heads: int, group: int) -> None:
    heads = kv_heads * group
    for tp in tensor_parallel_sizes(heads, kv_heads):
        for rank in range(tp):
            q = split(heads, tp, rank)
            kv = split_kv_heads(kv_heads, tp, rank)
            needed = {head // group for head in range(q.start, q.stop)}
            assert needed == set(range(kv.start, kv.stop))
            assert q.size % kv.size == 0


def test_heads_to_rows() -> None:
    assert scaled(split_kv_heads(2, 4, 3), 16) == Span(16, 32, 16)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "sizes"),
    [(9, 3, [1, 3, 9]), (4, 2, [1, 2, 4]), (32, 8, [1, 2, 4, 8, 16, 32]), (6, 6, [1, 2, 3, 6])],
)
def test_sizes_that_divide(heads: int, kv_heads: int, sizes: list[int]) -> None:
    assert tensor_parallel_sizes(heads, kv_heads) == sizes


def test_others_are_refused_with_the_sizes_that_work() -> None:
    check_heads(9, 3, 9)
    with pytest.raises(ConfigError, match=r"9 heads and 3 KV heads .* 2 ranks\. .* 1, 3, 9\."):
        check_heads(9, 3, 2)
