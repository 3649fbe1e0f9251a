"""Stop strings across the borders of tokens, against the simple definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torpor_engine.api.stop_strings import StopMatcher

PIECES = st.lists(st.text("ab", max_size=4), max_size=12)
STOPS = st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3)


def run(pieces: list[str], stops: list[str], include: bool) -> tuple[str, str | None]:
    """The text that a client gets, piece by piece, and what ended it."""
    matcher = StopMatcher(tuple(stops), include)
    text = ""
    for piece in pieces:
        text += matcher.feed(piece)
        if matcher.found is not None:
            return text, matcher.found
    return text + matcher.rest(), None


@given(PIECES, STOPS)
def test_the_text_ends_before_the_first_stop_string(pieces: list[str], stops: list[str]) -> None:
    given_text, found = run(pieces, stops, include=False)
    so_far = ""
    for piece in pieces:
        so_far += piece
        places = [so_far.find(stop) for stop in stops if stop in so_far]
        if places:
            assert given_text == so_far[: min(places)]
            assert found is not None and so_far.startswith(found, min(places))
            return
    assert (given_text, found) == (so_far, None)


@given(PIECES, STOPS)
def test_the_stop_string_can_be_kept(pieces: list[str], stops: list[str]) -> None:
    without, found = run(pieces, stops, include=False)
    assert run(pieces, stops, include=True) == (without + (found or ""), found)


@given(PIECES, STOPS)
def test_nothing_is_held_back_that_cannot_become_a_stop_string(
    pieces: list[str], stops: list[str]
) -> None:
    matcher = StopMatcher(tuple(stops), include=False)
    given_text = ""
    so_far = ""
    for piece in pieces:
        so_far += piece
        given_text += matcher.feed(piece)
        if matcher.found is not None:
            return
        held = so_far[len(given_text) :]
        assert so_far.startswith(given_text)
        assert not held or any(stop.startswith(held) and stop != held for stop in stops)
        longest = max(
            (n for stop in stops for n in range(1, len(stop)) if so_far.endswith(stop[:n])),
            default=0,
        )
        assert len(held) == longest
