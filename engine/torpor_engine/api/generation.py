"""One HTTP request while it runs: its choices, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from torpor_engine.api.choice import Choice
from torpor_engine.api.errors import ApiError
from torpor_engine.api.job import Job
from torpor_engine.tokenizer import Tokenizer
from torpor_protocol.requests import AddRequest


class Generation:
    """Times are the event loop's. ``error`` ends the whole request, whatever its choices did.

    ``notify`` is called after every step that brought something; it wakes who waits for ``news``,
    unless a stream takes the news itself."""

    def __init__(self, job: Job, tokenizer: Tokenizer, request_ids: Iterator[int]) -> None:
        self.job = job
        self.tokenizer = tokenizer
        self.error: ApiError | None = None
        self.submitted = 0.0
        self.has_tokens = False
        self.news = asyncio.Event()
        self.notify: Callable[[], None] = self.news.set
        self.requests: list[AddRequest] = []
        self.choices: list[Choice] = []
        for index in range(len(job.prompts) * job.n):
            self._add_choice(index, next(request_ids))
        self.unfinished = len(self.choices)

    @property
    def done(self) -> bool:
        return self.unfinished == 0 or self.error is not None

    def _add_choice(self, index: int, request_id: int) -> None:
        job = self.job
        request = job.core_request(request_id, index)
        prompt = job.prompts[index // job.n]
        detokenizer = self.tokenizer.detokenizer(
            prompt.ids, skip_special_tokens=job.rules.skip_special_tokens
        )
        self.requests.append(request)
        self.choices.append(
            Choice(
                self, request_id, index, prompt, detokenizer, job.rules, request.sampling.min_tokens
            )
        )
