"""What a supervisor reads of its pod: kills for want of memory, CPU limits, its own interface."""

from __future__ import annotations

from pathlib import Path

import pytest

from torpor_protocol.pods import read_worker_pod
from torpor_protocol.rpc import RankKeys
from torpor_worker.cpu_limit import NO_LIMIT, cpu_limit
from torpor_worker.interfaces import _interface_in, interface_of
from torpor_worker.out_of_memory import SAME_KILL_SECONDS, OomWatch, oom_kills
from torpor_worker.pod import pod_settings

V1 = "9:memory:/kubepods/pod1/c1\n4:cpu,cpuacct:/kubepods/pod1/c1\n"
V2 = "0::/\n"
EVENTS = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\n"


def tree(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": cgroup, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("cgroup", "files", "kills"),
    [
        (V2, {"sys/fs/cgroup/memory.events": EVENTS}, 2),
        ("0::/a/b\n", {"sys/fs/cgroup/a/b/memory.events": EVENTS}, 2),
        (V2, {}, 0),
        (V1, {"sys/fs/cgroup/memory/memory.oom_control": f"{CONTROL}oom_kill 5\n"}, 5),
        (
            V1,
            {
                "sys/fs/cgroup/memory/kubepods/pod1/c1/memory.oom_control": CONTROL,
                "sys/fs/cgroup/memory/kubepods/pod1/c1/memory.failcnt": "7\n",
                "sys/fs/cgroup/memory/memory.failcnt": "99\n",
            },
            7,
        ),
        (V1, {}, 0),
    ],
)
def test_kills_for_want_of_memory(
    tmp_path: Path, cgroup: str, files: dict[str, str], kills: int
) -> None:
    assert oom_kills(tree(tmp_path, cgroup, files)) == kills


def test_without_a_proc_nothing_is_known(tmp_path: Path) -> None:
    assert oom_kills(tmp_path) == 0
    assert cpu_limit(tmp_path) == NO_LIMIT


def test_only_a_sigkill_soon_after_the_counter_grew_is_explained() -> None:
    kills, now = 4, 100.0
    watch = OomWatch(lambda: kills, lambda: now)
    assert watch.explained(-9, "tail") == "tail", "old kills explain nothing"
    kills = 5
    assert watch.explained(1, "tail") == "tail"
    assert "out of memory" in watch.explained(-9, "tail")
    now += 1
    assert "out of memory" in watch.explained(-9, "tail"), "one kill takes several along"
    now += SAME_KILL_SECONDS
    assert watch.explained(-9, "tail") == "tail"
    kills = 6
    watch.look()
    now += SAME_KILL_SECONDS + 1
    assert watch.explained(-9, "tail") == "tail", "that kill was of something else in the pod"


@pytest.mark.parametrize(
    ("cgroup", "files", "cores"),
    [
        (V2, {"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2),
        (V2, {"sys/fs/cgroup/cpu.max": "max 100000\n"}, NO_LIMIT),
        (
            "0::/a\n",
            {
                "sys/fs/cgroup/a/cpu.max": "400000 100000\n",
                "sys/fs/cgroup/cpu.max": "300000 100000\n",
            },
            3,
        ),
        (
            V1,
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            1,
        ),
        (
            V1,
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            NO_LIMIT,
        ),
    ],
)
def test_cpu_limits(tmp_path: Path, cgroup: str, files: dict[str, str], cores: int) -> None:
    assert cpu_limit(tree(tmp_path, cgroup, files)) == cores


def test_the_interface_of_an_address() -> None:
    assert interface_of("127.0.0.1") == "lo"
    for nowhere in ("192.0.2.1", "2001:db8::1", "no address", ""):
        assert interface_of(nowhere) == ""
    table = "fd000000000000000000000000000001 02 40 00 80     eth0\n"
    assert _interface_in(table, bytes.fromhex("fd" + 28 * "0" + "01")) == "eth0"


def test_settings_of_a_worker_pod() -> None:
    environ = {
        "TORPOR_DEPLOYMENT_UID": "uid",
        "TORPOR_REPLICA": "3",
        "TORPOR_REVISION": "abc",
        "TORPOR_POD_NAME": "demo-3-worker-1",
        "TORPOR_POD_UID": "pod-uid",
        "TORPOR_POD_IP": "127.0.0.1",
        "TORPOR_WORKER": "1",
        "TORPOR_DEVICES": "4",
        "TORPOR_ENGINE": "tcp://demo-3-engine.demo-pods.default.svc:7070",
    }
    settings = pod_settings(read_worker_pod(environ), RankKeys("p", "s", "e"))
    assert (settings.identity, settings.pod_name) == ("demo-3-worker-1", "demo-3-worker-1")
    assert (settings.devices, settings.replica, settings.revision) == (4, 3, "abc")
    assert (settings.address, settings.interface) == ("127.0.0.1", "lo")
    assert "torch" in settings.preload
