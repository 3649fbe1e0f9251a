"""Children as manifests: what is in them, and when a live one has drifted."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest

from operator_builders import SETTINGS, children, deployment, resource
from torpor_operator import manifests, names
from torpor_operator.deployment import read_deployment
from torpor_operator.keys import admin_token, engine_keys, worker_keys
from torpor_operator.model import Manifest
from torpor_protocol.errors import ConfigError

ENGINE = manifests.engine_pod(deployment(), 0, SETTINGS)
WORKER = manifests.worker_pod(deployment(), 0, 1, SETTINGS)


def environment(pod: Manifest) -> dict[str, Any]:
    return {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}


def mounts(pod: Manifest) -> dict[str, str]:
    return {
        each["mountPath"]: each["name"] for each in pod["spec"]["containers"][0]["volumeMounts"]
    }


def volume(pod: Manifest, name: str) -> Manifest:
    return next(each for each in pod["spec"]["volumes"] if each["name"] == name)


@pytest.mark.parametrize("pod", [ENGINE, WORKER], ids=["engine", "worker"])
def test_pods_keep_the_restricted_profile(pod: Manifest) -> None:
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 10001
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["restartPolicy"] == "Always"


@pytest.mark.parametrize("pod", [ENGINE, WORKER], ids=["engine", "worker"])
def test_pods_find_each_other_and_belong_to_the_resource(pod: Manifest) -> None:
    metadata = pod["metadata"]
    assert pod["spec"]["hostname"] == metadata["name"]
    assert pod["spec"]["subdomain"] == "demo-pods"
    (owner,) = metadata["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == ("uid-of-demo", True)
    for service in manifests.services(deployment()):
        selected = service["spec"]["selector"].items() <= metadata["labels"].items()
        assert selected or metadata["labels"]["torpor.dev/role"] == "worker"


def test_each_pod_mounts_only_its_own_keys() -> None:
    assert volume(ENGINE, "torpor-keys")["secret"]["items"] == [
        {"key": "engine-0.json", "path": "engine.json"},
        {"key": "admin-token", "path": "admin-token"},
    ]
    assert volume(WORKER, "torpor-keys")["secret"]["items"] == [
        {"key": "worker-0-1.json", "path": "worker.json"}
    ]
    assert mounts(WORKER)["/run/torpor/keys"] == "torpor-keys"


def test_what_a_worker_is_told() -> None:
    told = environment(WORKER)
    assert told["TORPOR_ENGINE"] == "tcp://demo-0-engine.demo-pods.default.svc:7070"
    assert (told["TORPOR_REPLICA"], told["TORPOR_WORKER"], told["TORPOR_DEVICES"]) == (
        "0",
        "1",
        "1",
    )
    assert told["TORPOR_REVISION"] == deployment().revision
    assert "replicas" not in json.loads(told["TORPOR_DEPLOYMENT"])["spec"]
    assert mounts(WORKER)["/dev/shm"] == "torpor-shm"
    assert volume(WORKER, "torpor-shm")["emptyDir"] == {"medium": "Memory", "sizeLimit": "2Gi"}


def test_an_accelerator_is_asked_for_each_rank_of_a_pod() -> None:
    of = deployment(
        parallelism={"tensor": 4},
        worker={"ranksPerPod": 2, "resources": {"limits": {"memory": "8Gi"}}},
    )
    assert of.workers == 2
    limits = manifests.worker_pod(of, 0, 1, SETTINGS)["spec"]["containers"][0]["resources"][
        "limits"
    ]
    assert limits == {"memory": "8Gi", "nvidia.com/gpu": 2}


def test_probes_and_grace_of_an_engine() -> None:
    container = ENGINE["spec"]["containers"][0]
    # On the admin port: clients could take all connections of theirs.
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 8001}
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": 8001}
    assert container["livenessProbe"]["failureThreshold"] == 6
    start = container["startupProbe"]
    assert start["httpGet"]["path"] == "/livez"
    assert start["periodSeconds"] * start["failureThreshold"] == 300
    assert ENGINE["spec"]["terminationGracePeriodSeconds"] == 73
    assert "livenessProbe" not in WORKER["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("model", "path", "mounted"),
    [
        (
            {"source": "pvc://models/a/b"},
            "/model/a/b",
            {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
        ),
        (
            {"source": "pvc://models"},
            "/model",
            {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
        ),
        (
            {"source": "oci://r.example.com/m:1", "digest": "sha256:" + 64 * "a"},
            "/model",
            {
                "image": {
                    "reference": "r.example.com/m:1@sha256:" + 64 * "a",
                    "pullPolicy": "IfNotPresent",
                }
            },
        ),
        ({"source": "file:///models/x"}, "/models/x", None),
    ],
)
def test_model_sources(model: Manifest, path: str, mounted: Manifest | None) -> None:
    of = deployment(model=model)
    for pod in (manifests.engine_pod(of, 0, SETTINGS), manifests.worker_pod(of, 0, 0, SETTINGS)):
        assert environment(pod)["TORPOR_MODEL_PATH"] == path
        if mounted is None:
            assert "/model" not in mounts(pod)
        else:
            assert volume(pod, "torpor-model") == {"name": "torpor-model", **mounted}


@pytest.mark.parametrize("source", ["hf://org/name", "s3://bucket/path"])
def test_other_sources_are_refused_with_a_fix(source: str) -> None:
    with pytest.raises(ConfigError) as refused:
        deployment(model={"source": source})
    assert "not supported by this version" in refused.value.cause
    assert "pvc://" in refused.value.fix


def test_what_the_user_sets_reaches_the_pod() -> None:
    of = deployment(
        engine={
            "image": "mine:2",
            "env": [{"name": "HOME", "value": "/cache"}, {"name": "A", "value": "b"}],
            "nodeSelector": {"disk": "fast"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "priorityClassName": "serving",
            "securityContext": {"runAsUser": 7, "fsGroup": 8},
            "volumes": [{"name": "cache", "mountPath": "/cache", "emptyDir": {}}],
        }
    )
    pod = manifests.engine_pod(of, 0, SETTINGS)
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    assert container["image"] == "mine:2" and "imagePullPolicy" not in container
    assert environment(pod)["HOME"] == "/cache" and environment(pod)["A"] == "b"
    assert [each["name"] for each in container["env"]].count("HOME") == 1
    assert spec["nodeSelector"] == {"disk": "fast"} and spec["priorityClassName"] == "serving"
    assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["fsGroup"]) == (7, 8)
    assert mounts(pod)["/cache"] == "cache" and volume(pod, "cache")["emptyDir"] == {}


def test_network_policies() -> None:
    engine, workers = manifests.network_policies(deployment(), "torpor-system")
    ports = {rule["ports"][0]["port"]: rule.get("from") for rule in engine["spec"]["ingress"]}
    assert ports[8000] is None
    (operator,) = ports[8001]
    assert operator["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "torpor-operator"}
    namespace = operator["namespaceSelector"]["matchLabels"]
    assert namespace == {"kubernetes.io/metadata.name": "torpor-system"}
    (worker,) = ports[7070]
    assert worker["podSelector"]["matchLabels"]["torpor.dev/role"] == "worker"
    (only,) = workers["spec"]["ingress"]
    assert only["from"] == [{"podSelector": {"matchLabels": {"torpor.dev/deployment": "demo"}}}]
    assert "Egress" not in engine["spec"]["policyTypes"] + workers["spec"]["policyTypes"]


@pytest.mark.parametrize(("replicas", "least"), [(0, 0), (1, 0), (3, 2)])
def test_a_drain_takes_one_engine_at_a_time(replicas: int, least: int) -> None:
    budget = manifests.disruption_budget(deployment(replicas=replicas))
    assert budget["spec"]["minAvailable"] == least


def test_keys_are_derived_and_fit_each_other() -> None:
    data = manifests.keys_secret(deployment(), [0, 2], SETTINGS)["data"]
    texts = {key: base64.b64decode(value).decode() for key, value in data.items()}
    assert set(texts) == {
        "admin-token",
        *("engine-0.json", "worker-0-0.json", "worker-0-1.json"),
        *("engine-2.json", "worker-2-0.json", "worker-2-1.json"),
    }
    assert texts["admin-token"] == admin_token(SETTINGS.master_key, "uid-of-demo")
    engine, worker = json.loads(texts["engine-2.json"]), json.loads(texts["worker-2-1.json"])
    assert engine["workers"][1] == worker["public"]
    assert worker["server"] == engine["public"]
    assert engine["secret"] == engine_keys(SETTINGS.master_key, "uid-of-demo", 2).secret
    assert worker["secret"] == worker_keys(SETTINGS.master_key, "uid-of-demo", 2, 1).secret


def test_keys_differ_between_deployments() -> None:
    assert admin_token(bytes(32), "one") != admin_token(bytes(32), "two")
    assert engine_keys(bytes(32), "one", 0) != engine_keys(bytes(32), "one", 1)


def test_the_revision_is_of_what_shapes_pods() -> None:
    first = deployment().revision
    same: list[dict[str, Any]] = [
        {"replicas": 3},
        {"standby": {"maxReplicas": 2}},
        {"standby": {"level": 1}},
        {"rollout": {"maxUnavailable": 2}},
        {"engine": {"maxNumSeqs": 64}},
    ]
    assert {deployment(**spec).revision for spec in same} == {first}
    other: list[dict[str, Any]] = [
        {"engine": {"maxNumSeqs": 32}},
        {"wake": {"idleSeconds": 1}},
        {"drainTimeoutSeconds": 1},
        {"parallelism": {"tensor": 4}},
    ]
    assert len({deployment(**spec).revision for spec in other} | {first}) == 5


def test_defaults_that_the_api_server_fills_in_change_no_revision() -> None:
    filled = resource()
    filled["spec"] = deployment().spec.to_wire()
    assert read_deployment(filled).revision == deployment().revision


LIVE = {f"{child.kind}/{child.name}": child.manifest for child in children(deployment())}


def as_stored(wanted: Manifest) -> Manifest:
    """With some of what the API server adds."""
    live = copy.deepcopy(wanted)
    live["metadata"] |= {"uid": "x", "resourceVersion": "7", "managedFields": [{}]}
    live["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = False
    live["metadata"]["labels"]["team"] = "search"
    if wanted["kind"] == "Service":
        live["spec"] |= {"sessionAffinity": "None", "ipFamilies": ["IPv4"]}
        live["spec"]["ports"].append({"name": "extra", "port": 9, "protocol": "TCP"})
    return live


@pytest.mark.parametrize("wanted", LIVE.values(), ids=LIVE)
def test_what_others_add_is_no_drift(wanted: Manifest) -> None:
    assert not manifests.differs(as_stored(wanted), wanted)


def test_drift() -> None:
    service = as_stored(LIVE["Service/demo"])
    service["spec"]["ports"][0]["targetPort"] = 9
    assert manifests.differs(service, LIVE["Service/demo"])
    policy = as_stored(LIVE["NetworkPolicy/demo-engine"])
    policy["spec"]["podSelector"]["matchLabels"]["nobody"] = "has it"
    assert manifests.differs(policy, LIVE["NetworkPolicy/demo-engine"])
    budget = as_stored(LIVE["PodDisruptionBudget/demo"])
    del budget["metadata"]["labels"]["torpor.dev/deployment"]
    assert manifests.differs(budget, LIVE["PodDisruptionBudget/demo"])


def test_the_longest_names_fit() -> None:
    assert len(names.worker_pod(40 * "n", 999, 1023)) <= 63
