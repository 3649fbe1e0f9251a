"""What loading a model takes of a process's resident memory."""

from __future__ import annotations

import re
from pathlib import Path


class LoadPeak:
    """Of one process, over what it has now; sizes in bytes.

    Pieces of the model's files count while they are mapped. What stays mapped is code of libraries,
    which is left out: how much of it a first use brings in depends on how the page cache holds it.
    """

    def __init__(self, pid: int | str) -> None:
        self._folder = Path("/proc") / str(pid)
        self._resident, self._code = self._bytes("VmRSS"), self._bytes("RssFile")
        self.start_anew()

    def start_anew(self) -> None:
        """The peak is that of the time from now on."""
        (self._folder / "clear_refs").write_text("5")

    def most(self) -> int:
        return self._bytes("VmHWM") - self._resident - self._more_code()

    def left(self) -> int:
        return self._bytes("VmRSS") - self._resident - self._more_code()

    def _more_code(self) -> int:
        assert ".safetensors" not in (self._folder / "maps").read_text(), "a file stays mapped"
        return self._bytes("RssFile") - self._code

    def _bytes(self, field: str) -> int:
        found = re.search(rf"^{field}:\s+(\d+) kB", (self._folder / "status").read_text(), re.M)
        assert found
        return int(found[1]) * 1024
