"""What the API server refuses is told in its words, and made as soon as it lets it."""

from __future__ import annotations

import pytest

from infd import broken_infd
from kube import Kube, wait_for
from operator_control import OperatorControl

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600, func_only=True)]

QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "no-pods"},
    "spec": {"hard": {"pods": "0"}},
}


def test_a_quota_is_told_and_heals(
    space: Kube, control: OperatorControl, images: dict[str, str]
) -> None:
    space.apply(QUOTA)
    # It holds from when its controller has counted what is there.
    wait_for(
        lambda: "hard" in space.get("resourcequota", "no-pods").get("status", {}),
        60,
        lambda: "nobody counts for the quota",
    )
    space.apply(broken_infd("poor", images["model"]))
    space.wait_reason("poor", "QuotaExceeded", 60, "ResourcesCreated")
    told = space.condition("poor", "ResourcesCreated")
    assert told["status"] == "False" and "exceeded quota" in told["message"]
    assert space.exists("service", "poor") and not space.pods("poor")
    space.kubectl("delete", "resourcequota", "no-pods")
    space.wait_reason("poor", "ModelNotFound", 180)
    assert len(space.pods("poor")) == 2
    assert space.condition("poor", "ResourcesCreated")["status"] == "True"
