"""The operator's own settings: taken from the environment, refused with cause and fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from torpor_operator.settings import Settings, read_settings
from torpor_protocol.errors import ConfigError


def variables(folder: Path, **changed: str) -> dict[str, str]:
    key = folder / "key"
    key.write_bytes(32 * b"k")
    usual = {
        "TORPOR_RUNTIME_IMAGE": "runtime:1",
        "TORPOR_NAMESPACE": "ops",
        "TORPOR_MASTER_KEY_FILE": str(key),
    }
    return usual | changed


def test_what_is_needed_is_enough(tmp_path: Path) -> None:
    settings = read_settings(variables(tmp_path))
    assert settings == Settings("runtime:1", "ops", 32 * b"k")
    assert settings.cluster_wide
    assert "kkk" not in repr(settings)


def test_lists_have_commas(tmp_path: Path) -> None:
    given = variables(tmp_path, TORPOR_WATCH_NAMESPACES="b, a,,", TORPOR_IMAGE_PULL_SECRETS="hub")
    settings = read_settings(given)
    assert settings.namespaces == ("a", "b") and not settings.cluster_wide
    assert settings.image_pull_secrets == ("hub",)


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"TORPOR_RUNTIME_IMAGE": ""}, "TORPOR_RUNTIME_IMAGE is not set"),
        ({"TORPOR_IMAGE_PULL_POLICY": "Sometimes"}, "Sometimes"),
        ({"TORPOR_MASTER_KEY_FILE": "/nowhere/key"}, "cannot be read"),
    ],
)
def test_refusals(tmp_path: Path, changed: dict[str, str], cause: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_settings(variables(tmp_path, **changed))
    assert cause in refused.value.cause and refused.value.fix


def test_a_master_key_of_another_length_is_refused(tmp_path: Path) -> None:
    given = variables(tmp_path)
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(ConfigError, match="5 bytes"):
        read_settings(given)
