"""What a deployment lacked appears, and it goes on by itself: claim, folder, image, device."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster_kit import CLIENT
from infd import infd, runtime, with_tag
from kube import Kube, Object, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.real_model,
    pytest.mark.timeout(900, func_only=True),
]

CLAIM, FOLDER = "later", "smollm2"
DEVICE = "torpor.dev/e2e-device"
SCRIPT = Path(__file__).parents[2] / "scripts" / "cluster.sh"
NOT_POSSIBLE = 3  # its exit status where the images are not ours to push
# Asked once: the environment of each test holds nothing of the user's.
ENVIRONMENT = dict(os.environ)
_COPY = "import shutil, sys; shutil.copytree('/model', sys.argv[1])"


def together(deployment: str) -> dict[str, Any]:
    """On the node of that deployment's pods: a claim may be of one node."""
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"torpor.dev/deployment": deployment}},
    }
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def claim() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }


def filler(images: dict[str, str], deployment: str) -> Object:
    """Copies the model from its image into the claim. As root: a new volume is often root's."""
    mounts = [{"name": "model", "mountPath": "/model"}, {"name": "claim", "mountPath": "/claim"}]
    container = {
        "name": "fill",
        "image": images["runtime"],
        "command": ["python", "-c", _COPY, f"/claim/{FOLDER}"],
        "securityContext": {"runAsUser": 0, "runAsNonRoot": False},
        "volumeMounts": mounts,
    }
    volumes = [
        {"name": "model", "image": {"reference": images["model"]}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": CLAIM}},
    ]
    spec = {
        "restartPolicy": "Never",
        "affinity": together(deployment),
        "containers": [container],
        "volumes": volumes,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "filler"}, "spec": spec}


def has_default_class(kube: Kube) -> bool:
    key = "storageclass.kubernetes.io/is-default-class"
    classes = kube.listed("storageclass")
    return any((each["metadata"].get("annotations") or {}).get(key) == "true" for each in classes)


def test_a_claim_is_made_and_then_filled(space: Kube, images: dict[str, str]) -> None:
    if not has_default_class(space):
        pytest.skip("the cluster has no default StorageClass")
    name, near = "claimed", {"affinity": together("claimed")}
    model = {"source": f"pvc://{CLAIM}/{FOLDER}"}
    space.apply(infd(name, images["model"], model=model, engine=near, worker=near))
    space.wait_reason(name, "VolumeNotFound", 60)
    space.apply(claim())
    started = time.monotonic()
    space.wait_reason(name, "ModelNotFound", 120)
    assert f"/model/{FOLDER}" in space.condition(name)["message"]
    print(f"empty claim: told {time.monotonic() - started:.1f} s after the claim was made")
    uids = space.uids(name)
    space.apply(filler(images, name))
    space.kubectl(
        "wait", "pod/filler", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s"
    )
    started = time.monotonic()
    space.wait_ready(name, 400)
    print(f"filled claim: Ready {time.monotonic() - started:.1f} s later")
    assert space.uids(name) == uids, "the pods themselves heal"
    space.kubectl("delete", "infd", name, "--timeout=60s")


def test_a_corrected_image_serves(space: Kube, images: dict[str, str]) -> None:
    name, wrong = "corrected", with_tag(images["runtime"], "none-such")
    space.apply(infd(name, images["model"], **runtime(wrong)))
    space.wait_reason(name, "ImagePullFailed", 60)
    removed = {"spec": {part: {"image": None} for part in runtime(wrong)}}
    space.kubectl("patch", "infd", name, "--type=merge", "-p", json.dumps(removed))
    started = time.monotonic()
    space.wait_ready(name, 400)
    print(f"corrected image: Ready after {time.monotonic() - started:.1f} s")
    space.kubectl("delete", "infd", name, "--timeout=60s")


def push_again(name: str, tag: str) -> None:
    """The image of that name, under another tag too; skips where the images are somebody's."""
    done = subprocess.run(
        [SCRIPT, "again", name, tag],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode == NOT_POSSIBLE:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("image", "reason"), [("runtime", "ImagePullFailed"), ("model", "ModelNotFound")]
)
def test_an_image_is_pushed(space: Kube, images: dict[str, str], image: str, reason: str) -> None:
    """The pods go on by themselves, at the kubelet's next try."""
    name, tag = f"pushed-{image}", f"later-{time.time_ns()}"  # a registry keeps what it once had
    later = with_tag(images[image], tag)
    fields = runtime(later) if image == "runtime" else {"model": {"source": f"oci://{later}"}}
    space.apply(infd(name, images["model"], **fields))
    space.wait_reason(name, reason, 60)
    uids = space.uids(name)
    push_again(image, tag)
    started = time.monotonic()
    space.wait_ready(name, 400)
    print(f"{image} pushed: Ready {time.monotonic() - started:.1f} s later")
    assert space.uids(name) == uids
    space.kubectl("delete", "infd", name, "--timeout=60s")


@pytest.fixture
def device(kube: Kube) -> Iterator[None]:
    """A device on the client's node, as a device plug-in would report it; it goes at the end."""
    if kube.try_kubectl("auth", "can-i", "patch", "nodes", "--subresource=status").returncode:
        pytest.skip("the nodes of this cluster are not ours to change")
    name = kube.get("pod", CLIENT)["spec"]["nodeName"]
    path = f"/status/capacity/{DEVICE.replace('/', '~1')}"

    def patch(operation: dict[str, str]) -> None:
        words = json.dumps([operation | {"path": path}])
        kube.kubectl("patch", "node", name, "--subresource=status", "--type=json", "-p", words)

    patch({"op": "add", "value": "1"})
    yield
    patch({"op": "remove"})


def test_a_device_appears(
    space: Kube, images: dict[str, str], request: pytest.FixtureRequest
) -> None:
    name, nowhere = "devices", {"nodeSelector": {"torpor.dev/none-such": "true"}}
    worker = {"accelerator": DEVICE}
    space.apply(infd(name, images["model"], engine=nowhere, worker=worker))
    space.wait_reason(name, "InsufficientGPU", 60)
    request.getfixturevalue("device")
    wait_for(
        lambda: space.pods(name, "worker")[0]["spec"].get("nodeName"),
        60,
        lambda: f"no node takes it: {space.condition(name)}",
    )
    wait_for(
        lambda: space.condition(name, "WorkersReady")["reason"] != "InsufficientGPU",
        60,
        lambda: f"it stays: {space.condition(name)}",
    )
    space.kubectl("delete", "infd", name, "--timeout=60s")
