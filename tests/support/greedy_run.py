"""Greedy generation over a worker's model and its groups, without engine, runner or sampler."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from plain_attention import PlainAttention
from torpor_worker.models import ShardedModel
from torpor_worker.platforms import torch_dtype


class GreedyRun:
    """Several sequences in one flattened batch. Every rank of the world makes the same calls."""

    def __init__(self, model: ShardedModel, prompts: Sequence[Sequence[int]]) -> None:
        self._model = model
        self._groups = model.groups
        self._attention = PlainAttention([])
        self._inputs = [list(prompt) for prompt in prompts]
        self._starts = [0] * len(prompts)

    @torch.inference_mode()
    def step(self) -> tuple[list[int], Tensor | None]:
        """Next token of each sequence, and on the output rank the logits of every input token."""
        hidden = self._forward()
        logits = self._model.compute_logits(hidden)
        lengths = [len(tokens) for tokens in self._inputs]
        last = torch.tensor(lengths).cumsum(0) - 1
        tokens = torch.zeros(len(lengths), dtype=torch.int64)
        if logits is not None:
            tokens = logits[last].argmax(dim=-1)
        tokens = self._groups.world_broadcast(tokens, self._groups.output_rank)
        self._starts = [start + length for start, length in zip(self._starts, lengths, strict=True)]
        self._inputs = [[token] for token in tokens.tolist()]
        return tokens.tolist(), logits

    def _forward(self) -> Tensor:
        groups, config = self._groups, self._model.config.model
        self._attention.lengths = [len(tokens) for tokens in self._inputs]
        flat = torch.tensor([token for tokens in self._inputs for token in tokens])
        positions = torch.cat(
            [
                torch.arange(start, start + len(tokens))
                for start, tokens in zip(self._starts, self._inputs, strict=True)
            ]
        )
        hidden = None
        if not groups.is_first_stage:
            shape = (len(flat), config.hidden_size)
            hidden = groups.recv_previous(shape, torch_dtype(config.dtype))
        ids = flat if groups.is_first_stage else None
        result: Tensor = self._model(ids, positions, self._attention, hidden)
        if not groups.is_last_stage:
            groups.send_next(result)
        return result


def generate(
    model: ShardedModel, prompts: Sequence[Sequence[int]], steps: int
) -> tuple[list[list[int]], Tensor | None]:
    """Greedy tokens of each prompt, and the logits of all prompt tokens on the output rank."""
    run = GreedyRun(model, prompts)
    first, logits = run.step()
    tokens = [[token] for token in first]
    for _ in range(steps - 1):
        for sequence, token in zip(tokens, run.step()[0], strict=True):
            sequence.append(token)
    return tokens, logits
