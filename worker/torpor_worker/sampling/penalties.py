"""Penalties for tokens that are in the text already.

Repetition (as transformers has it) looks at prompt and output: a positive logit is divided by it, a
negative one multiplied. Presence and frequency look at the output only: the first is subtracted
once, the second for each occurrence.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torpor_protocol.arrays import I32Array
from torpor_protocol.requests import SamplingParams
from torpor_worker.sampling.parameters import BoolArray, RowParameter, SampleRows
from torpor_worker.upload import upload

# Dividing by less could give infinity in float32, also after the division by a temperature; and
# what a client may send is any number above zero, down to those that float32 takes for zero.
_LEAST_REPETITION = 1e-20


class Penalties:
    """``_counts`` int32 and ``_in_prompt`` bool [rows, vocab]: large, so made when the first row
    asks for penalties."""

    def __init__(self, rows: int, vocab_size: int, device: torch.device | str) -> None:
        self._size = (rows, vocab_size)
        self._device = device
        self._repetition = RowParameter(rows, np.float32, 1.0, device)
        self._presence = RowParameter(rows, np.float32, 0.0, device)
        self._frequency = RowParameter(rows, np.float32, 0.0, device)
        self._counts: Tensor | None = None
        self._in_prompt: Tensor | None = None

    def _tables(self) -> tuple[Tensor, Tensor]:
        if self._counts is None or self._in_prompt is None:
            self._counts = torch.zeros(self._size, dtype=torch.int32, device=self._device)
            self._in_prompt = torch.zeros(self._size, dtype=torch.bool, device=self._device)
        return self._counts, self._in_prompt

    def add(self, row: int, params: SamplingParams, prompt: I32Array, output: I32Array) -> bool:
        repetition, presence, frequency = (
            params.repetition_penalty,
            params.presence_penalty,
            params.frequency_penalty,
        )
        if (repetition, presence, frequency) == (1.0, 0.0, 0.0):
            return False
        self._repetition.set(row, max(repetition, _LEAST_REPETITION))
        self._presence.set(row, presence)
        self._frequency.set(row, frequency)
        counts, in_prompt = self._tables()
        present = np.zeros(self._size[1], np.bool_)
        present[prompt] = True
        occurrences = np.bincount(output, minlength=self._size[1]).astype(np.int32)
        counts[row] = upload(occurrences, self._device)
        in_prompt[row] = upload(present, self._device)
        return True

    def publish(self) -> None:
        for parameter in (self._repetition, self._presence, self._frequency):
            parameter.publish()

    def due(self, rows: SampleRows) -> BoolArray:
        return np.ones(len(rows), np.bool_)

    def apply(self, logits: Tensor, rows: SampleRows) -> Tensor:
        all_counts, in_prompt = self._tables()
        counts = all_counts.index_select(0, rows.device)
        in_output = counts > 0
        seen = in_prompt.index_select(0, rows.device) | in_output
        repetition = self._repetition.of(rows)[:, None]
        repeated = torch.where(logits > 0, logits / repetition, logits * repetition)
        logits = torch.where(seen, repeated, logits)
        logits -= self._frequency.of(rows)[:, None] * counts
        logits -= self._presence.of(rows)[:, None] * in_output
        return logits

    def note(self, rows: SampleRows, tokens: Tensor) -> None:
        counts, _ = self._tables()
        counts[rows.device, tokens] += 1

    def reset(self) -> None:
        """Gives the tables' memory back."""
        self._counts = self._in_prompt = None
