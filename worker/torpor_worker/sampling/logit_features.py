"""Features that change logits before anything is chosen, greedily or not."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from torpor_protocol.arrays import I32Array
from torpor_protocol.requests import SamplingParams
from torpor_worker.sampling.parameters import BoolArray, RowParameter, SampleRows


class LogitFeature(Protocol):
    """A stage of the pipeline with its parameters for all rows."""

    def add(self, row: int, params: SamplingParams, prompt: I32Array, output: I32Array) -> bool:
        """Remember a request's parameters; False if it does not use the feature."""

    def publish(self) -> None:
        """Bring what was added to the device."""

    def due(self, rows: SampleRows) -> BoolArray:
        """Which of these rows, all of which use the feature, it would change now."""

    def apply(self, logits: Tensor, rows: SampleRows) -> Tensor:
        """[m, vocab], may be changed in place."""

    def note(self, rows: SampleRows, tokens: Tensor) -> None:
        """These tokens, int64 [m], were sampled by rows that use the feature."""

    def reset(self) -> None:
        """No row is in use any more."""


class LogitBias:
    """Adds a bias to some tokens' logits."""

    def __init__(self, rows: int, device: torch.device | str) -> None:
        self._tokens = RowParameter(rows, np.int64, 0, device, width=0)
        self._bias = RowParameter(rows, np.float32, 0.0, device, width=0)

    def add(self, row: int, params: SamplingParams, prompt: I32Array, output: I32Array) -> bool:
        if not params.logit_bias:
            return False
        self._tokens.set(row, list(params.logit_bias.keys()))
        self._bias.set(row, list(params.logit_bias.values()))
        return True

    def publish(self) -> None:
        self._tokens.publish()
        self._bias.publish()

    def due(self, rows: SampleRows) -> BoolArray:
        return np.ones(len(rows), np.bool_)

    def apply(self, logits: Tensor, rows: SampleRows) -> Tensor:
        return logits.scatter_add_(1, self._tokens.of(rows), self._bias.of(rows))

    def note(self, rows: SampleRows, tokens: Tensor) -> None:
        return None

    def reset(self) -> None:
        return None


class MinTokens:
    """Keeps a request from ending (by eos or a stop token) before it has min_tokens tokens."""

    def __init__(self, rows: int, eos: tuple[int, ...], device: torch.device | str) -> None:
        self._eos = eos
        self._least = np.zeros(rows, np.int64)
        self._tokens = RowParameter(rows, np.int64, 0, device, width=0)
        self._penalty = RowParameter(rows, np.float32, 0.0, device, width=0)

    def add(self, row: int, params: SamplingParams, prompt: I32Array, output: I32Array) -> bool:
        eos = () if params.ignore_eos else self._eos
        ends = (*eos, *params.stop_token_ids)
        if not (params.min_tokens and ends):
            return False
        self._least[row] = params.min_tokens
        self._tokens.set(row, ends)
        self._penalty.set(row, np.full(len(ends), -np.inf))
        return True

    def publish(self) -> None:
        self._tokens.publish()
        self._penalty.publish()

    def due(self, rows: SampleRows) -> BoolArray:
        return np.asarray(rows.output_lens < self._least[rows.host])

    def apply(self, logits: Tensor, rows: SampleRows) -> Tensor:
        return logits.scatter_add_(1, self._tokens.of(rows), self._penalty.of(rows))

    def note(self, rows: SampleRows, tokens: Tensor) -> None:
        return None

    def reset(self) -> None:
        return None
