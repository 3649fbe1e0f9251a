"""The core's side of the link to the API process: typed messages in, typed messages out."""

from __future__ import annotations

import logging
import select

import msgspec

from torpor_engine.link import FrameSocket
from torpor_protocol.requests import ApiToCore, CoreToApi

log = logging.getLogger(__name__)


class Inbox:
    """``take`` waits for messages; ``send`` never blocks."""

    def __init__(self, link: FrameSocket) -> None:
        self._link = link
        self._decoder = msgspec.msgpack.Decoder(ApiToCore)
        self._encoder = msgspec.msgpack.Encoder()

    @property
    def closed(self) -> bool:
        """Whether the API process is gone."""
        return self._link.closed

    def fileno(self) -> int:
        return self._link.fileno()

    def take(self, seconds: float, also: int | None = None) -> list[ApiToCore]:
        """Messages that are there, waiting up to ``seconds`` for the first.

        ``also``: another descriptor whose input ends the wait."""
        if seconds > 0:
            link = self._link.fileno()
            readers = [link] if also is None else [link, also]
            writers = [link] if self._link.backlog else []
            select.select(readers, writers, [], seconds)
        self._link.flush()
        return [self._decoder.decode(frame) for frame in self._link.receive()]

    def send(self, message: CoreToApi) -> None:
        self._link.send(self._encoder.encode(message))
