"""Addresses and keys that the wire refuses to be opened with: one sentence why, one what to do."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from torpor_protocol.errors import ConfigError, PortError, TorporError
from torpor_protocol.limits import MAX_REFUSED_FRAMES
from torpor_protocol.transport import (
    CurveClient,
    CurveKeys,
    CurveServer,
    Dealer,
    IpcSecurity,
    Router,
)

KEYS = CurveKeys.generate()
SERVERS = {"ipc": IpcSecurity(), "curve": CurveServer(KEYS)}
CLIENTS = {"ipc": IpcSecurity(), "curve": CurveClient(CurveKeys.generate(), KEYS.public)}


def refused_to_bind(endpoint: str, security: str, kind: type[TorporError], text: str) -> None:
    router = Router(SERVERS[security])
    try:
        with pytest.raises(kind, match=text) as raised:
            router.bind(endpoint)
        assert raised.value.cause and raised.value.fix
    finally:
        router.close()


@pytest.mark.parametrize("host", ["*", "0.0.0.0", "[::]", "eth0", "localhost", ""])
def test_tcp_listens_on_one_address_only(host: str) -> None:
    refused_to_bind(f"tcp://{host}:0", "curve", ConfigError, "one address")


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_tcp_listens_on_all_interfaces_where_that_is_asked_for(host: str) -> None:
    router = Router(SERVERS["curve"])
    assert router.bind(f"tcp://{host}:0", all_interfaces=True).startswith(f"tcp://{host}:")
    router.close()
    for wrong, security in (("tcp://localhost:0", "curve"), (f"tcp://{host}:0", "ipc")):
        router = Router(SERVERS[security])
        with pytest.raises(ConfigError):
            router.bind(wrong, all_interfaces=True)
        router.close()


def test_a_dealer_takes_a_name_and_does_not_wait_until_it_exists() -> None:
    Dealer.connect("tcp://engine-0.no-such-name.invalid:1", b"rank-0", CLIENTS["curve"]).close()


def test_tcp_without_keys_is_refused_on_both_ends() -> None:
    refused_to_bind("tcp://127.0.0.1:0", "ipc", ConfigError, "open to everybody")
    with pytest.raises(ConfigError, match="open to everybody"):
        Dealer.connect("tcp://127.0.0.1:1", b"rank-0", IpcSecurity())


@pytest.mark.parametrize("endpoint", ["", "/tmp/x", "udp://127.0.0.1:1", "inproc://x", "tcp:x"])
def test_other_kinds_of_address_are_refused(endpoint: str) -> None:
    refused_to_bind(endpoint, "curve", ConfigError, "is not an address")


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o710, 0o701, 0o777])
@pytest.mark.parametrize("security", ["ipc", "curve"])
def test_a_directory_that_others_can_enter_is_refused(
    tmp_path: Path, mode: int, security: str
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(mode)
    refused_to_bind(f"ipc://{folder}/wire", security, ConfigError, "open to other users")
    with pytest.raises(ConfigError, match="open to other users"):
        Dealer.connect(f"ipc://{folder}/wire", b"rank-0", CLIENTS[security])


def test_a_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(private)
    refused_to_bind(f"ipc://{tmp_path}/link/wire", "ipc", ConfigError, "open to other users")
    refused_to_bind(f"ipc://{tmp_path}/none/wire", "ipc", ConfigError, "No such file")
    refused_to_bind(f"ipc://{private}/{'x' * 108}", "ipc", ConfigError, "path of a socket")
    refused_to_bind("ipc://relative/wire", "ipc", ConfigError, "path of a socket")
    refused_to_bind("ipc://@abstract", "ipc", ConfigError, "path of a socket")


def test_a_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    refused_to_bind(f"ipc://{folder}/wire", "ipc", ConfigError, "open to other users")


def test_an_address_in_use_is_named() -> None:
    router = Router(SERVERS["curve"])
    endpoint = router.bind("tcp://127.0.0.1:0")
    assert endpoint.startswith("tcp://127.0.0.1:") and not endpoint.endswith(":0")
    refused_to_bind(endpoint, "curve", PortError, endpoint)
    router.close()


@pytest.mark.parametrize("text", ["", "x" * 39, "x" * 41, "~" * 40, "é" * 40, "#" * 40])
def test_what_is_no_key_is_refused_and_not_repeated(text: str) -> None:
    for make in (
        lambda: CurveKeys(text, KEYS.secret),
        lambda: CurveKeys(KEYS.public, text),
        lambda: CurveClient(KEYS, text),
    ):
        with pytest.raises(ConfigError, match="not a CURVE key") as raised:
            make()
        assert not text or text not in str(raised.value)


def test_a_secret_key_is_not_printed() -> None:
    for holder in (KEYS, SERVERS["curve"], CLIENTS["curve"]):
        assert KEYS.secret not in f"{holder!r} {holder}"
    assert KEYS.public in repr(KEYS)
    assert CurveKeys.generate() != CurveKeys.generate()


def test_a_bad_peer_is_cut_off_also_where_all_interfaces_are_open() -> None:
    router = Router(SERVERS["curve"])
    own = CurveKeys.generate()
    router.admit(b"pod-0", own.public)
    port = router.bind("tcp://0.0.0.0:0", all_interfaces=True).rpartition(":")[2]
    dealer = Dealer.connect(f"tcp://127.0.0.1:{port}", b"pod-0", CurveClient(own, KEYS.public))
    for _ in range(MAX_REFUSED_FRAMES + 1):
        dealer.socket.send_multipart([b"no header", b""])
    deadline = time.monotonic() + 20.0
    while not router.disconnects:
        assert router.receive(20) == []
        assert time.monotonic() < deadline, router.rejected
    assert router.rejected["bad_header"] == MAX_REFUSED_FRAMES + 1
    dealer.close()
    router.close()
