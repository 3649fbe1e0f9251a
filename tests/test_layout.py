"""The tree: four container folders that shadow nothing, one distribution with four packages."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = {
    "protocol": "torpor_protocol",
    "engine": "torpor_engine",
    "worker": "torpor_worker",
    "operator": "torpor_operator",
}


def run_python(code: str, *, cwd: Path) -> str:
    """Standard output of `python -c code` started in `cwd`."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built by hatchling without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def wheel_files(wheel: Path) -> dict[str, bytes]:
    """Names and contents of the wheel's files."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_operator_at_the_root_is_the_standard_library() -> None:
    # The module is in sys.modules before any code of ours runs, so it is looked for anew.
    code = (
        "import sys; sys.modules.pop('operator', None); sys.path.insert(0, '');"
        "import operator; print(operator.__file__); operator.itemgetter(0)"
    )
    found = Path(run_python(code, cwd=ROOT))
    assert found.parent == Path(sysconfig.get_path("stdlib"))


def test_container_folders_are_no_packages() -> None:
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
    assert folders >= {*ROOMS, "tests", "scripts", "docs"}
    assert [name for name in folders if (ROOT / name / "__init__.py").exists()] == []


def test_tests_hold_no_package() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_test_files_have_unique_names() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(("folder", "package"), ROOMS.items())
def test_editable_install_resolves_to_the_folder(folder: str, package: str, tmp_path: Path) -> None:
    found = Path(run_python(f"import {package}; print({package}.__file__)", cwd=tmp_path))
    assert found == ROOT / folder / package / "__init__.py"


def test_no_other_distribution_provides_the_packages() -> None:
    providers = importlib.metadata.packages_distributions()
    owners = {name for package in ROOMS.values() for name in providers.get(package, ["torpor"])}
    assert owners == {"torpor"}


@pytest.mark.parametrize("package", ROOMS.values())
def test_wheel_holds_every_module_and_marks_its_types(
    package: str, wheel_files: dict[str, bytes]
) -> None:
    (folder,) = [folder for folder, name in ROOMS.items() if name == package]
    modules = {path.relative_to(ROOT / folder) for path in (ROOT / folder / package).rglob("*.py")}
    assert {module.as_posix() for module in modules} <= set(wheel_files)
    assert f"{package}/py.typed" in wheel_files


def test_wheel_holds_nothing_else(wheel_files: dict[str, bytes]) -> None:
    tops = {name.partition("/")[0] for name in wheel_files}
    metadata = {top for top in tops if top.endswith(".dist-info")}
    assert len(metadata) == 1
    assert tops == {*ROOMS.values(), *metadata}
    assert f"{metadata.pop()}/licenses/LICENSE" in wheel_files
    assert not [name for name in wheel_files if name.endswith((".pyc", ".pth"))]


def test_wheel_names_no_path_of_this_machine(wheel_files: dict[str, bytes]) -> None:
    here = {str(ROOT).encode(), sys.prefix.encode()}
    if (home := Path.home()) != Path(home.anchor):
        here.add(f"{home}/".encode())
    guilty = [
        name for name, content in wheel_files.items() if any(path in content for path in here)
    ]
    assert not guilty


def test_constraints_pin_versions_and_name_no_place() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert "torch==2.13.0" in pins
    assert [line for line in pins if "==" not in line] == []
    assert [line for line in lines if "://" in line or "/" in line or " @ " in line] == []
