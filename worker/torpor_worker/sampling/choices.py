"""What a row may choose from while filters narrow it down, and the draw itself."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad, threshold

CHUNK = 256
_NOTHING = float("-inf")
_JUST_BELOW_ZERO = -1e-30


@dataclass(frozen=True, slots=True)
class Choices:
    """``logits`` float32 [m, c]; -inf is excluded. ``tokens`` int64 [m, c]: which tokens these are,
    best first, or None for the whole vocabulary in its order."""

    logits: Tensor
    tokens: Tensor | None = None


def argmax(logits: Tensor) -> Tensor:
    """int64 [m]: the first of the largest. By chunks, because finding a maximum is several times
    faster than finding its place."""
    rows, size = logits.shape
    if size % CHUNK:
        return logits.argmax(-1)
    chunks = logits.view(rows, size // CHUNK, CHUNK)
    best = chunks.amax(-1).argmax(-1)
    inside = _chunk(chunks, best).argmax(-1)
    return best * CHUNK + inside


def keep_from(logits: Tensor, lowest: Tensor) -> Tensor:
    """Exclude what is below ``lowest`` [m, 1], which is finite. The rest is shifted by ``lowest``,
    which no later stage can tell. Much faster than a comparison and a mask."""
    return threshold(logits - lowest, _JUST_BELOW_ZERO, _NOTHING)


def draw(choices: Choices, uniform: Tensor) -> Tensor:
    """int64 [m]: the token at which the cumulative probability, in the order of token numbers,
    passes ``uniform`` (float64 [m], in [0, 1))."""
    if choices.tokens is None:
        return _draw_place(choices.logits, uniform)
    tokens, order = choices.tokens.sort(-1)
    weights = _weights(choices.logits.gather(-1, order))
    place = _passes(weights.double().cumsum(-1), uniform[:, None])
    return tokens.gather(-1, place)[:, 0]


def _weights(logits: Tensor) -> Tensor:
    return (logits - logits.amax(-1, keepdim=True)).exp_()


def _draw_place(logits: Tensor, uniform: Tensor) -> Tensor:
    """In two levels, so that only a chunk is summed up one by one."""
    weights = _weights(logits)
    rows, size = weights.shape
    if size % CHUNK:
        weights = pad(weights, (0, CHUNK - size % CHUNK))
    chunks = weights.view(rows, -1, CHUNK)
    totals = chunks.sum(-1).double().cumsum(-1)
    chunk = _passes(totals, uniform[:, None])
    before = totals.gather(-1, (chunk - 1).clamp(min=0)) * (chunk > 0)
    rest = uniform[:, None] * totals[:, -1:] - before
    inside = _chunk(chunks, chunk[:, 0]).double().cumsum(-1)
    share = (rest / inside[:, -1:]).clamp(0, 1 - 1e-12)
    place = chunk[:, 0] * CHUNK + _passes(inside, share)[:, 0]
    return place.clamp_(max=size - 1)  # weights that are not numbers may end in the padding


def _passes(cumulative: Tensor, share: Tensor) -> Tensor:
    """[m, 1]: the first place at which the sum is over ``share`` of the whole. It has weight. (The
    bound is for sums that are not numbers.)"""
    place = torch.searchsorted(cumulative, share * cumulative[:, -1:], right=True)
    return place.clamp_(max=cumulative.shape[1] - 1)


def _chunk(chunks: Tensor, which: Tensor) -> Tensor:
    """[m, CHUNK]: chunk ``which[i]`` of row i."""
    return chunks[torch.arange(len(chunks), device=chunks.device), which]
