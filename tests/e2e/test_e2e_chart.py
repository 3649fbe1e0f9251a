"""The chart by each Helm: install, upgrade, test, uninstall, install again; pods stay the same."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from cluster_kit import CHART, RELEASE, SYSTEM
from helm_chart import HELMS, helm, install_operator, try_helm
from infd import infd
from kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.real_model, pytest.mark.timeout(900, func_only=True)]

NAME = "kept"
CRD = "inferencedeployments.torpor.dev"
KEY = f"{RELEASE}-master-key"
OPERATOR = "app.kubernetes.io/component=operator"
OF_RELEASE = f"app.kubernetes.io/instance={RELEASE}"
EVERY_KIND = (
    "deployments,pods,services,serviceaccounts,secrets,networkpolicies,roles,rolebindings,"
    "clusterroles,clusterrolebindings"
)


@pytest.fixture(scope="module")
def kept(space: Kube, images: dict[str, str]) -> Iterator[dict[str, str]]:
    """The pods of a replica that serves all the time: name -> uid."""
    space.apply(infd(NAME, images["model"]))
    space.wait_ready(NAME, 400)
    yield space.uids(NAME)
    space.kubectl("delete", "infd", NAME, "--timeout=60s")


@pytest.fixture(
    scope="module", params=[pytest.param(each, marks=pytest.mark.slow) for each in HELMS]
)
def program(
    request: pytest.FixtureRequest, kept: dict[str, str], images: dict[str, str]
) -> Iterator[str]:
    """A Helm that has installed the operator anew; at the end it is as all tests find it."""
    this = str(request.param)
    print(f"\n{this} {helm(this, 'version', '--short').strip()}")
    uninstall("helm")
    install_operator(images, this)
    yield this
    uninstall(this)
    install_operator(images)


def uninstall(program: str) -> None:
    helm(program, "uninstall", RELEASE, f"--namespace={SYSTEM}", "--wait", "--timeout=120s")
    system = Kube(SYSTEM)
    wait_for(lambda: not system.listed("pods", OPERATOR), 60, lambda: "the operator's pod stays")


def serves(kube: Kube, pods: dict[str, str]) -> None:
    """The operator works, reaches the engine by its key, and took no pod away."""
    kube.kubectl("delete", "service", NAME)
    wait_for(lambda: kube.exists("service", NAME), 60, lambda: "the Service does not come back")
    kube.wait_ready(NAME, 120)
    assert kube.uids(NAME) == pods


def test_an_upgrade_leaves_the_pods_of_models_alone(
    program: str, space: Kube, kept: dict[str, str], images: dict[str, str]
) -> None:
    system = Kube(SYSTEM)
    (before,) = system.listed("pods", OPERATOR)
    key = system.get("secret", KEY)["data"]
    changed = [
        f"--set=watchNamespaces={{{space.namespace}}}",
        "--set=metrics.enabled=true",
        "--set=networkPolicy.enabled=true",
        "--set=podAnnotations.example\\.com/upgraded=yes",
        "--set-string=runtimeImage.tag=another",
    ]
    words = install_operator(images, program, *changed)
    assert f"serves the namespaces {space.namespace}." in words
    (after,) = system.listed("pods", OPERATOR)
    assert after["metadata"]["uid"] != before["metadata"]["uid"], "the operator rolls"
    assert after["metadata"]["annotations"]["example.com/upgraded"] == "yes"
    assert [port["name"] for port in system.get("service", RELEASE)["spec"]["ports"]] == [
        "health",
        "metrics",
    ]
    assert system.exists("networkpolicy", RELEASE)
    assert system.get("secret", KEY)["data"] == key
    assert not system.exists("clusterrole", f"{SYSTEM}:{RELEASE}")
    serves(space, kept)
    install_operator(images, program)
    assert not system.exists("networkpolicy", RELEASE)
    serves(space, kept)


def test_helm_test_asks_the_operator(program: str) -> None:
    words = helm(program, "test", RELEASE, f"--namespace={SYSTEM}", "--logs", "--timeout=180s")
    assert re.search(r"Phase:\s+Succeeded", words), words
    assert "/healthz: 200" in words


def test_after_an_uninstall_stays_what_the_notes_say(
    program: str, space: Kube, kept: dict[str, str], images: dict[str, str]
) -> None:
    system = Kube(SYSTEM)
    notes = helm(program, "get", "notes", RELEASE, f"--namespace={SYSTEM}")
    key = system.get("secret", KEY)
    uninstall(program)
    named = set(re.findall(r"delete (?:secret|lease|pod) (\S+)", notes))
    kinds = f"{EVERY_KIND},leases"
    left = {each["metadata"]["name"] for each in system.listed(kinds, OF_RELEASE)}
    left |= {each["metadata"]["name"] for each in system.listed("leases")}
    assert {KEY} <= left <= named, notes
    assert f"delete crd {CRD}" in notes and system.exists("crd", CRD)
    assert "delete infd --all -A" in notes and space.exists("infd", NAME)
    assert space.uids(NAME) == kept
    space.kubectl("delete", "service", NAME)
    time.sleep(3)
    assert not space.exists("service", NAME), "no operator is left"
    started = time.monotonic()
    install_operator(images, program)
    assert system.get("secret", KEY)["data"] == key["data"]
    wait_for(lambda: space.exists("service", NAME), 60, lambda: "the Service does not come back")
    serves(space, kept)
    print(f"{program}: installed again and all taken up after {time.monotonic() - started:.1f} s")


@pytest.mark.slow
def test_both_majors_of_helm_are_tried() -> None:
    """Here, not where a machine has one of them only: `scripts/cluster.sh helms` finds them."""
    assert {helm(tool, "version", "--template", "{{.Version}}")[:2] for tool in HELMS} == {
        "v3",
        "v4",
    }


@pytest.mark.parametrize("tool", HELMS)
def test_a_rendered_chart_can_be_applied(tool: str, operator: Kube) -> None:
    """As a GitOps tool does it: with a key of its own, for each rendering would make another."""
    cluster = json.loads(operator.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]
    flags = ["template", RELEASE, str(CHART), f"--namespace={SYSTEM}", f"--kube-version={cluster}"]
    rendered = helm(tool, *flags, f"--set=masterKey.existingSecret={KEY}")
    apply = ["apply", "--dry-run=server", "-f", "-"]
    for mode in ([], ["--server-side", "--force-conflicts"]):
        applied = operator.kubectl(*apply, *mode, text=rendered)
        assert f"customresourcedefinition.apiextensions.k8s.io/{CRD}" in applied
        assert len(applied.splitlines()) > 8
    refused = operator.try_kubectl(*apply, text=helm(tool, *flags))
    assert refused.returncode != 0 and "immutable" in refused.stderr, refused.stderr
    # Where nothing is installed yet, it is taken as it is.
    other = ["template", "other", str(CHART), "--namespace=default", f"--kube-version={cluster}"]
    assert Kube("default").kubectl(*apply, text=helm(tool, *other))


@pytest.mark.parametrize("tool", HELMS)
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--set=image.repositry=x"], "repositry"),
        (["--set=replicas=2"], "replicas"),
        (["--set=imagePullPolicy=Sometimes"], "IfNotPresent"),
        (["--set=image.tag=a b"], "image[./]tag"),
        (["--set=image.digest=sha256:1"], "image[./]digest"),
        (["--set-string=watchNamespaces=default"], "array"),
        (["--set=watchNamespaces={Upper}"], "watchNamespaces[./]0"),
        (["--set=masterKey.existingSecret=Upper"], "existingSecret"),
        (["--set=runAsUser=0"], r"runAsUser.*(minimum|Must be greater)"),
        (["--set-string=metrics.enabled=yes"], "boolean"),
        (["--set=resources.limit.memory=1Gi"], "limit"),
    ],
)
def test_wrong_values_are_refused(tool: str, flags: list[str], words: str) -> None:
    done = try_helm(tool, "template", RELEASE, str(CHART), *flags)
    assert done.returncode != 0, "they were taken"
    assert "schema" in done.stderr
    assert re.search(words, done.stderr), done.stderr
