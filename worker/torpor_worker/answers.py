"""A rank's answer to one call: the value, an acknowledgement, or a typed error. Never an exception.

Traceback texts are for the log of the engine, not for users; a TorporError is an explanation by
itself and goes without one.
"""

from __future__ import annotations

import logging
import traceback
from typing import Any

import msgspec

from torpor_protocol.errors import TorporError, class_name
from torpor_protocol.limits import MAX_ERROR_TEXT
from torpor_protocol.methods import MethodTable
from torpor_protocol.rpc import Call, RankError, Reply

log = logging.getLogger(__name__)
EVERY_RANK = -1
_MAX_NAME = 253


class Answers:
    def __init__(self, worker: Any, rank: int) -> None:
        self._worker = worker
        self._rank = rank
        self._methods = MethodTable(type(worker))
        self._encoder = msgspec.msgpack.Encoder()
        self._acknowledgement = Reply(rank)

    def answer(self, call: Call) -> Reply:
        """Run the call. The value goes back only from ``output_rank`` (EVERY_RANK: from each)."""
        try:
            args, kwargs = self._methods.arguments(call)
            value = getattr(self._worker, call.method)(*args, **kwargs)
            if value is None or call.output_rank not in (EVERY_RANK, self._rank):
                return self._acknowledgement
            return Reply(self._rank, msgspec.Raw(self._encoder.encode(value)))
        except TorporError as error:
            log.error("Rank %d in %s: %s", self._rank, call.method, error)
            return error_reply(self._rank, error)
        except Exception as error:
            log.exception("Rank %d failed in %s.", self._rank, call.method)
            return error_reply(self._rank, error)


def error_reply(rank: int, error: Exception) -> Reply:
    """Texts are cut to MAX_ERROR_TEXT characters: a cause at its end, a traceback at its start."""
    name = class_name(error)[:_MAX_NAME]
    if isinstance(error, TorporError):
        cause, fix, trace = error.cause, error.fix, ""
    else:
        cause, fix = str(error), ""
        trace = "".join(traceback.format_exception(error))
    return Reply(
        rank,
        error=RankError(
            name, cause[:MAX_ERROR_TEXT], fix[:MAX_ERROR_TEXT], trace[-MAX_ERROR_TEXT:]
        ),
    )
