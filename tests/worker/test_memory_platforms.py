"""Platforms are chosen by name and answer what the worker asks."""

from __future__ import annotations

import pytest
import torch

from torpor_protocol.errors import ConfigError
from torpor_worker.memory.cpu import CpuMemoryPool
from torpor_worker.platforms import select_platform, torch_dtype
from torpor_worker.platforms.cuda import CudaPlatform


def test_cpu() -> None:
    platform = select_platform("cpu")
    assert platform.claim(0) == platform.device == torch.device("cpu")
    assert platform.pool() is platform.pool()
    assert isinstance(platform.pool(), CpuMemoryPool)
    assert platform.distributed_backend == "gloo"
    assert 0 < platform.resident() < platform.memory_snapshot().total
    for name in ("float32", "bfloat16", "float16"):
        platform.check_dtype(name)
    platform.synchronize()


def test_unknown_platform_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="Choose one of cpu, cuda"):
        select_platform("abacus")


def test_dtypes() -> None:
    assert torch_dtype("bfloat16") is torch.bfloat16


def test_cuda_without_a_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="Rank 1 of this pod has no CUDA device; 1 are visible"):
        CudaPlatform().claim(1)


def test_cuda_refuses_bfloat16_on_old_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    platform = CudaPlatform()
    platform.claim(0)
    with pytest.raises(ConfigError, match="Choose one of float16, float32"):
        platform.check_dtype("bfloat16")
