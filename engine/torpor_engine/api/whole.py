"""The answer in one piece."""

from __future__ import annotations

from typing import Any

import orjson

from torpor_engine.api.choice import Choice
from torpor_engine.api.forms import FORMS, Form
from torpor_engine.api.generation import Generation
from torpor_engine.api.usage import usage


def whole_answer(generation: Generation) -> bytes:
    """JSON of a generation that has ended without an error."""
    job = generation.job
    form = FORMS[job.kind]
    answer = {
        "id": job.id,
        "object": form.object,
        "created": job.created,
        "model": job.model,
        "choices": [_choice(choice, form, generation) for choice in generation.choices],
        "usage": usage(generation),
    }
    return orjson.dumps(answer)


def _choice(choice: Choice, form: Form, generation: Generation) -> dict[str, Any]:
    wanted = generation.job.sampling.logprobs >= 0
    placed = choice.take_logprobs()
    return {
        "index": choice.index,
        **form.message(choice.take_text()),
        "logprobs": form.logprobs(placed, generation.tokenizer) if wanted else None,
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
    }
