"""Everything that a server's routes share, put together in one place."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from torpor_engine.api.admission import Admission
from torpor_engine.api.body import BodyReader
from torpor_engine.api.core_link import CoreLink
from torpor_engine.api.encode import PromptEncoder
from torpor_engine.api.outputs import OutputRouter
from torpor_engine.api.prompts import PromptLimits
from torpor_engine.api.sender import StreamSender
from torpor_engine.api.settings import ApiSettings
from torpor_engine.metrics import Metrics
from torpor_engine.tokenizer import Tokenizer
from torpor_protocol.config import EngineConfig
from torpor_protocol.errors import ConfigError


@dataclass
class ServerContext:
    """``served_names``: not empty, the first is the default. ``api_keys``: none = open to all.

    ``max_queued``: choices beyond those that run; None takes the scheduler's. Raises ConfigError
    for an empty admin token or no name."""

    config: EngineConfig
    served_names: list[str]
    tokenizer: Tokenizer
    core: CoreLink
    admin_token: str = field(repr=False)
    max_queued: int | None = None
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    settings: ApiSettings = field(default_factory=ApiSettings)
    clock: Callable[[], float] = time.monotonic

    created: int = field(init=False)
    metrics: Metrics = field(init=False, repr=False)
    admission: Admission = field(init=False, repr=False)
    router: OutputRouter = field(init=False, repr=False)
    encoder: PromptEncoder = field(init=False, repr=False)
    bodies: BodyReader = field(init=False, repr=False)
    streams: set[StreamSender] = field(init=False, repr=False, default_factory=set)
    request_ids: Iterator[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.admin_token:
            raise ConfigError("The admin token is empty.", "Set TORPOR_ADMIN_TOKEN, or unset it.")
        if not self.served_names:
            raise ConfigError("The model has no name.", "Give --served-model-name a name.")
        model = self.config.model
        self.created = int(time.time())
        self.metrics = Metrics(self.served_names[0], self.core, self.config.cache)
        self.admission = Admission(
            self.config, self.core.state, self.metrics, self.clock, self.max_queued
        )
        self.router = OutputRouter(self.core, self.admission, self.metrics, self.clock)
        limits = PromptLimits(self.tokenizer, model.max_model_len, model.vocab_size)
        self.encoder = PromptEncoder(self.tokenizer, limits, self.settings)
        self.bodies = BodyReader(self.settings)
        self.request_ids = itertools.count(1)
