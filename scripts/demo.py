"""The demo: a streamed chat, sleep with the memory before and after, a request that wakes.

Starts ``torpor serve`` with the model folder given as the argument, on free ports, and ends it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

READY = re.compile(r"serves (\S+) at (http://\S+) \(admin (http://[^,]+), token in ([^)]+)\)")
QUESTION = "Why do hummingbirds go into torpor at night? Answer in two sentences."
FLAGS = ("--tensor", "3", "--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "8")


class Server:
    """The running replica: its addresses, its token, its name of the model."""

    def __init__(self, model: str) -> None:
        command = [sys.executable, "-m", "torpor_engine", "serve", model, *FLAGS]
        self.process = subprocess.Popen(
            [*command, "--port", "0", "--admin-port", "0"], stdout=subprocess.PIPE, text=True
        )
        self.name, self.url, self.admin, self._token = self._wait()

    def _wait(self) -> tuple[str, str, str, str]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = READY.search(line)
            if found:
                return found[1], found[2], found[3], Path(found[4]).read_text().strip()
        sys.exit(self.process.wait() or 1)

    def call(self, method: str, path: str) -> Any:
        headers = {"authorization": f"Bearer {self._token}"}
        request = urllib.request.Request(self.admin + path, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def chat(self) -> str:
        """Ask, print the answer as it comes, give it back."""
        body = {
            "model": self.name,
            "messages": [{"role": "user", "content": QUESTION}],
            "max_tokens": 64,
            "temperature": 0,
            "stream": True,
        }
        request = urllib.request.Request(
            self.url + "/v1/chat/completions",
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        started, text = time.monotonic(), ""
        with urllib.request.urlopen(request, timeout=120) as answer:
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                piece = _piece(json.loads(line[6:]))
                if piece and not text:
                    print(f"  (first token after {time.monotonic() - started:.2f} s)", end="\n  ")
                text += piece
                print(piece, end="", flush=True)
        print()
        return text

    def memory(self) -> int:
        """Resident bytes of the rank processes."""
        return sum(_resident(rank["pid"]) for rank in self.call("GET", "/state")["ranks"])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def _piece(chunk: dict[str, Any]) -> str:
    choices = chunk.get("choices") or [{}]
    return str(choices[0].get("delta", {}).get("content") or "")


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    started = time.monotonic()
    server = Server(sys.argv[1])
    print(f"Ready after {time.monotonic() - started:.1f} s, three ranks, float32.\n\n> {QUESTION}")
    try:
        first = server.chat()
        before = server.memory()
        server.call("POST", "/sleep?level=2&mode=wait")
        after = server.memory()
        print(
            f"\nAsleep (level 2): the rank processes hold {after / 2**20:.0f} MiB "
            f"instead of {before / 2**20:.0f} MiB.\n\n> {QUESTION}"
        )
        second = server.chat()
        print(
            f"\nThe request woke it; the tokens are {'the same' if first == second else 'OTHERS'}."
        )
        return 0 if first and first == second and after < before else 1
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
