"""Names in docstrings and ARCHITECTURE.md exist: modules in packages' lists, and files."""

from __future__ import annotations

import ast
import re
from pathlib import Path

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


def test_a_packages_list_names_its_modules() -> None:
    missing = [
        (package, name)
        for package in SOURCES
        if package.name == "__init__.py" and doc(package)
        for names in _LISTED.findall(doc(package))
        for name in names.split(", ")
        if not (package.parent / f"{name}.py").exists() and not (package.parent / name).is_dir()
    ]
    assert missing == []


def test_a_file_that_is_named_exists() -> None:
    missing = [
        (path, name)
        for path in (*SOURCES, ROOT / "ARCHITECTURE.md", ROOT / "README.md")
        for name in _FILE.findall(path.read_text())
        if not any(file == name or file.endswith("/" + name) for file in FILES)
    ]
    assert missing == []
