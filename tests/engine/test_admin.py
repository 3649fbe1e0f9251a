"""The admin port: what it does, who may use it, and that the client port has none of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from api_server import MODEL, TOKEN, ApiServer, api_server
from torpor_protocol.requests import DrainCommand, SleepCommand, WakeCommand

ADMIN = [
    ("GET", "/state"),
    ("POST", "/sleep"),
    ("POST", "/wake_up"),
    ("GET", "/is_sleeping"),
    ("POST", "/drain"),
    ("PUT", "/on_call?value=true"),
]
ASK = {"model": MODEL, "prompt": "x", "max_tokens": 4}


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with api_server() as running:
        yield running


@pytest.fixture(autouse=True)
def awake(server: ApiServer) -> None:
    server.call(lambda: server.core.set_state("Awake"))
    server.core.commands.clear()
    server.core.command_error = ""


@pytest.mark.parametrize(("method", "path"), ADMIN)
def test_the_client_port_has_none_of_it(server: ApiServer, method: str, path: str) -> None:
    for variant in (path, f"{path}/", f"//{path[1:]}", f"/v1{path}", f"/./{path[1:]}"):
        headers = {"authorization": f"Bearer {TOKEN}"}
        answer = server.request(method, server.url + variant, headers=headers)
        assert (answer.status, answer.error["code"]) == (404, "not_found")
    assert server.core.commands == []


@pytest.mark.parametrize(("method", "path"), [*ADMIN, ("GET", "/metrics"), ("GET", "/nothing")])
@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x", TOKEN.upper()])
def test_nothing_without_the_token(server: ApiServer, method: str, path: str, token: str) -> None:
    answer = server.admin(method, path, token)
    assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
    assert server.core.commands == []


@pytest.mark.parametrize(
    "path", ["/health/../state", "/health%2f..%2fstate", "/health/state", "//state", "/STATE"]
)
def test_no_path_that_looks_open_opens_another(server: ApiServer, path: str) -> None:
    """The token is asked for by the path that routing sees, whatever Host or prefix say."""
    headers = {"host": "x/health?"}
    answer = server.request("GET", server.admin_url + path, headers=headers)
    assert answer.status == 401


def test_the_token_as_another_scheme_is_none(server: ApiServer) -> None:
    for value in (TOKEN, f"Basic {TOKEN}", f"Token {TOKEN}"):
        answer = server.request(
            "GET", server.admin_url + "/state", headers={"authorization": value}
        )
        assert answer.status == 401


def test_probes_need_no_token(server: ApiServer) -> None:
    for path in ("/health", "/livez", "/readyz"):
        assert server.admin("GET", path, token="").status == 200


def test_state(server: ApiServer) -> None:
    state = server.admin("GET", "/state").json()
    assert (state["lifecycle"], state["level"], state["asleep"]) == ("Awake", 0, [])
    assert (state["served_names"], state["unfinished"], state["refusing"]) == ([MODEL], 0, False)
    assert (state["kv_blocks"], state["block_size"], state["ranks"]) == (64, 16, [])


@pytest.mark.parametrize("level", [1, 2, 3])
@pytest.mark.parametrize("mode", ["wait", "abort", "keep"])
def test_sleep_and_wake(server: ApiServer, level: int, mode: str) -> None:
    assert server.admin("GET", "/is_sleeping").json() == {"is_sleeping": False}
    slept = server.admin("POST", f"/sleep?level={level}&mode={mode}")
    assert slept.json() == {"status": "sleeping", "level": level, "seconds": 0.25, "memory": []}
    assert server.admin("GET", "/is_sleeping").json() == {"is_sleeping": True}
    woken = server.admin("POST", "/wake_up?tags=weights&tags=kv_cache&tags=weights")
    assert woken.json()["status"] == "awake"
    assert server.admin("GET", "/is_sleeping").json() == {"is_sleeping": False}
    assert server.core.commands == [
        SleepCommand(call=0, level=level, mode=mode),  # type: ignore[arg-type]
        WakeCommand(call=0, tags=("weights", "kv_cache")),
    ]


def test_defaults(server: ApiServer) -> None:
    server.admin("POST", "/sleep")
    server.admin("POST", "/wake_up")
    assert server.core.commands == [
        SleepCommand(call=0, level=1, mode="wait"),
        WakeCommand(call=0, tags=()),
    ]


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/sleep?level=0", "level"),
        ("/sleep?level=4", "level"),
        ("/sleep?level=x", "level"),
        ("/sleep?level=" + "9" * 5000, "level"),
        ("/sleep?mode=now", "mode"),
        ("/sleep?mode=", "mode"),
        ("/wake_up?tags=scheduling", "tags.0"),
        ("/wake_up?tags=weights&tags=", "tags.1"),
    ],
)
def test_wrong_commands(server: ApiServer, path: str, param: str) -> None:
    answer = server.admin("POST", path)
    assert (answer.status, answer.error["param"]) == (400, param)
    assert server.core.commands == []


def test_a_command_that_fails_says_why(server: ApiServer) -> None:
    server.core.command_error = "A rank could not reserve 4 GiB of host memory."
    answer = server.admin("POST", "/sleep")
    assert (answer.status, answer.error["code"]) == (503, "command_failed")
    message = "A rank could not reserve 4 GiB of host memory. Try it later."
    assert answer.error["message"] == message


def test_a_partial_wake_is_still_sleep(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import msgspec

    server.admin("POST", "/sleep")
    state = server.call(server.core.state)
    partly = msgspec.structs.replace(state, asleep=("kv_cache",))
    monkeypatch.setattr(server.core, "state", lambda: partly)
    assert server.admin("GET", "/is_sleeping").json() == {"is_sleeping": True}


def test_a_dead_core_is_no_traceback() -> None:
    with api_server() as server:
        server.core.dead = True
        answer = server.admin("POST", "/sleep")
        assert (answer.status, answer.error["code"]) == (503, "engine_dead")


def test_drain_waits_for_what_runs_and_refuses_what_comes() -> None:
    with api_server() as server:
        server.core.paused = True
        answers: dict[str, Any] = {}

        def ask() -> None:
            answers["asked"] = server.post("/v1/completions", ASK)

        def drain() -> None:
            answers["drained"] = server.admin("POST", "/drain")

        asking, draining = threading.Thread(target=ask), threading.Thread(target=drain)
        asking.start()
        server.until(lambda: bool(server.core.submitted))
        draining.start()
        server.until(lambda: server.context.admission.draining)
        refused = server.post("/v1/completions", ASK)
        assert (refused.status, refused.error["code"]) == (503, "shutting_down")
        assert server.get("/readyz").status == 503
        assert server.admin("GET", "/state").json()["refusing"] is True
        assert "drained" not in answers

        def resume() -> None:
            server.core.paused = False
            server.core.go()

        server.call(resume)
        asking.join(10)
        draining.join(10)
        assert answers["asked"].status == 200
        assert answers["drained"].json()["status"] == "drained"
        assert server.core.commands == [DrainCommand(call=0)]


def test_on_call_decides_whether_a_sleeping_replica_is_ready(server: ApiServer) -> None:
    server.call(lambda: server.core.set_state("Asleep", 2))
    for value in (False, True):
        answer = server.admin("PUT", f"/on_call?value={str(value).lower()}")
        assert (answer.status, answer.json()["on_call"]) == (200, value)
        assert server.admin("GET", "/state").json()["on_call"] is value
        assert server.get("/readyz").status == (200 if value else 503)
        # Sent before everybody knew; the next one is to go elsewhere.
        answer = server.post("/v1/completions", ASK)
        assert answer.status == 200
        assert ("connection" in answer.headers) == (not value)
        server.call(lambda: server.core.set_state("Asleep", 2))
    assert server.admin("PUT", "/on_call").status == 400
    assert server.admin("PUT", "/on_call?value=maybe").status == 400
