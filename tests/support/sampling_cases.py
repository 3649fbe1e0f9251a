"""Requests and batches for sampler tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from torpor_protocol.arrays import EMPTY, pack_i32
from torpor_protocol.requests import SamplingParams
from torpor_protocol.steps import NewRequest
from torpor_worker.sampling.parameters import SampleRows
from torpor_worker.sampling.sampler import Sampler

EOS = (2,)


def params(**fields: object) -> SamplingParams:
    values: dict[str, object] = {"max_tokens": 100, "seed": 1, "temperature": 0.0}
    return SamplingParams(**{**values, **fields})  # type: ignore[arg-type]


def request(
    row: int, sampling: SamplingParams, prompt: Sequence[int] = (3,), output: Sequence[int] = ()
) -> NewRequest:
    return NewRequest(
        row=row,
        generation=1,
        prompt_len=len(prompt),
        num_computed=0,
        tokens=pack_i32([*prompt, *output]),
        blocks=EMPTY,
        sampling=sampling,
    )


def sampler_of(requests: Sequence[NewRequest], vocab: int, rows: int = 0) -> Sampler:
    sampler = Sampler(rows or 1 + max(each.row for each in requests), vocab, EOS, "cpu")
    for each in requests:
        sampler.add(each)
    sampler.publish()
    return sampler


def sample_rows(requests: Sequence[NewRequest]) -> SampleRows:
    rows = np.array([each.row for each in requests], np.int64)
    positions = torch.tensor([len(each.tokens) // 4 for each in requests])
    lens = np.array([len(each.tokens) // 4 - each.prompt_len for each in requests], np.int64)
    return SampleRows(rows, torch.from_numpy(rows), positions, lens)


def sample(requests: Sequence[NewRequest], logits: Tensor) -> list[int]:
    """One token per request, all in one batch; row i of ``logits`` is request i's."""
    sampler = sampler_of(requests, logits.shape[1])
    return sampler.sample(logits.clone(), sample_rows(requests)).tokens.tolist()
