"""pip's settings reach uv: files and variables alike, and uv's own variables win."""

from __future__ import annotations

from pathlib import Path

from run_uv import parse_pip_config, uv_environment


def test_variables_beat_files_and_install_beats_global() -> None:
    listing = (
        ":env:.cert='/env.pem'\n"
        "global.cert='/global.pem'\n"
        "global.index-url='https://a.example/simple'\n"
        "install.index-url='https://b.example/simple?x=1'\n"
        "freeze.timeout='9'\n"
    )
    assert parse_pip_config(listing) == {
        "cert": "/env.pem",
        "index-url": "https://b.example/simple?x=1",
    }


def test_settings_are_passed_under_uvs_names() -> None:
    options = {
        "index-url": "https://a.example/simple",
        "cert": "/ca.pem",
        "trusted-host": "\na.example\nb.example",
        "proxy": "http://proxy.example:3128",
        "timeout": "60",
        "no-color": "true",
    }
    assert uv_environment(options, {"PATH": "/bin"}) == {
        "PATH": "/bin",
        "UV_DEFAULT_INDEX": "https://a.example/simple",
        "SSL_CERT_FILE": "/ca.pem",
        "UV_INSECURE_HOST": "a.example b.example",
        "HTTP_PROXY": "http://proxy.example:3128",
        "HTTPS_PROXY": "http://proxy.example:3128",
        "UV_HTTP_TIMEOUT": "60",
    }


def test_several_indexes_are_searched_as_pip_does() -> None:
    options = {"extra-index-url": "https://a.example/x https://b.example/y"}
    assert uv_environment(options, {}) == {
        "UV_INDEX": "https://a.example/x https://b.example/y",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_missing_link_folders_are_left_out(tmp_path: Path) -> None:
    links = f"{tmp_path} {tmp_path}/missing https://a.example/wheels"
    environment = uv_environment({"find-links": links}, {})
    assert environment == {"UV_FIND_LINKS": f"{tmp_path},https://a.example/wheels"}
    assert uv_environment({"find-links": f"{tmp_path}/missing"}, {}) == {}


def test_uvs_own_variables_win() -> None:
    options = {"index-url": "https://a.example/simple", "cert": "/pip.pem"}
    own = {"UV_INDEX_URL": "https://own.example/simple", "SSL_CERT_FILE": "/own.pem"}
    assert uv_environment(options, own) == own
