"""The merge patch, by the law that makes it one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory_cluster import merged_object
from torpor_operator.merge_patch import merge_patch

LEAVES = st.one_of(st.booleans(), st.integers(0, 3), st.lists(st.integers(0, 2), max_size=2))
OBJECTS = st.recursive(
    st.dictionaries(st.sampled_from("abc"), LEAVES, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), st.one_of(LEAVES, inner), max_size=3),
    max_leaves=8,
)


@given(OBJECTS, OBJECTS)
def test_the_patch_makes_the_wanted_of_the_live(
    live: dict[str, object], wanted: dict[str, object]
) -> None:
    patch = merge_patch(live, wanted)
    assert merged_object(live, patch) == wanted
    assert (patch == {}) == (live == wanted)


def test_a_null_that_is_wanted_is_a_field_that_is_not() -> None:
    assert merge_patch({"a": {"b": 1}}, {"a": {"b": 1, "c": None}, "d": None}) == {}
    assert merge_patch({"a": 1}, {"a": None}) == {"a": None}
