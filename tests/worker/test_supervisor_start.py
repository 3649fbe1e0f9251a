"""How supervisor and fork server come to life: what they import, and what they refuse."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from fake_pod import FakePod, eventually
from torpor_protocol.errors import ConfigError
from torpor_protocol.rpc import Hello, RankExited, RankKeys
from torpor_protocol.supervision import SupervisorSettings, decode_settings, encode_settings
from torpor_protocol.transport import CurveClient, CurveKeys, IpcSecurity
from torpor_worker.processes import threads_per_rank
from torpor_worker.security import client_security

SETTINGS = SupervisorSettings("ipc:///nowhere/workers.sock", "supervisor-0", devices=1)

TORCH_IMPORT = 120.0


def start(line: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "torpor_worker", *arguments]
    return subprocess.run(command, input=line, capture_output=True, timeout=60, check=False)


def test_a_supervisor_and_its_log_import_no_torch(tmp_path: Path) -> None:
    with FakePod(tmp_path / "r", preload=["torpor_worker.forks"]) as pod:
        pod.expect(Hello)
        maps = Path(f"/proc/{pod.process.pid}/maps").read_text()
        assert "libzmq" in maps, "the maps do show what is loaded"
        assert "torch" not in maps


def test_a_preloaded_torch_starts_no_thread_and_ranks_have_it_at_once(tmp_path: Path) -> None:
    with FakePod(tmp_path / "r", preload=["torch", "no.such.module"]) as pod:
        pids = pod.form(2, within=TORCH_IMPORT)
        fork_server = pod.fork_server()
        assert psutil.Process(fork_server).num_threads() == 1
        assert "libtorch" in Path(f"/proc/{fork_server}/maps").read_text()
        assert pod.value("describe")["torch"]
        assert "libtorch" in Path(f"/proc/{pids[1]}/maps").read_text()
        log = pod.log.read_text()
        assert "no.such.module is not preloaded" in log
        assert "not safe" not in log


def test_a_fork_server_that_dies_at_once_is_started_again_but_not_in_a_loop(
    tmp_path: Path,
) -> None:
    exits = tmp_path / "exits.py"
    exits.write_text("import os; os._exit(9)")
    with FakePod(tmp_path / "r", preload=["exits"], path=[tmp_path]) as pod:
        starts = "ended with status 9"
        pod.form(1, hello=False)
        _, exited = pod.expect(RankExited)
        assert exited.status == 9 and "before it started this rank" in exited.log_tail
        assert eventually(lambda: pod.log.read_text().count(starts) >= 2, within=20)
        before = pod.log.read_text().count(starts)
        for _ in range(2):
            pod.expect(Hello)
        assert pod.log.read_text().count(starts) - before < 10
        exits.write_text("")
        pod.form(1)
        assert pod.value("echo", "at last") == "at last"


@pytest.mark.parametrize("line", [b"", b"{}\n", b"not json\n", b'{"devices": 0}\n', b"\xff\n"])
def test_settings_that_cannot_be_read_are_one_sentence_and_a_fix(line: bytes) -> None:
    with pytest.raises(ConfigError) as caught:
        decode_settings(line)
    assert "cannot be read" in caught.value.cause and caught.value.fix


@pytest.mark.parametrize(
    ("line", "arguments", "part"),
    [
        (b"{}\n", ["supervisor"], "settings cannot be read"),
        (b"", ["supervisor"], "settings cannot be read"),
        (encode_settings(SETTINGS), ["supervisor"], "/nowhere cannot be used"),
        (b"", ["dance"], "does not know 'dance'"),
        (b"", [], "does not know 'an empty command'"),
    ],
)
def test_a_wrong_start_exits_with_a_sentence(line: bytes, arguments: list[str], part: str) -> None:
    done = start(line, *arguments)
    assert done.returncode == ConfigError.exit_code
    assert part in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_settings_survive_the_pipe() -> None:
    full = msgspec.structs.replace(SETTINGS, keys=RankKeys("a", "b", "c"), preload=("x",))
    line = encode_settings(full)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert decode_settings(line) == full


def test_keys_decide_the_security() -> None:
    assert client_security(RankKeys()) == IpcSecurity()
    own, server = CurveKeys.generate(), CurveKeys.generate()
    assert client_security(RankKeys(own.public, own.secret, server.public)) == CurveClient(
        own, server.public
    )


@pytest.mark.parametrize(
    ("cores", "ranks", "threads"), [(16, 1, 16), (16, 3, 5), (2, 3, 1), (1, 8, 1)]
)
def test_ranks_share_the_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, ranks: int, threads: int
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert threads_per_rank(ranks) == threads
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads_per_rank(ranks) == 3, "what the user says goes"
