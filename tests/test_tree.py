"""The tests mirror the tree: a test folder has the name of a program folder, a file of its module.

A file without a module of its name tests several modules of its folder, or one property of them.
"""

from pathlib import Path

from tests.conftest import COLD, NIGHTLY
from tests.places import ROOT
from tests.test_sockets import TESTS, is_apart

FILES_MOST = 23  # test files and helpers in one folder

FOLDERS = sorted(
    path
    for path in TESTS.rglob("*")
    if any(path.glob("*.py")) and path.relative_to(TESTS).parts[0] != "data"
)
MIRRORING = [path for path in FOLDERS if not is_apart(path)]


def package(folder: Path) -> Path:
    """The folder of the program that a folder of tests mirrors."""
    inner = folder.relative_to(TESTS)
    return ROOT / inner if inner.parts[0] == "policies" else ROOT / "router" / inner


def misplaced(folder: Path, package: Path) -> list[str]:
    """Test files whose module is in a folder below, not in the mirrored one."""
    found = []
    for path in folder.glob("test_*.py"):
        module = path.name.removeprefix("test_")
        is_here = (package / module).exists() or (package / module.removesuffix(".py")).is_dir()
        if not is_here:
            found += [f"{path.name}: {at.relative_to(ROOT)}" for at in package.rglob(module)]
    return found


def test_a_folder_is_one_of_the_program() -> None:
    assert [folder for folder in MIRRORING if not package(folder).is_dir()] == []


def test_a_test_is_beside_its_module() -> None:
    assert [misplaced(folder, package(folder)) for folder in MIRRORING] == [[]] * len(MIRRORING)


def test_a_folder_is_small() -> None:
    sizes = {
        str(folder): len([path for path in folder.glob("*.py") if path.name != "__init__.py"])
        for folder in FOLDERS
    }
    assert {folder: size for folder, size in sizes.items() if size > FILES_MOST} == {}


def test_the_nightly_files_exist() -> None:
    assert [path for path in NIGHTLY if not (ROOT / path).is_file()] == []
    assert [path for path in COLD if not (ROOT / path).is_dir()] == []


def test_a_test_in_a_folder_above_is_found(tmp_path: Path) -> None:
    (tmp_path / "test_detect.py").write_text("")
    (tmp_path / "test_registry.py").write_text("")
    assert len(misplaced(tmp_path, ROOT / "router" / "fleet" / "engines")) == 2
    assert misplaced(tmp_path, ROOT / "router" / "fleet" / "engines" / "common") == []
