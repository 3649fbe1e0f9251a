"""How tokens are drawn, as the core wants it: every default filled in, every seed set."""

from __future__ import annotations

import secrets

from torpor_engine.api.errors import invalid
from torpor_engine.api.schemas.sampling import GenerationRequest
from torpor_protocol.requests import SamplingParams

SEED_MASK = 2**63 - 1
# Below this a temperature is as good as 0, and dividing by it is not.
GREEDY_BELOW = 1e-5


def sampling_params(
    request: GenerationRequest, *, logprobs: int, max_tokens: int, vocab_size: int
) -> SamplingParams:
    """``max_tokens``: what is asked for, before the context bounds it; ``logprobs``: -1 = none.

    Raises ApiError (400) for what a field alone does not show to be wrong."""
    if (request.min_tokens or 0) > max_tokens:
        raise invalid("'min_tokens' is larger than 'max_tokens'.", "min_tokens")
    temperature = _default(request.temperature, 1.0)
    return SamplingParams(
        max_tokens=max_tokens,
        seed=_seed(request.seed),
        temperature=0.0 if temperature < GREEDY_BELOW else temperature,
        top_k=min(max(request.top_k or 0, 0), vocab_size),
        top_p=_default(request.top_p, 1.0),
        min_p=request.min_p or 0.0,
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        repetition_penalty=_default(request.repetition_penalty, 1.0),
        logit_bias=_logit_bias(request.logit_bias or {}, vocab_size),
        min_tokens=request.min_tokens or 0,
        ignore_eos=bool(request.ignore_eos),
        stop_token_ids=_stop_token_ids(request.stop_token_ids or [], vocab_size),
        logprobs=logprobs,
    )


def _default(value: float | None, default: float) -> float:
    return default if value is None else float(value)


def _seed(seed: int | None) -> int:
    return secrets.randbits(63) if seed is None else seed & SEED_MASK


def _logit_bias(bias: dict[str, float], vocab_size: int) -> dict[int, float]:
    tokens = {int(token): float(value) for token, value in bias.items()}
    if any(token >= vocab_size for token in tokens):
        raise invalid(f"A token id in 'logit_bias' is not below {vocab_size}.", "logit_bias")
    return tokens


def _stop_token_ids(ids: list[int], vocab_size: int) -> tuple[int, ...]:
    if any(token >= vocab_size for token in ids):
        raise invalid(
            f"A token id in 'stop_token_ids' is not below {vocab_size}.", "stop_token_ids"
        )
    return tuple(ids)
