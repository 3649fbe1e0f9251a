"""Streams that survive: ranks and supervisors killed and stopped, at every moment, many times."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from deployments import write_manifest
from replica import Replica, running
from streams import Stream

Fault = Callable[[Replica], int]
# Promised are 1 and 10 seconds; the long tests print what it took.
DEATH_SECONDS = 3.0
STOP_SECONDS = 10.0


def kill_rank(replica: Replica) -> int:
    pid = replica.rank_pids()[-1]
    os.kill(pid, signal.SIGKILL)
    return pid


def stop_rank(replica: Replica) -> int:
    pid = replica.rank_pids()[0]
    os.kill(pid, signal.SIGSTOP)
    return pid


def kill_supervisor(replica: Replica) -> int:
    supervisor = replica.supervisor()
    supervisor.kill()
    return int(supervisor.pid)


FAULTS: dict[str, tuple[Fault, float, str]] = {
    "rank killed": (kill_rank, DEATH_SECONDS, "SIGKILL"),
    "rank stopped": (stop_rank, STOP_SECONDS, "state T"),
    "supervisor killed": (kill_supervisor, DEATH_SECONDS, "supervisor"),
}


def noticed(replica: Replica, losses: int, since: float, limit: float) -> tuple[float, str]:
    """Seconds until ``/state`` tells of another loss, and its sentence."""
    while True:
        state = replica.state()
        if state["restarts"] > losses:
            return time.monotonic() - since, state["last_loss"]["message"]
        assert time.monotonic() - since < limit + 1.0, f"not noticed: {state}"
        time.sleep(0.01)


def disturb(replica: Replica, fault: str) -> tuple[float, float]:
    """Do it, and see that /state names the cause in time. Gives (moment, detection seconds)."""
    act, limit, word = FAULTS[fault]
    losses = replica.state()["restarts"]
    pid = act(replica)
    moment = time.monotonic()
    seconds, message = noticed(replica, losses, moment, limit)
    assert word.lower() in message.lower() and str(pid) in message
    assert seconds < limit
    return moment, seconds


def check_all_moments(replica: Replica, prompt: list[int], tokens: int) -> None:
    golden = Stream(replica, prompt, tokens).finish()
    for fault in FAULTS:
        for when in ("prefill", "decode"):
            stream = Stream(replica, prompt, tokens)
            if when == "decode":
                stream.wait_pieces(len(golden) // 20)
            moment, detected = disturb(replica, fault)
            assert stream.finish() == golden
            assert stream.usage["completion_tokens"] == tokens
            print(
                f"{fault}, {when}: noticed {detected:.2f} s, next token "
                f"{stream.gap_after(moment):.2f} s"
            )
        assert replica.admin("POST", "/sleep?level=1")[0] == 200
        _, detected = disturb(replica, fault)
        begin = time.monotonic()
        stream = Stream(replica, prompt, tokens)
        assert stream.finish() == golden
        print(
            f"{fault}, asleep: noticed {detected:.2f} s, first token after the request "
            f"{stream.times[0] - begin:.2f} s"
        )


@pytest.mark.timeout(600)
def test_a_stream_survives_every_fault(tiny_llama: Path, tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path / "m.yaml", tiny_llama, parallelism={"tensor": 2})
    with running(manifest) as replica:
        check_all_moments(replica, list(range(10, 110)), 120)


@pytest.mark.slow
@pytest.mark.real_model
@pytest.mark.timeout(1800)
def test_a_stream_of_smollm2_survives_every_fault(smollm2: Path, tmp_path: Path) -> None:
    manifest = write_manifest(
        tmp_path / "m.yaml",
        smollm2,
        parallelism={"tensor": 3},
        engine={"maxNumSeqs": 8, "maxNumBatchedTokens": 128},
    )
    with running(manifest) as replica:
        check_all_moments(replica, list(range(100, 250)), 300)


def random_fault(replica: Replica, rng: random.Random) -> None:
    """Kill or stop something that is there now; what has just died is passed over."""
    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, StopIteration, IndexError):
        if rng.random() < 0.2:
            kill_supervisor(replica)
        elif rng.random() < 0.15:
            os.kill(rng.choice(replica.rank_pids()), signal.SIGSTOP)
        else:
            os.kill(rng.choice(replica.rank_pids()), signal.SIGKILL)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kills", "tokens"), [(3, 60), pytest.param(100, 150, marks=pytest.mark.slow)]
)
def test_random_kills_lose_nothing(
    tiny_llama: Path, tmp_path: Path, kills: int, tokens: int
) -> None:
    """16 streams at a time, until so many losses were seen; tokens equal the undisturbed run's."""
    rng = random.Random(kills)
    prompts = [[rng.randrange(10, 1000) for _ in range(rng.randint(3, 60))] for _ in range(16)]
    manifest = write_manifest(tmp_path / "m.yaml", tiny_llama, parallelism={"tensor": 2})
    with running(manifest) as replica:
        golden = [Stream(replica, prompt, tokens).finish() for prompt in prompts]
        run_dir = replica.run_dir
        calm = footprint(replica)
        while replica.state()["restarts"] < kills:
            streams = [Stream(replica, prompt, tokens) for prompt in prompts]
            while not all(stream.done or stream.error for stream in streams):
                time.sleep(rng.uniform(0.0, 0.6))
                if replica.state()["lifecycle"] == "Awake":
                    random_fault(replica, rng)
            assert [stream.finish() for stream in streams] == golden
        replica.wait_state("Awake")
        assert replica.complete(prompts[0], tokens, ignore_eos=True)["text"] == golden[0]
        assert footprint(replica) == calm
        everyone = replica.descendants()
    assert not [process for process in everyone if process.is_running()]
    assert not run_dir.exists()


def footprint(replica: Replica) -> dict[str, int]:
    """What a leak would make grow: processes, descriptors of the core, files, shared memory."""
    deadline = time.monotonic() + 20
    while True:
        processes = replica.descendants()
        core = next(p for p in processes if "torpor_engine.core" in " ".join(p.cmdline()))
        found = {
            "processes": len(processes),
            "core descriptors": core.num_fds(),
            "files": len(list(replica.run_dir.rglob("*"))),
            "shared memory": len(list(Path("/dev/shm").iterdir())),
        }
        zombies = [p for p in processes if p.status() == psutil.STATUS_ZOMBIE]
        if not zombies or time.monotonic() > deadline:
            assert not zombies
            return found
        time.sleep(0.2)
