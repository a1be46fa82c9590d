"""Another distribution that owns one of the import names is reported by name, with a solution."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.install import names


def install(folder: Path, name: str, module: str) -> None:
    """Create the files that pip leaves for a distribution with one package."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"{module}/__init__.py,,\n{info.name}/METADATA,,\n")


def judge(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, names.__file__]
    environ = {"PYTHONPATH": str(folder)}
    return subprocess.run(command, env=environ, capture_output=True, text=True)


@pytest.mark.parametrize("module", names.OURS)
def test_a_distribution_with_one_of_our_names_is_a_failure(tmp_path: Path, module: str) -> None:
    install(tmp_path, "other", module)
    done = judge(tmp_path)
    assert done.returncode == 1
    assert f"the import name `{module}` of hedgerow also belongs to the distribution" in done.stdout
    assert "other 1.0" in done.stdout
    assert "in a virtual environment of its own" in done.stdout


def test_other_names_are_no_failure(tmp_path: Path) -> None:
    install(tmp_path, "other", "routers")
    done = judge(tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "")


def test_no_package_that_the_tests_use_owns_one_of_our_names() -> None:
    assert names.collisions() == []


def test_the_names_are_those_of_the_packages() -> None:
    top = Path(names.__file__).parent.parent.parent
    packages = {file.parent.name for file in top.glob("*/__init__.py")} - {"bench", "tests"}
    assert set(names.OURS) == packages | {"hedgerow__mypyc"}
