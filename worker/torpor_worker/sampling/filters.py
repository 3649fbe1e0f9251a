"""Features that narrow down what a random draw may choose.

Their order is top-k, temperature, min-p, top-p. Top-k may come first because a temperature does not
change which tokens are the best, and because top-k and min-p both keep a head of the same order, so
that the shorter head wins either way; the order temperature, min-p, top-k, top-p that others
document gives the same. With top-k first everything after it sees k tokens and not the vocabulary.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torpor_worker.sampling.choices import Choices, keep_from
from torpor_worker.sampling.parameters import RowParameter, SampleRows

NO_TOP_P = 2.0
_TINY = 1e-30
_BINS = 2048
_BINS_PER_NAT = 64.0


class TopK:
    """The k best tokens; of equals at the end of the list an arbitrary one."""

    def __init__(self, rows: int, device: torch.device | str) -> None:
        self.k = RowParameter(rows, np.int64, 1, device)

    def apply(self, choices: Choices, rows: SampleRows) -> Choices:
        """From the whole vocabulary to [m, the largest k of these rows]."""
        logits, tokens = torch.topk(choices.logits, int(self.k.host[rows.host].max()))
        behind = torch.arange(logits.shape[1], device=logits.device) >= self.k.of(rows)[:, None]
        return Choices(logits.masked_fill_(behind, float("-inf")), tokens)


class Temperature:
    def __init__(self, rows: int, device: torch.device | str) -> None:
        self.temperature = RowParameter(rows, np.float32, 1.0, device)

    def apply(self, choices: Choices, rows: SampleRows) -> Choices:
        logits = choices.logits / self.temperature.of(rows)[:, None]
        return Choices(logits, choices.tokens)


class MinP:
    """Tokens with at least ``min_p`` of the best one's probability."""

    def __init__(self, rows: int, device: torch.device | str) -> None:
        self.min_p = RowParameter(rows, np.float32, 0.0, device)

    def apply(self, choices: Choices, rows: SampleRows) -> Choices:
        best = choices.logits.amax(-1, keepdim=True)
        least = self.min_p.of(rows)[:, None].clamp(min=_TINY).log()
        return Choices(keep_from(choices.logits, best + least), choices.tokens)


class TopP:
    """The fewest best tokens that have ``top_p`` of the probability together."""

    def __init__(self, rows: int, device: torch.device | str) -> None:
        self.top_p = RowParameter(rows, np.float32, NO_TOP_P, device)

    def apply(self, choices: Choices, rows: SampleRows) -> Choices:
        top_p = self.top_p.of(rows).clamp(min=_TINY).double()[:, None]
        if choices.tokens is None:
            return Choices(_nucleus(choices.logits, top_p))
        mass = choices.logits.softmax(-1).double()
        outside = mass.cumsum(-1) - mass >= top_p
        return Choices(choices.logits.masked_fill(outside, float("-inf")), choices.tokens)


def _nucleus(logits: Tensor, top_p: Tensor) -> Tensor:
    """The nucleus of a whole vocabulary without sorting it: a histogram of probability over depth
    below the best logit finds the bin in which ``top_p`` is reached, a second one the place in that
    bin. Tokens within 1e-5 of each other there count as equals and stay together."""
    depth = (logits.amax(-1, keepdim=True) - logits) * _BINS_PER_NAT
    mass = logits.softmax(-1)
    bins = _bins(depth)
    coarse = _histogram(bins, mass, _BINS)
    edge = _last_below(coarse, 0.0, top_p)
    before = coarse.cumsum(-1).gather(-1, edge) - coarse.gather(-1, edge)
    # What is not in this bin goes into one that is not looked at.
    inside = bins == edge
    fine_bins = _bins((depth - edge) * _BINS).masked_fill_(~inside, _BINS)
    fine = _histogram(fine_bins, mass, _BINS + 1)[:, :_BINS]
    last = _last_below(fine, before, top_p)
    deepest = (edge + (last + 1.5) / _BINS) / _BINS_PER_NAT
    return keep_from(logits, logits.amax(-1, keepdim=True) - deepest.float())


def _bins(depth: Tensor) -> Tensor:
    """int64, each within bounds: logits that are not numbers, of a model that overflows, fall into
    some bin too, for an index out of bounds would end the rank."""
    return depth.clamp(max=_BINS - 1).long().clamp_(min=0)


def _histogram(bins: Tensor, mass: Tensor, count: int) -> Tensor:
    """float64 [m, count]."""
    empty = torch.zeros(len(bins), count, device=bins.device)
    return empty.scatter_add_(1, bins, mass).double()


def _last_below(mass: Tensor, before: Tensor | float, top_p: Tensor) -> Tensor:
    """[m, 1]: the last bin of which the mass above it is less than ``top_p``."""
    above = mass.cumsum(-1) - mass + before
    return ((above < top_p).sum(-1, keepdim=True) - 1).clamp_(min=0)
