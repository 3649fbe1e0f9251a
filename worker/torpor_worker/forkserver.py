"""The fork server: a small single-threaded process that has everything imported and forks ranks.

It opens no socket, starts no thread and touches no device, so a fork of it is a clean start. It is
the parent of every rank: it alone reaps them and knows how each of them ended. If it dies, the
kernel kills its ranks; if the supervisor dies, the kernel kills it.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import selectors
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from torpor_worker import rank_process
from torpor_worker.forks import (
    Exited,
    Fork,
    Forked,
    Kill,
    Lines,
    Ready,
    Report,
    command_decoder,
    write_line,
)
from torpor_worker.processes import die_with_parent, kill, thread_count
from torpor_worker.rank_log import RankLog

log = logging.getLogger(__name__)
_CHUNK = 64 * 2**10
_CANNOT_FORK = 71


@dataclass
class _Child:
    rank: int
    pid: int
    pidfd: int
    output: RankLog


class ForkServer:
    """Reads commands from one pipe, writes reports to another."""

    def __init__(self, commands: int, reports: int) -> None:
        self._commands = commands
        self._reports = reports
        self._lines = Lines()
        self._children: dict[int, _Child] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(commands, selectors.EVENT_READ, self._on_commands)
        self._open = True

    def serve(self) -> None:
        """Until the supervisor closes the command pipe. Raises BrokenPipeError if it is gone."""
        self._report(Ready())
        while self._open:
            for key, _ in self._selector.select():
                # An earlier event of this round may have closed it.
                if key.fd in self._selector.get_map():
                    callback: Callable[[], None] = key.data
                    callback()

    def _report(self, report: Report) -> None:
        write_line(self._reports, report)

    def _on_commands(self) -> None:
        chunk = os.read(self._commands, _CHUNK)
        self._open = bool(chunk)
        for command in self._lines.feed(chunk, command_decoder):
            match command:
                case Fork():
                    self._fork_all(command)
                case Kill():
                    for pid in self._children:
                        kill(pid)

    def _fork_all(self, command: Fork) -> None:
        if thread_count() > 1:
            log.warning("A preloaded module started a thread: forking ranks is not safe.")
        for assignment, keys in zip(command.assignments, command.keys, strict=True):
            launch = rank_process.Launch(
                command.endpoint, command.config, assignment, keys, command.threads
            )
            try:
                child = self._fork(launch)
            except OSError as error:
                cause = f"Rank {assignment.rank} could not be forked: {error}."
                self._report(Exited(assignment.rank, 0, _CANNOT_FORK, cause))
                continue
            self._children[child.pid] = child
            on_end, on_output = partial(self._end, child), partial(self._read, child)
            self._selector.register(child.pidfd, selectors.EVENT_READ, on_end)
            self._selector.register(child.output.fd, selectors.EVENT_READ, on_output)
            self._report(Forked(child.rank, child.pid))

    def _fork(self, launch: rank_process.Launch) -> _Child:
        parent = os.getpid()
        reading, writing = os.pipe()
        try:
            pid = os.fork()
            if pid == 0:
                rank_process.main(launch, parent, writing)
            return _Child(launch.rank, pid, _pidfd(pid), RankLog(launch.rank, reading))
        except OSError:
            os.close(reading)
            raise
        finally:
            os.close(writing)

    def _read(self, child: _Child) -> None:
        child.output.read()
        if child.output.ended:
            # It closed its output and lives on; its end is told by the pidfd.
            self._selector.unregister(child.output.fd)

    def _end(self, child: _Child) -> None:
        _, wait_status = os.waitpid(child.pid, 0)
        del self._children[child.pid]
        self._selector.unregister(child.pidfd)
        os.close(child.pidfd)
        if child.output.fd in self._selector.get_map():
            self._selector.unregister(child.output.fd)
        child.output.close()
        status = os.waitstatus_to_exitcode(wait_status)
        self._report(Exited(child.rank, child.pid, status, child.output.tail))


def _pidfd(pid: int) -> int:
    """Readable when the child is dead. A child that cannot be watched must not run."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        kill(pid)
        os.waitpid(pid, 0)
        raise


def preload(modules: Sequence[str]) -> None:
    """Import what ranks need. What cannot be imported fails again in a rank, with its reason."""
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            log.warning("%s is not preloaded: %s.", module, error)
        except Exception:
            log.exception("%s is not preloaded.", module)
    # Collecting would touch, and so copy, every page that ranks share with this process.
    gc.collect()
    gc.freeze()


def main(arguments: Sequence[str]) -> int:
    """``arguments``: the supervisor's pid, then the modules to preload."""
    die_with_parent(int(arguments[0]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    commands, reports = os.dup(0), os.dup(1)
    # What a preloaded module prints or reads must not get into the two pipes.
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    preload(arguments[1:])
    try:
        ForkServer(commands, reports).serve()
    except BrokenPipeError:
        return 1
    return 0
