"""A streamed completion in a thread: its pieces, when they came, and how it ended."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from typing import Any

from replica import Replica

# A prompt is computed in other chunks after a loss, so sums are rounded otherwise; another token's
# log probability is further away.
SAME_LOGPROB = 1e-3


class Stream:
    """Starts at once. ``pieces`` grows; ``error`` is the first error, in HTTP or in the stream.

    With ``logprobs`` also ``tokens`` and ``logprobs`` grow, which tell tokens apart that are parts
    of characters: in the text all of these are U+FFFD."""

    def __init__(self, replica: Replica, prompt: Any, max_tokens: int, **fields: Any) -> None:
        body = {"model": replica.model(), "prompt": prompt, "max_tokens": max_tokens}
        body |= {"temperature": 0, "ignore_eos": True, "stream": True} | fields
        self._request = urllib.request.Request(
            replica.url + "/v1/completions",
            data=json.dumps(body | {"stream_options": {"include_usage": True}}).encode(),
            headers={"content-type": "application/json"},
        )
        self.pieces: list[str] = []
        self.times: list[float] = []
        self.tokens: list[str] = []
        self.logprobs: list[float] = []
        self.usage: dict[str, int] = {}
        self.error = ""
        self.done = False
        self.started = time.monotonic()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            with urllib.request.urlopen(self._request, timeout=300) as answer:
                for line in answer:
                    self._take(line)
        except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
            self.error = self.error or repr(error)

    def _take(self, line: bytes) -> None:
        if line.strip() == b"data: [DONE]":
            self.done = True
        elif line.startswith(b"data: "):
            chunk = json.loads(line[6:])
            if "error" in chunk:
                self.error = self.error or json.dumps(chunk["error"])
                return
            self.usage = chunk.get("usage") or self.usage
            for choice in chunk.get("choices", []):
                if choice["logprobs"]:
                    self.tokens += choice["logprobs"]["tokens"]
                    self.logprobs += choice["logprobs"]["token_logprobs"]
                if choice["text"]:
                    self.pieces.append(choice["text"])
                    self.times.append(time.monotonic())

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def wait_pieces(self, count: int, seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while len(self.pieces) < count:
            assert not self.error, self.error
            assert time.monotonic() < deadline, f"only {len(self.pieces)} pieces came"
            time.sleep(0.005)

    def finish(self, seconds: float = 300.0) -> str:
        """Wait for the end; gives the text. Fails when the stream ended with an error."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"the stream hangs after {len(self.pieces)} pieces"
        assert not self.error, self.error
        assert self.done
        return self.text

    def assert_same_tokens(self, golden: Stream) -> None:
        """Both asked for ``logprobs`` and have ended."""
        assert self.finish() == golden.finish()
        assert len(golden.tokens) == golden.usage["completion_tokens"]
        assert self.tokens == golden.tokens
        apart = [abs(a - b) for a, b in zip(self.logprobs, golden.logprobs, strict=True)]
        assert max(apart) < SAME_LOGPROB

    def gap_after(self, moment: float) -> float:
        """Seconds from a moment to the next piece."""
        return next((t - moment for t in self.times if t > moment), float("inf"))
