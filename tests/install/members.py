"""What an sdist and a wheel of this program must contain: these files and no others."""

import ast
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

PACKAGES = ("policies", "router")
DOCUMENTS = ("ARCHITECTURE.md", "README.md", "bench/RESULTS.md")
BUILD_FILES = ("MANIFEST.in", "pyproject.toml", "setup.py")
MADE_BY_SETUPTOOLS = ("PKG-INFO", "setup.cfg")
WHEEL_METADATA = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt")
EGG_INFO = (
    *("PKG-INFO", "SOURCES.txt", "dependency_links.txt"),
    *("entry_points.txt", "requires.txt", "top_level.txt"),
)


def sources(top: Path) -> set[str]:
    """The Python files of the installed packages, and the marks of the typed ones (PEP 561)."""
    files = (
        file
        for name in PACKAGES
        for file in (top / name).rglob("*")
        if file.suffix == ".py" or file.name == "py.typed"
    )
    return {str(file.relative_to(top)) for file in files}


def compiled(top: Path) -> set[str]:
    """The sources that setup.py compiles, as it lists them."""
    lists = {}
    for node in ast.parse((top / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in ("HOT", "NOT_HOT"):
                lists[name] = ast.literal_eval(node.value)
    files = {str(file.relative_to(top)) for glob in lists["HOT"] for file in top.glob(glob)}
    return {file for file in files - lists["NOT_HOT"] if not file.endswith("__init__.py")}


def expected_sdist(top: Path, version: str) -> set[str]:
    """The members of the sdist."""
    folders = [file for name in ("deploy", "docs") for file in (top / name).rglob("*")]
    documents = {str(file.relative_to(top)) for file in folders if file.is_file()}
    egg_info = {f"hedgerow.egg-info/{name}" for name in EGG_INFO}
    files = sources(top) | documents | egg_info
    files |= {*DOCUMENTS, *BUILD_FILES, *MADE_BY_SETUPTOOLS}
    return {f"hedgerow-{version}/{file}" for file in files}


def expected_wheel(top: Path, version: str, suffix: str) -> set[str]:
    """The members of a compiled wheel; `suffix`: the suffix of extension modules."""
    libraries = {file.removesuffix(".py") + suffix for file in compiled(top)}
    metadata = {f"hedgerow-{version}.dist-info/{name}" for name in WHEEL_METADATA}
    return sources(top) | libraries | metadata | {f"hedgerow__mypyc{suffix}"}


def members(archive: Path) -> set[str]:
    """The files in an sdist (.tar.gz) or a wheel."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {name for name in wheel.namelist() if not name.endswith("/")}
    with tarfile.open(archive) as sdist:
        return {member.name for member in sdist if member.isfile()}


def differences(found: Iterable[str], expected: Iterable[str]) -> list[str]:
    """One line for each file that is missing or unexpected."""
    found, expected = set(found), set(expected)
    return [
        *(f"missing: {name}" for name in sorted(expected - found)),
        *(f"must not be there: {name}" for name in sorted(found - expected)),
    ]
