"""The API on real loopback ports, in a thread of the test process, over a fake core."""

from __future__ import annotations

import asyncio
import functools
import http.client
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import openai
import uvloop

from engine_builders import engine_config
from fake_core import FakeCore
from tiny_tokenizer import save_tokenizer
from torpor_engine.api.context import ServerContext
from torpor_engine.api.server import serve
from torpor_engine.api.settings import ApiSettings
from torpor_engine.tokenizer import Tokenizer
from torpor_protocol.config import EngineConfig

ResultT = TypeVar("ResultT")
TOKEN = "admin-token-of-the-test"
MODEL = "tiny"
VOCAB = 1024
START_SECONDS = 20.0


@functools.cache
def tiny_tokenizer() -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        save_tokenizer(Path(folder), VOCAB, 512)
        return Tokenizer.from_folder(Path(folder))


class ApiServer:
    """``url`` and ``admin_url`` without a slash at the end."""

    def __init__(self, context: ServerContext, core: FakeCore) -> None:
        self.context = context
        self.core = core
        self.url = self.admin_url = ""
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        if not self._ready.wait(START_SECONDS) or self._error is not None:
            raise RuntimeError("The server did not start.") from self._error

    def stop(self) -> None:
        if self._thread.is_alive() and not self._stop.is_set():
            self.call(self._stop.set)
        self._thread.join(START_SECONDS)
        if self._thread.is_alive():
            raise RuntimeError("The server does not end.")
        if self._error is not None:
            raise RuntimeError("The server failed.") from self._error

    def call(self, work: Callable[[], ResultT]) -> ResultT:
        """Run ``work`` on the server's event loop."""

        async def on_loop() -> ResultT:
            return work()

        return asyncio.run_coroutine_threadsafe(on_loop(), self._loop).result(START_SECONDS)

    def until(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        """Wait until ``condition`` holds on the event loop."""
        end = time.monotonic() + seconds
        while not self.call(condition):
            if time.monotonic() > end:
                raise AssertionError("What was waited for did not come.")
            time.sleep(0.005)

    # Clients

    def client(self, *, strict: bool = True) -> openai.OpenAI:
        """Not strict for streams of /v1/completions: the library's type says that every chunk has
        a finish reason, and OpenAI's own chunks have null until the last."""
        return openai.OpenAI(
            base_url=f"{self.url}/v1",
            api_key="unused",
            _strict_response_validation=strict,
            max_retries=0,
            timeout=20,
        )

    def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = {"content-type": "application/json"}
        return self.request("POST", self.url + path, data, {**kind, **(headers or {})})

    def get(self, path: str) -> Answer:
        return self.request("GET", self.url + path)

    def admin(self, method: str, path: str, token: str = TOKEN) -> Answer:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return self.request(method, self.admin_url + path, headers=headers)

    def request(
        self,
        method: str,
        url: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
        try:
            path = f"{parts.path}?{parts.query}" if parts.query else parts.path
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    # The thread

    def _run(self) -> None:
        try:
            uvloop.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        await serve(self.context, "127.0.0.1", 0, "127.0.0.1", 0, self._stop, self._on_ready)

    def _on_ready(self, url: str, admin_url: str) -> None:
        self.url, self.admin_url = url, admin_url
        self._ready.set()


class Answer:
    """``headers`` by their names in lower case."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body = body

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error object, checked to be one."""
        error = self.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}, error
        return dict(error)


@contextmanager
def api_server(
    core: FakeCore | None = None,
    *,
    config: EngineConfig | None = None,
    settings: ApiSettings | None = None,
    tokenizer: Tokenizer | None = None,
    names: tuple[str, ...] = (MODEL,),
    **options: Any,
) -> Iterator[ApiServer]:
    """A running server for the length of a block; it is stopped in order."""
    core = core or FakeCore()
    context = ServerContext(
        config=config or engine_config(model={"max_model_len": 512}),
        served_names=list(names),
        tokenizer=tokenizer or tiny_tokenizer(),
        core=core,
        admin_token=TOKEN,
        settings=settings or ApiSettings(tick_seconds=0.02, drain_seconds=2.0),
        **options,
    )
    server = ApiServer(context, core)
    server.start()
    try:
        yield server
    finally:
        server.stop()
