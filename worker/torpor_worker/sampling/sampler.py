"""The pipeline from logits to tokens.

    every row     1 logit bias   2 min tokens   3 penalties
    greedy rows   4 the largest logit (temperature below 1e-5)
    the others    4 top-k   5 temperature   6 min-p   7 top-p   8 draw, keyed by (seed, position)

A stage runs on the rows that use it and not at all when there are none: a step of greedy rows is
one argmax. Which features a row uses is one bit each, so asking is one reduction over the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from torpor_protocol.arrays import I64Array, unpack_i32
from torpor_protocol.requests import SamplingParams
from torpor_protocol.steps import NewRequest
from torpor_worker.sampling.choices import Choices, argmax, draw
from torpor_worker.sampling.filters import NO_TOP_P, MinP, Temperature, TopK, TopP
from torpor_worker.sampling.hashing import uniform
from torpor_worker.sampling.logit_features import LogitBias, LogitFeature, MinTokens
from torpor_worker.sampling.logprobs import LogprobRequest
from torpor_worker.sampling.parameters import BoolArray, RowParameter, SampleRows
from torpor_worker.sampling.penalties import Penalties
from torpor_worker.upload import upload

GREEDY_BELOW = 1e-5
RANDOM, TOP_K, MIN_P, TOP_P, LOGPROBS = (1 << bit for bit in range(5))
FIRST_LOGIT_BIT = 5
_MASK_64 = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Sampled:
    """``tokens`` int64 [m], on the device; ``logprobs`` of the rows that ask, or None."""

    tokens: Tensor
    logprobs: LogprobRequest | None


class Sampler:
    """Parameters of all rows, and the stages."""

    def __init__(
        self, rows: int, vocab_size: int, eos: tuple[int, ...], device: torch.device | str
    ) -> None:
        self._vocab_size = vocab_size
        self._features: list[LogitFeature] = [
            LogitBias(rows, device),
            MinTokens(rows, eos, device),
            Penalties(rows, vocab_size, device),
        ]
        self._top_k = TopK(rows, device)
        self._temperature = Temperature(rows, device)
        self._min_p = MinP(rows, device)
        self._top_p = TopP(rows, device)
        self._seed = RowParameter(rows, np.int64, 0, device)
        self._uses: I64Array = np.zeros(rows, np.int64)
        self._wanted: I64Array = np.zeros(rows, np.int64)

    # Rows

    def add(self, request: NewRequest) -> None:
        """A request joins; its parameters count from the next ``publish``."""
        row, params = request.row, request.sampling
        tokens = unpack_i32(request.tokens)
        prompt, output = tokens[: request.prompt_len], tokens[request.prompt_len :]
        uses = self._add_draw(row, params)
        for bit, feature in enumerate(self._features, FIRST_LOGIT_BIT):
            if feature.add(row, params, prompt, output):
                uses |= 1 << bit
        if params.logprobs >= 0:
            self._wanted[row] = min(params.logprobs, self._vocab_size)
            uses |= LOGPROBS
        self._uses[row] = uses

    def _add_draw(self, row: int, params: SamplingParams) -> int:
        if params.temperature < GREEDY_BELOW:
            return 0
        uses = RANDOM
        seed = params.seed & _MASK_64
        self._seed.set(row, seed - 2**64 if seed >= 2**63 else seed)
        self._temperature.temperature.set(row, params.temperature)
        # Neutral values, too: rows that share a stage share its arithmetic.
        self._min_p.min_p.set(row, params.min_p)
        uses |= MIN_P if params.min_p > 0 else 0
        self._top_p.top_p.set(row, params.top_p if params.top_p < 1 else NO_TOP_P)
        uses |= TOP_P if params.top_p < 1 else 0
        if 0 < params.top_k < self._vocab_size:
            self._top_k.k.set(row, params.top_k)
            uses |= TOP_K
        return uses

    def publish(self) -> None:
        """Bring the parameters of the requests that joined to the device."""
        for feature in self._features:
            feature.publish()
        for parameter in (
            self._seed,
            self._top_k.k,
            self._temperature.temperature,
            self._min_p.min_p,
            self._top_p.top_p,
        ):
            parameter.publish()

    def reset(self) -> None:
        """No row is in use any more."""
        self._uses[:] = 0
        for feature in self._features:
            feature.reset()

    # A step

    def sample(self, logits: Tensor, rows: SampleRows) -> Sampled:
        """``logits`` float32 [m, vocab]; they may be changed in place. m is at least 1."""
        uses = self._uses[rows.host]
        used = int(np.bitwise_or.reduce(uses))
        if not used:
            return Sampled(argmax(logits), None)
        logprobs = self._ask_logprobs(logits, rows, uses) if used & LOGPROBS else None
        for bit, feature in enumerate(self._features, FIRST_LOGIT_BIT):
            if used & 1 << bit:
                logits = _apply(feature, logits, rows, (uses & 1 << bit) != 0)
        tokens = self._choose(logits, rows, uses)
        for bit, feature in enumerate(self._features, FIRST_LOGIT_BIT):
            if used & 1 << bit:
                using = np.flatnonzero(uses & 1 << bit)
                feature.note(rows.take(using), _take(tokens, using))
        return Sampled(tokens, logprobs)

    def _ask_logprobs(self, logits: Tensor, rows: SampleRows, uses: I64Array) -> LogprobRequest:
        index = np.flatnonzero(uses & LOGPROBS)
        asking = rows.host[index]
        return LogprobRequest(index, asking, self._wanted[asking], _take(logits, index))

    def _choose(self, logits: Tensor, rows: SampleRows, uses: I64Array) -> Tensor:
        """Greedy rows, random rows with top-k, random rows without: each kind together."""
        random = (uses & RANDOM) != 0
        few = (uses & TOP_K) != 0
        if not random.any():
            return argmax(logits)
        tokens = torch.empty(len(rows), dtype=torch.int64, device=logits.device)
        for kind, choose in (
            (~random, lambda part, rows, uses: argmax(part)),
            (random & few, self._draw_few),
            (random & ~few, self._draw_any),
        ):
            index = np.flatnonzero(kind)
            if len(index) == len(rows):
                return choose(logits, rows, uses)
            if len(index):
                chosen = choose(_take(logits, index), rows.take(index), uses[index])
                tokens.index_copy_(0, upload(index, logits.device), chosen)
        return tokens

    def _draw_few(self, logits: Tensor, rows: SampleRows, uses: I64Array) -> Tensor:
        choices = self._temperature.apply(self._top_k.apply(Choices(logits), rows), rows)
        used = int(np.bitwise_or.reduce(uses))
        if used & MIN_P:
            choices = self._min_p.apply(choices, rows)
        if used & TOP_P:
            choices = self._top_p.apply(choices, rows)
        return draw(choices, self._uniform(rows))

    def _draw_any(self, logits: Tensor, rows: SampleRows, uses: I64Array) -> Tensor:
        logits = self._temperature.apply(Choices(logits), rows).logits
        for bit, stage in ((MIN_P, self._min_p), (TOP_P, self._top_p)):
            using = np.flatnonzero(uses & bit)
            if len(using) == len(rows):
                logits = stage.apply(Choices(logits), rows).logits
            elif len(using):
                part = stage.apply(Choices(_take(logits, using)), rows.take(using)).logits
                logits.index_copy_(0, upload(using, logits.device), part)
        return draw(Choices(logits), self._uniform(rows))

    def _uniform(self, rows: SampleRows) -> Tensor:
        return uniform(self._seed.of(rows), rows.positions)


def _apply(feature: LogitFeature, logits: Tensor, rows: SampleRows, using: BoolArray) -> Tensor:
    """Run a stage on the rows that use it and that it would change."""
    index = np.flatnonzero(using)
    due = feature.due(rows.take(index))
    index = index[due]
    if len(index) == len(rows):
        return feature.apply(logits, rows)
    if len(index):
        changed = feature.apply(_take(logits, index), rows.take(index))
        logits.index_copy_(0, upload(index, logits.device), changed)
    return logits


def _take(tensor: Tensor, index: I64Array) -> Tensor:
    return tensor.index_select(0, upload(index, tensor.device))
