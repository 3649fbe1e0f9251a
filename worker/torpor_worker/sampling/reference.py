"""Sampling as its definition reads: one row, plain Python, double precision.

The oracle of the sampler's tests, and what the reference runner uses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torpor_protocol.arrays import pack_i32
from torpor_protocol.requests import SamplingParams, TokenLogprobs
from torpor_worker.sampling.sampler import GREEDY_BELOW

_MASK = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15


def sample_row(
    logits: Sequence[float],
    params: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],
    eos: Sequence[int],
) -> int:
    """The next token of a request that has ``prompt`` and ``output`` so far."""
    scores = _processed(logits, params, prompt, output, eos)
    if params.temperature < GREEDY_BELOW:
        return max(range(len(scores)), key=lambda token: (scores[token], -token))
    weights = filtered(scores, params)
    share = uniform(params.seed, len(prompt) + len(output)) * math.fsum(weights.values())
    passed = 0.0
    for token in sorted(weights):
        passed += weights[token]
        if passed > share:
            return token
    return max(weights)


def _processed(
    logits: Sequence[float],
    params: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],
    eos: Sequence[int],
) -> list[float]:
    """Bias, min tokens, penalties."""
    scores = list(logits)
    for token, bias in params.logit_bias.items():
        scores[token] += bias
    if len(output) < params.min_tokens:
        for token in (*(() if params.ignore_eos else eos), *params.stop_token_ids):
            scores[token] = -math.inf
    for token in {*prompt, *output}:
        repeated = params.repetition_penalty
        scores[token] = scores[token] / repeated if scores[token] > 0 else scores[token] * repeated
    for token in set(output):
        scores[token] -= params.frequency_penalty * output.count(token) + params.presence_penalty
    return scores


def filtered(scores: Sequence[float], params: SamplingParams) -> dict[int, float]:
    """Temperature, min-p, top-k, top-p: what is left, by weight."""
    best = max(scores)
    weights = [math.exp((score - best) / params.temperature) for score in scores]
    order = sorted(range(len(scores)), key=lambda token: (-weights[token], token))
    kept = [token for token in order if weights[token] >= params.min_p and weights[token] > 0]
    if params.top_k > 0:
        kept = kept[: params.top_k]
    total = math.fsum(weights[token] for token in kept)
    nucleus, above = {}, 0.0
    for token in kept:
        if params.top_p < 1 and above >= params.top_p * total:
            break
        nucleus[token] = weights[token]
        above += weights[token]
    return nucleus


def uniform(seed: int, position: int) -> float:
    """In [0, 1); splitmix64 on Python integers."""
    state = _mix((_mix((seed + _GAMMA) & _MASK) + (position + 1) * _GAMMA) & _MASK)
    return float((state >> 11) * 2.0**-53)


def _mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def logprobs_of(row: int, logits: Sequence[float], token: int, wanted: int) -> TokenLogprobs:
    """Of the model's own distribution; ``wanted`` alternatives."""
    best = max(logits)
    total = best + math.log(math.fsum(math.exp(value - best) for value in logits))
    order = sorted(range(len(logits)), key=lambda other: (-logits[other], other))[:wanted]
    return TokenLogprobs(
        row=row,
        token=token,
        logprob=logits[token] - total,
        rank=1 + sum(value > logits[token] for value in logits),
        top_ids=pack_i32(order),
        top_logprobs=[logits[other] - total for other in order],
    )
