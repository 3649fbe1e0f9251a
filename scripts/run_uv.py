"""Run uv with the settings that pip has.

uv installs this project in seconds where pip needs minutes, but it does not read pip's settings.
People set an index, a certificate or a proxy once, for pip; this wrapper asks pip for what it would
use (files and PIP_* variables alike) and hands it to uv under uv's own names. A variable of uv's
that is already set always wins. Only the standard library is used: this runs before any install.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# pip's option -> the variables of uv (or of the libraries under it) that mean the same.
SAME_MEANING = {
    "index-url": ("UV_DEFAULT_INDEX",),
    "extra-index-url": ("UV_INDEX",),
    "find-links": ("UV_FIND_LINKS",),
    "trusted-host": ("UV_INSECURE_HOST",),
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "proxy": ("HTTP_PROXY", "HTTPS_PROXY"),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
}
# pip reads its sections in this order; the later one wins.
SECTIONS = ("global", "install", ":env:")


def parse_pip_config(text: str) -> dict[str, str]:
    """Options of `pip config list`, whose lines read `section.option='value'`."""
    found: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in text.splitlines():
        key, separator, quoted = line.partition("=")
        section, dot, option = key.strip().rpartition(".")
        if separator and dot and section in found:
            found[section][option] = str(ast.literal_eval(quoted))
    return {option: value for section in SECTIONS for option, value in found[section].items()}


def uv_value(option: str, value: str) -> str:
    """The value as uv wants it: lists are split by blanks or, for find-links, by commas."""
    if option == "find-links":
        # pip passes over a missing folder with a warning, uv stops at it.
        links = [link for link in value.split() if "://" in link or Path(link).exists()]
        return ",".join(links)
    return " ".join(value.split())


def uv_environment(options: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` with pip's options added under uv's names, where those are not set yet."""
    result = dict(environment)
    for option, value in options.items():
        for name in SAME_MEANING.get(option, ()):
            if converted := uv_value(option, value):
                result.setdefault(name, converted)
    # Two words for one thing: uv refuses neither, so the older one must not be overruled.
    if "UV_INDEX_URL" in environment and "UV_DEFAULT_INDEX" not in environment:
        result.pop("UV_DEFAULT_INDEX", None)
    if "UV_INDEX" in result:
        # pip takes the best version of all indexes, uv by default the first index that answers.
        result.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    return result


def main() -> int:
    """Run `uv` with this script's arguments; return its exit status."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    environment = uv_environment(parse_pip_config(listing.stdout), os.environ)
    return subprocess.call([sys.executable, "-m", "uv", *sys.argv[1:]], env=environment)


if __name__ == "__main__":
    sys.exit(main())
