"""``torpor serve`` as a process: refusals in two sentences, clean ends, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from deployments import write_manifest
from replica import Replica, running
from streams import Stream
from torpor_engine.cli import main
from unpickling import WAYS

TINY = ("--dtype", "float32", "--max-model-len", "256", "--tensor", "2")
SUPPORT = Path(__file__).parents[1] / "support"


def serve(*arguments: str) -> tuple[int, str]:
    """Run a ``torpor serve`` that is to be refused. Gives exit code and standard error."""
    command = [sys.executable, "-m", "torpor_engine", "serve", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


@pytest.fixture
def broken(tiny_llama: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model that a test may damage."""
    folder = tmp_path / "broken"
    folder.mkdir()
    for file in tiny_llama.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.fixture
def command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """The same in this process, for refusals that come before any process is started."""

    def call(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["torpor", "serve", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        text = capsys.readouterr().err
        assert "Traceback" not in text
        return int(ended.value.code or 0), text

    return call


def test_refused_before_anything_starts(
    tiny_llama: Path, tmp_path: Path, command_line: Callable[..., tuple[int, str]]
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("kind: Pod\n")
    typo = write_manifest(tmp_path / "typo.yaml", tiny_llama, modle={"source": "x"})
    cases = {
        (str(tmp_path / "nothing"),): (3, "no model folder"),
        (str(wrong),): (2, "wrong.yaml"),
        (str(typo),): (2, "modle"),
        (str(tmp_path / "no.yaml"),): (2, "no.yaml"),
        (str(tiny_llama), "--tensor", "3"): (2, "1, 2 or 4"),
        (str(tiny_llama), "--pipeline", "9"): (2, "layers"),
        (str(tiny_llama), "--dtype", "int3"): (3, "int3"),
        (str(tiny_llama), "--max-model-len", "99999"): (3, "99999"),
        (str(tiny_llama), "--kv-cache-memory", "much"): (2, "much"),
        (str(tiny_llama), "--executor", "none"): (2, "no executor"),
        (str(tiny_llama), "--port", "99999"): (2, "--port"),
        (str(tiny_llama), "--no-such-flag"): (2, "no-such-flag"),
    }
    for arguments, (code, word) in cases.items():
        status, text = command_line(*arguments)
        assert (status, word in text) == (code, True), f"{arguments}: {status} {text}"


def test_smollm2_names_the_tensor_sizes(smollm2: Path) -> None:
    status, text = serve(str(smollm2), "--tensor", "2")
    assert status == 2
    assert "1, 3 or 9" in text


@pytest.mark.parametrize("port", ["--port", "--admin-port"])
def test_a_port_in_use_is_named(tiny_llama: Path, port: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = str(taken.getsockname()[1])
        other = "--admin-port" if port == "--port" else "--port"
        status, text = serve(str(tiny_llama), port, number, other, "0")
    assert status == 4
    assert number in text and port in text


@pytest.mark.parametrize(
    ("executor", "damage"),
    [
        ("uni", "truncated"),
        ("mp", "truncated"),
        ("uni", "missing"),
        ("mp", "pickle"),
        pytest.param("mp", "missing", marks=pytest.mark.slow),
        pytest.param("uni", "pickle", marks=pytest.mark.slow),
    ],
)
def test_a_damaged_model_is_named(broken: Path, executor: str, damage: str) -> None:
    weights = broken / "model.safetensors"
    if damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif damage == "missing":
        weights.unlink()
    else:
        weights.rename(broken / "pytorch_model.bin")
    ports = ("--port", "0", "--admin-port", "0")
    status, text = serve(str(broken), "--executor", executor, "--dtype", "float32", *ports)
    assert status == 3, text
    assert "safetensors" in text


def test_a_damaged_config_is_named(
    broken: Path, command_line: Callable[..., tuple[int, str]]
) -> None:
    config = json.loads((broken / "config.json").read_text())
    for field, value in {
        "num_hidden_layers": 10**9,
        "hidden_size": "many",
        "architectures": ["Unknown"],
        "vocab_size": -1,
    }.items():
        (broken / "config.json").write_text(json.dumps(config | {field: value}))
        status, text = command_line(str(broken))
        assert status == 3, text
        assert str(broken) in text
    (broken / "config.json").write_text("{")
    assert command_line(str(broken))[0] == 3


def test_a_cache_that_is_too_small_names_the_length_that_fits(tiny_llama: Path) -> None:
    ports = ("--port", "0", "--admin-port", "0")
    status, text = serve(str(tiny_llama), "--kv-cache-memory", "64Ki", *ports)
    assert status == 5, text
    assert "--max-model-len" in text


def gone(processes: list[psutil.Process], seconds: float = 20.0) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return not alive


def test_nothing_is_left_after_the_parent_is_killed(tiny_llama: Path) -> None:
    with running(tiny_llama, *TINY) as replica:
        everyone = replica.descendants()
        assert len(everyone) >= 5
        replica.process.kill()
        replica.process.wait()
        assert gone(everyone)
        deadline = time.monotonic() + 5
        while replica.run_dir.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not replica.run_dir.exists()


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM]
)
def test_the_first_signal_drains(tiny_llama: Path, number: signal.Signals) -> None:
    with running(tiny_llama, *TINY) as replica:
        everyone = replica.descendants()
        golden = Stream(replica, [5, 6, 7], 200).finish()
        stream = Stream(replica, [5, 6, 7], 200)
        stream.wait_pieces(2)
        replica.process.send_signal(number)
        assert stream.finish() == golden
        assert replica.process.wait(30) == 0
        assert gone(everyone)
        assert not replica.run_dir.exists()


def test_the_second_signal_ends_at_once(tiny_llama: Path) -> None:
    with running(tiny_llama, *TINY) as replica:
        everyone = replica.descendants()
        stream = Stream(replica, [5, 6, 7], 240)
        stream.wait_pieces(1)
        os.kill(replica.process.pid, signal.SIGINT)
        time.sleep(0.1)
        os.kill(replica.process.pid, signal.SIGINT)
        assert replica.process.wait(5) in (0, 130)
        assert gone(everyone, 5)
        assert not replica.run_dir.exists()


def test_nothing_can_be_unpickled_in_the_server_and_its_core(
    tiny_llama: Path, tmp_path: Path
) -> None:
    path = os.pathsep.join([str(SUPPORT), os.environ["PYTHONPATH"]])
    env = {"PYTHONPATH": path, "POISON_WITNESS": str(tmp_path)}
    with running(tiny_llama, *TINY, env=env) as replica:
        replica.complete([5, 6, 7], 4)
        assert replica.stop() == 0
    told = [json.loads(file.read_text()) for file in tmp_path.iterdir()]
    for module in ("torpor_engine", "torpor_engine.core"):
        [found] = [each for each in told if module in each["argv"]]
        assert found["outcomes"].keys() == WAYS.keys()
        for way, text in found["outcomes"].items():
            assert "something was unpickled" in text, f"{module}: {way} gave {text}"


def test_a_dead_core_ends_the_server_and_its_workers(tiny_llama: Path) -> None:
    with running(tiny_llama, *TINY) as replica:
        everyone = replica.descendants()
        core = next(p for p in everyone if "torpor_engine.core" in " ".join(p.cmdline()))
        core.kill()
        assert replica.process.wait(30) != 0
        assert gone(everyone)
        assert "core process ended" in replica.stderr()
        assert not replica.run_dir.exists()


@pytest.fixture(scope="module")
def named(tiny_llama: Path) -> Iterator[Replica]:
    """A server whose admin token the environment names."""
    with running(tiny_llama, "--dtype", "float32", env={"TORPOR_ADMIN_TOKEN": "secret"}) as replica:
        yield replica


def test_the_ready_line_holds_a_curl_that_works(named: Replica) -> None:
    command = named.ready_line.partition("Try: ")[2]
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout)["choices"][0]["message"]["role"] == "assistant"


def test_the_token_of_the_environment_is_taken(named: Replica) -> None:
    assert named.request("GET", named.admin_url + "/state", token="secret")[0] == 200
    assert named.request("GET", named.admin_url + "/state", token="other")[0] == 401
    assert named.request("GET", named.url + "/state", token="secret")[0] == 404
