"""``torpor serve`` and ``torpor engine``: one replica, from start to a clean end.

The ports are opened before the core starts: a port in use is told at once, and probes see a server
that loads. The first SIGINT or SIGTERM drains, the second ends at once; either way nothing is left.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import uvloop

from torpor_engine.api.context import ServerContext
from torpor_engine.api.server import serve as serve_http
from torpor_engine.api.settings import ApiSettings
from torpor_engine.configure import Resolved
from torpor_engine.core_client import CoreClient
from torpor_engine.executor import Place
from torpor_engine.progress import LoadDisplay, load_display
from torpor_engine.tokenizer import Tokenizer
from torpor_protocol.config import EngineConfig
from torpor_protocol.errors import EngineDead, TorporError
from torpor_protocol.requests import EngineState

log = logging.getLogger(__name__)

TOKEN_VARIABLE = "TORPOR_ADMIN_TOKEN"
TOKEN_FILE = "admin-token"


@dataclass(frozen=True)
class ServeOptions:
    """``token``: of the admin port; empty takes the variable's, or makes one. ``token_source``:
    where a person finds it. ``place``: which replica of which deployment this is.
    ``leave_seconds``: for how long a stopped server takes requests that are under way to it."""

    host: str = "127.0.0.1"
    port: int = 8000
    admin_host: str = "127.0.0.1"
    admin_port: int = 8001
    token: str = field(default="", repr=False)
    token_source: str = ""
    place: Place = field(default_factory=Place)
    leave_seconds: float = 0.0


def serve(resolved: Resolved, options: ServeOptions) -> int:
    """Run until stopped; gives the exit code. Raises TorporError when the replica cannot run."""
    tokenizer = Tokenizer.from_folder(Path(resolved.config.model.path))
    config = with_canary(resolved.config, tokenizer.encode(resolved.canary))
    run_dir = Path(tempfile.mkdtemp(prefix="torpor-"))
    try:
        return uvloop.run(_Server(config, resolved, options, tokenizer, run_dir).run())
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)


def with_canary(config: EngineConfig, prompt: list[int]) -> EngineConfig:
    """The canary prompt as tokens; a prompt of none switches the canary off."""
    wake = msgspec.structs.replace(
        config.wake, canary_prompt=tuple(prompt), canary=config.wake.canary and bool(prompt)
    )
    return msgspec.structs.replace(config, wake=wake)


class _Server:
    """The pieces of one run, and the order in which they start and end."""

    def __init__(
        self,
        config: EngineConfig,
        resolved: Resolved,
        options: ServeOptions,
        tokenizer: Tokenizer,
        run_dir: Path,
    ) -> None:
        self._options = options
        self._resolved = resolved
        self._run_dir = run_dir
        self._core = CoreClient(config, str(run_dir), options.place)
        self._token, self._token_source = _admin_token(options, run_dir)
        self._context = ServerContext(
            config=config,
            served_names=list(resolved.served_names),
            tokenizer=tokenizer,
            core=self._core,
            admin_token=self._token,
            settings=ApiSettings(
                leave_seconds=options.leave_seconds, drain_seconds=resolved.drain_seconds
            ),
        )
        self._display: LoadDisplay = load_display()
        self._stop = asyncio.Event()
        self._signals = 0
        self._addresses = ("", "")
        self._announced = False

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)
        self._core.on_state = self._on_state
        http = asyncio.create_task(self._serve_http())
        dead = asyncio.create_task(self._core.dead.wait())
        try:
            await asyncio.wait({http, dead}, return_when=asyncio.FIRST_COMPLETED)
            if dead.done() and not self._stop.is_set():
                await self._raise_core_death()
            await http
        finally:
            self._display.close()
            self._stop.set()
            await self._core.stop()
            dead.cancel()
            await asyncio.gather(http, return_exceptions=True)
        return 0

    async def _serve_http(self) -> None:
        await serve_http(
            self._context,
            self._options.host,
            self._options.port,
            self._options.admin_host,
            self._options.admin_port,
            self._stop,
            self._on_ports_open,
        )

    def _on_ports_open(self, client: str, admin: str) -> None:
        self._addresses = (client, admin)
        self._starting = asyncio.create_task(self._core.start())

    async def _raise_core_death(self) -> None:
        """The core ended by itself: its last state says why, its exit code which kind it was."""
        status = await self._core.exit_status()
        state = self._core.state()
        if state.reason == "EngineDead":
            state_of_exit = f"with status {status}" if status >= 0 else f"by signal {-status}"
            raise EngineDead(
                f"The engine's core process ended {state_of_exit}.", "Its log above says why."
            )
        raise _with_exit_code(EngineDead(state.message), status)

    # Events

    def _on_state(self, state: EngineState) -> None:
        if state.lifecycle == "Starting" and state.load is not None:
            self._display.show(state.load)
        if state.lifecycle == "Awake" and not self._announced:
            self._announced = True
            self._display.close()
            print(self._ready_line(), flush=True)

    def _ready_line(self) -> str:
        client, admin = self._addresses
        name = self._resolved.served_names[0]
        body = json.dumps(
            {"model": name, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 32}
        )
        return (
            f"Torpor serves {name} at {client} (admin {admin}, token in {self._token_source}). "
            f"Try: curl {client}/v1/chat/completions -H 'content-type: application/json' "
            f"-d '{body}'"
        )

    def _on_signal(self) -> None:
        self._signals += 1
        if self._signals == 1:
            print("Draining; once more to end at once.", file=sys.stderr, flush=True)
            self._stop.set()
        else:
            self._core.kill()
            shutil.rmtree(self._run_dir, ignore_errors=True)
            os._exit(130)


def _admin_token(options: ServeOptions, run_dir: Path) -> tuple[str, str]:
    """The token and where a person finds it: a mounted file, the variable, or a private file made
    for it."""
    if options.token:
        return options.token, options.token_source
    given = os.environ.get(TOKEN_VARIABLE, "")
    if given:
        return given, f"${TOKEN_VARIABLE}"
    token = secrets.token_urlsafe(24)
    path = run_dir / TOKEN_FILE
    path.touch(mode=0o600)
    path.write_text(token)
    return token, str(path)


def _with_exit_code(error: TorporError, status: int) -> TorporError:
    """The same sentence under the exit code that the core ended with."""
    if status <= 0:
        return error
    error.exit_code = status  # type: ignore[misc]
    return error
