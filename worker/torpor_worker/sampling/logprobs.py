"""Log probabilities of sampled tokens and their alternatives, for the rows that ask.

They are of the model's own distribution: log-softmax of the logits before any bias, penalty or
filter. They travel to the host in the same buffer as the tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from torpor_protocol.arrays import I32Array, I64Array, pack_i32
from torpor_protocol.requests import TokenLogprobs
from torpor_worker.upload import upload


@dataclass(frozen=True, slots=True)
class LogprobRequest:
    """``index`` int64 [a]: places in the batch of the rows that ask, ``rows`` their row numbers,
    ``wanted`` how many alternatives each wants; host. ``logits`` float32 [a, vocab]: a copy."""

    index: I64Array
    rows: I64Array
    wanted: I64Array
    logits: Tensor

    @property
    def most(self) -> int:
        return int(self.wanted.max())

    def pack(self, tokens: Tensor) -> Tensor:
        """int32 [a * (2 + 2 * most)], floats by their bits: log probability and rank of each
        token, then alternatives' tokens and log probabilities, best first."""
        index = upload(self.index, tokens.device)
        chosen_tokens = tokens.index_select(0, index)[:, None]
        total = torch.logsumexp(self.logits, -1, keepdim=True)
        chosen = self.logits.gather(-1, chosen_tokens)
        rank = (self.logits > chosen).sum(-1, dtype=torch.int32) + 1
        best, best_tokens = torch.topk(self.logits, self.most)
        parts = (
            (chosen - total).view(torch.int32),
            rank,
            best_tokens.to(torch.int32),
            (best - total).view(torch.int32),
        )
        return torch.cat([part.flatten() for part in parts])

    def unpack(self, tokens: I32Array, data: I32Array) -> list[TokenLogprobs]:
        """On the host, in batch order."""
        count, most = len(self.index), self.most
        ends = np.cumsum([count, count, count * most])
        chosen, rank, best_tokens, best = np.split(data, ends)
        chosen, best = chosen.view(np.float32), best.view(np.float32)
        best_tokens, best = best_tokens.reshape(count, most), best.reshape(count, most)
        return [
            TokenLogprobs(
                row=int(self.rows[i]),
                token=int(tokens[self.index[i]]),
                logprob=float(chosen[i]),
                rank=int(rank[i]),
                top_ids=pack_i32(best_tokens[i, :wanted]),
                top_logprobs=best[i, :wanted].tolist(),
            )
            for i, wanted in enumerate(self.wanted.tolist())
        ]
