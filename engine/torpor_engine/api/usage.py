"""Token counts of an answer, as OpenAI gives them."""

from __future__ import annotations

from typing import Any

from torpor_engine.api.generation import Generation


def usage(generation: Generation) -> dict[str, Any]:
    """So far, over all choices; a prompt counts once, however many answers it gets."""
    job = generation.job
    prompt = sum(len(entry.ids) for entry in job.prompts)
    completion = sum(choice.tokens for choice in generation.choices)
    cached = sum(choice.cached_tokens for choice in generation.choices[:: job.n])
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
