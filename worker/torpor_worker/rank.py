"""The work of a rank process: take calls from the engine, run them on the worker, answer each.

It knows nothing of models. The worker class is named in the configuration; its methods marked with
``@callable_method`` are all that can be called. A method that raises is answered with a typed error
and the rank goes on: what an error means for the group is the engine's decision.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from torpor_protocol.config import EngineConfig, RankAssignment
from torpor_protocol.errors import ConfigError, WireError
from torpor_protocol.rpc import Call, RankHello, RankKeys, Shutdown
from torpor_protocol.transport import Dealer
from torpor_worker.answers import Answers, error_reply
from torpor_worker.progress import ProgressReporter
from torpor_worker.security import client_security

# The length of one wait means nothing: a call ends it, and the kernel kills an orphan.
_WAIT_MS = 3_600_000


class Rank:
    """One rank's loop. Frames of any other group are dropped. Raises PeerGone when the engine has
    stopped reading; the process then ends."""

    def __init__(self, dealer: Dealer, group: bytes, answers: Answers) -> None:
        self._dealer = dealer
        self._group = group
        self._answers = answers

    def serve(self) -> None:
        """Until Shutdown; waits in the kernel between calls."""
        while True:
            received = self._dealer.receive(_WAIT_MS)
            if received is None or received.group != self._group:
                continue
            match received.message:
                case Call() as call:
                    self._answer(received.sequence, call)
                case Shutdown():
                    return

    def _answer(self, sequence: int, call: Call) -> None:
        reply = self._answers.answer(call)
        try:
            self._dealer.send(self._group, sequence, reply)
        except WireError as error:
            # A value over the frame limit: the error about it is small.
            self._dealer.send(self._group, sequence, error_reply(reply.rank, error))


def run(endpoint: str, config: EngineConfig, assignment: RankAssignment, keys: RankKeys) -> int:
    """The life of a rank; gives its exit status. An error before RankHello ends the process: its
    traceback is the last thing in the rank's log, which RankExited carries."""
    group = bytes.fromhex(assignment.group)
    identity = f"rank-{assignment.rank}-{assignment.group}"
    dealer = Dealer.connect(endpoint, identity.encode(), client_security(keys))
    progress = ProgressReporter(lambda message: dealer.send(group, 0, message), assignment.rank)
    worker = load_class(config.worker_class)(config, assignment, progress=progress)
    dealer.send(group, 0, RankHello(assignment.rank, os.getpid()))
    Rank(dealer, group, Answers(worker, assignment.rank)).serve()
    worker.shutdown()
    dealer.close()
    return 0


def load_class(path: str) -> Any:
    """Import "module:Class". Raises ConfigError."""
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"Worker class {path!r} cannot be imported: {error}.",
            "Name a class as module:Class that the worker image has installed.",
        ) from error
