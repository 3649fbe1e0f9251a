"""Write the CustomResourceDefinition from the models: the plain file, and the chart's copy.

Run by `make crds`; `--check` writes nothing and fails when a file differs. The chart's copy has one
more annotation: Helm leaves the definition, and with it every InferenceDeployment, on uninstall.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from torpor_protocol.api.crd import crd

ROOT = Path(__file__).resolve().parents[1]
PLAIN = Path("crds/inferencedeployments.torpor.dev.yaml")
CHART = Path("charts/torpor/files/inferencedeployments.torpor.dev.yaml")
HEADER = (
    "# Made by `make crds` from protocol/torpor_protocol/api. Change the models, not this file.\n"
)


class PlainDumper(yaml.SafeDumper):
    """Without anchors: parts that the schema uses twice are written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def as_yaml(definition: dict[str, Any]) -> str:
    """The definition as one YAML document, in the order in which it was made."""
    return HEADER + yaml.dump(definition, Dumper=PlainDumper, sort_keys=False, width=100)


def files() -> dict[Path, str]:
    """Path below the repository -> what must be in it."""
    definition = crd()
    kept = crd()
    kept["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
    return {PLAIN: as_yaml(definition), CHART: as_yaml(kept)}


def differing(root: Path, wanted: Mapping[Path, str]) -> list[Path]:
    """The files that are missing or say something else."""
    return [
        path
        for path, text in wanted.items()
        if not (root / path).is_file() or (root / path).read_text(encoding="utf-8") != text
    ]


def main(arguments: list[str], root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Write the CRD from the models.")
    parser.add_argument("--check", action="store_true", help="only say whether a file differs")
    check = parser.parse_args(arguments).check
    wanted = files()
    changed = differing(root, wanted)
    for path in changed:
        if check:
            print(f"error: {path} is not what the models say. Run make crds.", file=sys.stderr)
            continue
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(wanted[path], encoding="utf-8")
        print(f"wrote {path}")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
