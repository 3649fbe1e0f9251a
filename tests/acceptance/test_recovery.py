"""Streams that survive: ranks and supervisors killed and stopped, at every moment, many times."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from deployments import write_manifest
from replica import Replica, running
from streams import Stream

DEATH_SECONDS = 1.0
STOP_SECONDS = 10.0
SHARED_MEMORY = Path("/dev/shm")
# So many steps does a long prompt take then, every time, that a loss comes in its midst.
SMALL_STEPS = {"maxNumSeqs": 4, "maxNumBatchedTokens": 4, "enablePrefixCaching": False}


def last_rank(replica: Replica) -> int:
    return replica.rank_pids()[-1]


def first_rank(replica: Replica) -> int:
    return replica.rank_pids()[0]


def supervisor(replica: Replica) -> int:
    return int(replica.supervisor().pid)


class Fault(NamedTuple):
    """``find`` gives the process; ``word`` is in what /state says of the loss."""

    find: Callable[[Replica], int]
    signal: signal.Signals
    limit: float
    word: str


FAULTS = {
    "rank killed": Fault(last_rank, signal.SIGKILL, DEATH_SECONDS, "SIGKILL"),
    "rank stopped": Fault(first_rank, signal.SIGSTOP, STOP_SECONDS, "state T"),
    "supervisor killed": Fault(supervisor, signal.SIGKILL, DEATH_SECONDS, "supervisor"),
}


def noticed(replica: Replica, losses: int, since: float, limit: float) -> tuple[float, str]:
    """Seconds until ``/state`` tells of another loss, and its sentence."""
    while True:
        state = replica.state()
        if state["restarts"] > losses:
            return time.monotonic() - since, state["last_loss"]["message"]
        assert time.monotonic() - since < limit + 1.0, f"not noticed: {state}"
        time.sleep(0.01)


def aimed(replica: Replica, fault: Fault) -> Callable[[], tuple[float, float]]:
    """Looks for the process now, so that the call does it at once. The call also sees that /state
    names the cause in time, and gives (moment, detection seconds)."""
    losses, pid = replica.state()["restarts"], fault.find(replica)

    def disturb() -> tuple[float, float]:
        os.kill(pid, fault.signal)
        moment = time.monotonic()
        seconds, message = noticed(replica, losses, moment, fault.limit)
        assert fault.word.lower() in message.lower() and str(pid) in message
        assert seconds < fault.limit
        return moment, seconds

    return disturb


def wait_running(replica: Replica, stream: Stream) -> None:
    """Until the request has a row."""
    while not replica.metric("num_requests_running"):
        assert not stream.error and not stream.done
        time.sleep(0.005)


def check_all_moments(replica: Replica, prompt: list[int], tokens: int) -> None:
    """What came up to when the loss was told proves the moment: a new group takes longer."""
    golden = Stream(replica, prompt, tokens, logprobs=0)
    golden.finish()
    # So the first token is the first piece. The prompt is chosen for it.
    assert "\ufffd" not in golden.tokens[0]
    for name, fault in FAULTS.items():
        for when in ("prefill", "decode"):
            disturb = aimed(replica, fault)
            stream = Stream(replica, prompt, tokens, logprobs=0)
            if when == "prefill":
                wait_running(replica, stream)
                moment, detected = disturb()
                assert not stream.pieces
            else:
                stream.wait_pieces(len(golden.pieces) // 20)
                moment, detected = disturb()
                assert len(stream.tokens) < tokens
            stream.assert_same_tokens(golden)
            assert stream.usage["completion_tokens"] == tokens
            print(
                f"{name}, {when}: noticed {detected:.2f} s, next token "
                f"{stream.gap_after(moment):.2f} s"
            )
        assert replica.admin("POST", "/sleep?level=1")[0] == 200
        _, detected = aimed(replica, fault)()
        begin = time.monotonic()
        stream = Stream(replica, prompt, tokens, logprobs=0)
        stream.assert_same_tokens(golden)
        print(
            f"{name}, asleep: noticed {detected:.2f} s, first token after the request "
            f"{stream.times[0] - begin:.2f} s"
        )


@pytest.mark.timeout(600)
def test_a_stream_survives_every_fault(tiny_llama_8k: Path, tmp_path: Path) -> None:
    manifest = write_manifest(
        tmp_path / "m.yaml",
        tiny_llama_8k,
        model={"maxModelLen": 2048},
        parallelism={"tensor": 2},
        engine=SMALL_STEPS,
    )
    with running(manifest) as replica:
        check_all_moments(replica, [11 + place % 900 for place in range(1200)], 400)


@pytest.mark.slow
@pytest.mark.real_model
@pytest.mark.timeout(1800)
def test_a_stream_of_smollm2_survives_every_fault(smollm2: Path, tmp_path: Path) -> None:
    manifest = write_manifest(
        tmp_path / "m.yaml",
        smollm2,
        parallelism={"tensor": 3},
        engine=SMALL_STEPS | {"maxNumBatchedTokens": 16},
    )
    with running(manifest) as replica:
        check_all_moments(replica, list(range(500, 650)), 300)


def random_fault(replica: Replica, rng: random.Random) -> None:
    """Kill or stop something that is there now; what has just died is passed over."""
    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, StopIteration, IndexError):
        if rng.random() < 0.2:
            replica.supervisor().kill()
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
    shared = set(SHARED_MEMORY.iterdir())
    with running(manifest) as replica:
        golden = [Stream(replica, prompt, tokens).finish() for prompt in prompts]
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
    assert not replica.processes()
    assert not replica.run_dir.exists()
    assert set(SHARED_MEMORY.iterdir()) <= shared


def footprint(replica: Replica) -> dict[str, int]:
    """What a leak would make grow, once it stays the same: processes, orphans too, descriptors,
    files, shared memory."""
    deadline = time.monotonic() + 20
    found, before = look(replica), None
    while found != before or found["zombies"]:
        assert time.monotonic() < deadline, f"{before}, then {found}"
        time.sleep(0.2)
        found, before = look(replica), found
    return found


def look(replica: Replica) -> dict[str, int]:
    statuses = []
    for process in replica.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            statuses.append(process.status())
    found = {
        "processes": len(statuses),
        "zombies": statuses.count(psutil.STATUS_ZOMBIE),
        "files": len(list(replica.run_dir.rglob("*"))),
        "shared memory": len(list(SHARED_MEMORY.iterdir())),
    }
    roles = replica.roles()
    for role in ("API", "core", "supervisor", "fork server"):
        found[f"{role} descriptors"] = roles[role].num_fds()
    return found
