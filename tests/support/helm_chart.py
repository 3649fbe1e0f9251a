"""The chart on a cluster, by each Helm that is to be tried.

TORPOR_E2E_HELM names the programs, with a colon between them; the one on the PATH is the default.
"""

from __future__ import annotations

import os
import subprocess

from cluster_kit import install_flags

# Asked once: the environment of each test holds nothing of the user's.
HELMS = [each for each in os.environ.get("TORPOR_E2E_HELM", "").split(":") if each] or ["helm"]


def try_helm(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=660, check=False
    )


def helm(program: str, *arguments: str) -> str:
    """Standard output. Fails with standard error when the command does."""
    done = try_helm(program, *arguments)
    assert done.returncode == 0, f"{program} {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def install_operator(images: dict[str, str], program: str = "helm", *flags: str) -> str:
    """The chart, installed or upgraded, once its operator is ready; gives Helm's words."""
    return helm(program, *install_flags(images["operator"], images["runtime"], 600), *flags)
