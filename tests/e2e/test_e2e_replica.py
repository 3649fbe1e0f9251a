"""Replicas over several pods: ready, with transformers' tokens, asleep and awake again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from cluster_stream import ClusterStream
from generation import cached_reference
from infd import infd, resident
from kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.real_model, pytest.mark.timeout(900, func_only=True)]

PROMPT = "The hummingbird sleeps at night because"
TOKENS = 32
IDLE = 6
WEIGHTS = 134_515_008 * 4  # bytes of SmolLM2 in float32
KV_CACHE = 192 * 2**20  # bytes of each rank


@pytest.fixture(scope="module")
def golden(smollm2: Path) -> str:
    """The text of transformers' greedy tokens."""
    tokenizer = Tokenizer.from_file(str(smollm2 / "tokenizer.json"))
    [(tokens, _)] = cached_reference(smollm2, [tokenizer.encode(PROMPT).ids], TOKENS)
    return str(tokenizer.decode(tokens))


@pytest.fixture(scope="module")
def wide(kube: Kube, images: dict[str, str]) -> Iterator[str]:
    """Tensor parallel over three pods, spread over the nodes."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"torpor.dev/deployment": "wide"}},
    }
    everywhere = [{"operator": "Exists", "effect": "NoSchedule"}]
    worker = {"ranksPerPod": 1, "topologySpreadConstraints": [spread], "tolerations": everywhere}
    kube.apply(
        infd(
            "wide",
            images["model"],
            parallelism={"tensor": 3},
            worker=worker,
            wake={"idleSeconds": IDLE},
            # So many that they could fill the cache: no more is taken than they can use.
            engine={"maxNumSeqs": 16},
        )
    )
    started = time.monotonic()
    kube.wait_ready("wide", 600)
    print(f"tensor 3 over three pods: apply to Ready {time.monotonic() - started:.1f} s")
    yield "wide"
    kube.kubectl("delete", "infd", "wide", "--timeout=60s")


def text(kube: Kube, name: str) -> str:
    body = {"model": name, "prompt": PROMPT, "max_tokens": TOKENS}
    return ClusterStream(kube, name, body).finish()


def test_tokens_of_three_pods_are_transformers(
    kube: Kube, nodes: frozenset[str], wide: str, golden: str
) -> None:
    assert text(kube, wide) == golden
    assert len(kube.pods(wide, "engine")) == 1
    workers = kube.pods(wide, "worker")
    assert len(workers) == 3
    if len(nodes) < 2:
        pytest.skip("the cluster has one node; the tokens are right")
    assert len({pod["spec"]["nodeName"] for pod in workers}) > 1, "the workers share one node"


def test_tokens_of_a_pipeline_are_transformers(
    kube: Kube, images: dict[str, str], golden: str
) -> None:
    kube.apply(infd("piped", images["model"], parallelism={"pipeline": 2}))
    started = time.monotonic()
    kube.wait_ready("piped", 600)
    print(f"pipeline 2: apply to Ready {time.monotonic() - started:.1f} s")
    assert text(kube, "piped") == golden
    kube.kubectl("delete", "infd", "piped", "--timeout=60s")


@pytest.mark.parametrize("level", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_scale_to_zero_sleeps_and_a_request_wakes(
    kube: Kube, wide: str, golden: str, level: int
) -> None:
    kube.kubectl(
        "patch", "infd", wide, "--type=merge", "-p", f'{{"spec":{{"standby":{{"level":{level}}}}}}}'
    )
    kube.scale(wide, 1)
    kube.wait_reason(wide, "Ready", 300)
    workers = sorted(kube.uids(wide, "worker"))
    uids = kube.uids(wide)
    before = {pod: resident(kube, pod) for pod in workers}
    started = time.monotonic()
    kube.scale(wide, 0)
    kube.wait_reason(wide, "Asleep", 120)
    slept = time.monotonic() - started
    needed = KV_CACHE if level == 1 else KV_CACHE + WEIGHTS // 3
    after = {pod: resident(kube, pod) for pod in workers}
    assert kube.uids(wide) == uids
    assert all(before[pod] - after[pod] >= 0.99 * needed for pod in workers), (before, after)
    stream = ClusterStream(kube, wide, {"model": wide, "prompt": PROMPT, "max_tokens": TOKENS})
    assert stream.finish() == golden
    first = stream.times[0] - stream.started
    freed = [round((before[pod] - after[pod]) / 2**20) for pod in workers]
    print(
        f"level {level}: asleep after {slept:.1f} s, freed {freed} MiB, token after {first:.1f} s"
    )
    assert kube.uids(wide) == uids
    if level < 3:
        # Woken by a request while none is wanted awake: it sleeps again by itself.
        wait_for(
            lambda: kube.replicas(wide).get(0) == "Asleep",
            IDLE + 90,
            lambda: f"it does not sleep again: {kube.replicas(wide)}",
        )


@pytest.mark.slow
def test_one_that_is_wanted_stays_awake(kube: Kube, wide: str) -> None:
    """Though nobody asks it for longer than ``wake.idleSeconds``."""
    kube.scale(wide, 1)
    kube.wait_reason(wide, "Ready", 300)
    deadline = time.monotonic() + 4 * IDLE
    while time.monotonic() < deadline:
        assert kube.replicas(wide) == {0: "Awake"}
        time.sleep(1)
