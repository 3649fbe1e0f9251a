"""What a pod is told: every variable and file that is missing or wrong is named, and no secret."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from torpor_protocol import pods
from torpor_protocol.errors import ConfigError
from torpor_protocol.manifest import parse_json
from torpor_protocol.rpc import RankKeys
from torpor_protocol.transport import CurveKeys

PLACE = {
    "TORPOR_DEPLOYMENT_UID": "uid",
    "TORPOR_REPLICA": "3",
    "TORPOR_REVISION": "abc",
    "TORPOR_POD_NAME": "demo-3-engine",
    "TORPOR_POD_UID": "pod-uid",
    "TORPOR_POD_IP": "10.0.0.1",
}
ENGINE = {**PLACE, "TORPOR_DEPLOYMENT": "{}", "TORPOR_MODEL_PATH": "/model"}
WORKER = {
    **PLACE,
    "TORPOR_POD_NAME": "demo-3-worker-1",
    "TORPOR_WORKER": "1",
    "TORPOR_DEVICES": "4",
    "TORPOR_ENGINE": "tcp://demo-3-engine.demo-pods.default.svc:7070",
}
KEYS = CurveKeys.generate()
OTHER = CurveKeys.generate()


def test_an_engine_listens_on_all_interfaces_of_its_family() -> None:
    pod = pods.read_engine_pod(ENGINE)
    assert (pod.place.replica, pod.place.keys) == (3, "/run/torpor/keys")
    assert (pod.host, pod.client_port, pod.admin_port) == ("0.0.0.0", 8000, 8001)
    assert pod.wire == "tcp://0.0.0.0:7070"
    pod = pods.read_engine_pod({**ENGINE, "TORPOR_POD_IP": "fd00::1", "TORPOR_CLIENT_PORT": "0"})
    assert (pod.host, pod.client_port, pod.wire) == ("::", 0, "tcp://[::]:7070")


def test_a_worker_knows_its_engine_by_name() -> None:
    pod = pods.read_worker_pod({**WORKER, "TORPOR_KEYS": "/k", "TORPOR_PRELOAD": "a,b"})
    assert (pod.worker, pod.devices, pod.engine) == (1, 4, WORKER["TORPOR_ENGINE"])
    assert (pod.place.keys, pod.preload) == ("/k", ("a", "b"))
    assert pods.read_worker_pod(WORKER).preload == ()


@pytest.mark.parametrize("name", sorted(ENGINE))
def test_each_missing_variable_of_an_engine_is_named(name: str) -> None:
    for environ in ({**ENGINE, name: ""}, {key: ENGINE[key] for key in ENGINE if key != name}):
        with pytest.raises(ConfigError, match=name) as refused:
            pods.read_engine_pod(environ)
        assert refused.value.cause and refused.value.fix


@pytest.mark.parametrize("name", sorted(WORKER))
def test_each_missing_variable_of_a_worker_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        pods.read_worker_pod({**WORKER, name: ""})


@pytest.mark.parametrize("text", ["-1", "1.5", "x", "²", "0", "99999", "9" * 5000])
def test_a_number_that_is_none_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"TORPOR_DEVICES is .* from 1 to 1024"):
        pods.read_worker_pod({**WORKER, "TORPOR_DEVICES": text})


def test_names_of_pods() -> None:
    assert pods.engine_pod_name("demo", 3) == PLACE["TORPOR_POD_NAME"]
    assert pods.worker_pod_name("demo", 3, 1) == WORKER["TORPOR_POD_NAME"]


def test_key_files(tmp_path: Path) -> None:
    engine = pods.EngineKeys(KEYS.public, KEYS.secret, [OTHER.public])
    (tmp_path / "engine.json").write_bytes(msgspec.json.encode(engine))
    assert pods.read_engine_keys(tmp_path) == engine
    assert KEYS.secret not in repr(engine)
    worker = RankKeys(OTHER.public, OTHER.secret, KEYS.public)
    (tmp_path / "worker.json").write_bytes(msgspec.json.encode(worker))
    assert pods.read_worker_keys(tmp_path) == worker
    (tmp_path / "admin-token").write_text("token-1\n")
    assert pods.read_token(tmp_path) == "token-1"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        "{",
        '{"public": 1}',
        f'{{"public": "{KEYS.public}", "secret": "{KEYS.secret}", "workers": ["x"], "server": ""}}',
        f'{{"public": "{KEYS.public}", "secret": "{KEYS.secret[:-1]}", "workers": []}}',
        f'{{"public": "{KEYS.public}", "secret": "{KEYS.secret[:-1]}", "server": "x"}}',
        "\udcff",
    ],
)
def test_a_key_file_that_is_none_is_refused_and_not_repeated(tmp_path: Path, content: str) -> None:
    for name in ("engine.json", "worker.json"):
        (tmp_path / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    for read in (pods.read_engine_keys, pods.read_worker_keys):
        with pytest.raises(ConfigError) as refused:
            read(tmp_path)
        assert refused.value.fix
        assert KEYS.secret[:10] not in str(refused.value)


def test_files_that_are_missing_or_empty(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine\.json cannot be read: No such file"):
        pods.read_engine_keys(tmp_path)
    (tmp_path / "admin-token").write_text("\n")
    with pytest.raises(ConfigError, match="holds no token"):
        pods.read_token(tmp_path)


def test_the_resource_as_json() -> None:
    resource = (
        '{"apiVersion": "torpor.dev/v1alpha1", "kind": "InferenceDeployment",'
        ' "metadata": {"name": "demo", "namespace": "default", "uid": "uid"},'
        ' "spec": {"model": {"source": "pvc://models/llama", "servedNames": ["\\ud83d\\ude00"]}}}'
    )
    assert parse_json(resource.replace("\\ud83d\\ude00", "x"), "X").metadata.name == "demo"
    for wrong in ("", "{", "[]", '{"kind": "Pod"}', resource.replace("model", "modell")):
        with pytest.raises(ConfigError, match="TORPOR_DEPLOYMENT"):
            parse_json(wrong, "TORPOR_DEPLOYMENT")
