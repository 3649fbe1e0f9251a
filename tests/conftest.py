"""Fixtures of every room: models to run, and an environment that holds nothing of the user's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from make_model import NAME, is_complete, models_folder

# Every model of a test is a folder here; a library that asks a hub would only wait for a network.
os.environ["HF_HUB_OFFLINE"] = "1"

# Models of tests are small and share the cores with their clients: threads would only spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Engine and worker processes of every test fail when they unpickle anything.
POISON = str(Path(__file__).parent / "support" / "poison")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [POISON, os.environ.get("PYTHONPATH")]))

# Asked once, before any test takes TORPOR_CACHE away.
SMOLLM2 = models_folder() / NAME


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test, and no process that a test starts, sees the user's TORPOR_* variables."""
    for name in [name for name in os.environ if name.startswith("TORPOR_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random Llama: 2 layers, 4 heads, 2 KV heads, vocabulary 1,024, float32."""
    # transformers takes seconds to import; tests that need no model do not pay for it.
    from tiny_models import make_tiny_llama

    return make_tiny_llama(tmp_path_factory.mktemp("tiny_llama"))


@pytest.fixture(scope="session")
def tiny_llama_8k(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with 8,192 positions: for a request that outlasts what a test does meanwhile, also
    where the machine computes fast and lets the test itself wait."""
    from tiny_models import make_tiny_llama

    return make_tiny_llama(tmp_path_factory.mktemp("tiny_llama_8k"), max_position=8192)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Folder of SmolLM2-135M-Instruct."""
    if not is_complete(SMOLLM2):
        pytest.fail("SmolLM2 is not in the cache; run `make model`.", pytrace=False)
    return SMOLLM2
