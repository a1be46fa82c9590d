"""Names in docstrings and ARCHITECTURE.md exist: modules in packages' lists, and files."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.places import ROOT

SOURCES = [p for top in ("router", "policies") for p in sorted((ROOT / top).rglob("*.py"))]
FILES = [
    str(path.relative_to(ROOT))
    for top in ("router", "policies", "bench", "tests")
    for path in (ROOT / top).rglob("*.py")
] + ["setup.py"]
_LISTED = re.compile(r"^    ([a-z_]+(?:, [a-z_]+)*) {2,}\S", re.MULTILINE)
_FILE = re.compile(r"`([a-z_/]+\.py)`")


def doc(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text()), clean=False) or ""


@pytest.mark.parametrize(
    "package", [p for p in SOURCES if p.name == "__init__.py" and doc(p)], ids=str
)
def test_a_packages_list_names_its_modules(package: Path) -> None:
    for names in _LISTED.findall(doc(package)):
        for name in names.split(", "):
            folder = package.parent
            assert (folder / f"{name}.py").exists() or (folder / name).is_dir(), name


@pytest.mark.parametrize("path", [*SOURCES, ROOT / "ARCHITECTURE.md", ROOT / "README.md"], ids=str)
def test_a_file_that_is_named_exists(path: Path) -> None:
    for name in _FILE.findall(path.read_text()):
        assert any(file == name or file.endswith("/" + name) for file in FILES), name
