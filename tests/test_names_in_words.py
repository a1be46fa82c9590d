"""Names in docstrings and documents exist: modules in packages' lists, files, classes, settings."""

import ast
import re
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import msgspec
import pytest

from router.config.addons import NEEDS
from router.config.model import Config
from router.config.reference import page
from router.core.addons import is_installed
from tests.places import ROOT

SOURCES = [p for top in ("router", "policies") for p in sorted((ROOT / top).rglob("*.py"))]
TOPS = ("router", "policies", "bench", "tests", "deploy", "docs")
FILES = [str(path.relative_to(ROOT)) for top in TOPS for path in (ROOT / top).rglob("*")]
FILES += ["setup.py", "Makefile", "README.md", "ARCHITECTURE.md"]
# In these documents every name in backquotes is checked, and every file and method in a drawing.
DOCUMENTS = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs" / "decisions").glob("*.md"))]
# Names of other programs, protocols and of Python itself.
FOREIGN = {"[DONE]", "in", "send", "super", "typing.Protocol", "asyncio.Protocol", "x[i] += 1", "*"}
SECTIONS = {field.name for field in msgspec.structs.fields(Config)}
_LISTED = re.compile(r"^    ([a-z_]+(?:, [a-z_]+)*) {2,}\S", re.MULTILINE)
_FILE = re.compile(r"`([a-z_/]+\.py)`")
_DRAWING = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"`([^`]+)`")
_DRAWN = re.compile(r"[\w/]+\.py\b|\b[A-Z]\w+\.\w+\b")


def doc(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text()), clean=False) or ""


def is_file(name: str) -> bool:
    """Whether a file or folder has this path, or this end of a path. A module may lack `.py`."""
    name = name.rstrip("/")
    addon = re.match(r"(?:router/)?addons/(\w+)", name)
    if addon and addon[1] in NEEDS and not is_installed(addon[1]):
        return True  # It was removed.
    return any(f == end or f.endswith("/" + end) for f in FILES for end in (name, name + ".py"))


@cache
def text() -> str:
    files = [*SOURCES, *(ROOT / "bench").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    extra = [ROOT / "setup.py", ROOT / "pyproject.toml"]
    return "\n".join(path.read_text() for path in (*files, *extra) if path != Path(__file__))


@cache
def words() -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text()))


@cache
def settings() -> tuple[str, ...]:
    found = re.findall(r"^(?:- `|## )([\w.*\[\]]+)", page(), re.MULTILINE)
    return tuple(name.replace("[]", ".*") for name in found)


@cache
def members(name: str) -> frozenset[str]:
    """The names of a class's methods and attributes, those of its base classes included."""
    found: set[str] = set()
    for path in SOURCES:
        if f"class {name}" not in path.read_text():
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name == name:
                bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
                found |= set().union(*map(members, bases))
                found |= set(re.findall(r"\bself\.(\w+)", ast.unparse(node)))
                for part in ast.walk(node):
                    if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                        found.add(part.name)
                    elif isinstance(part, ast.AnnAssign):
                        found.add(ast.unparse(part.target))
    return frozenset(found)


def exists(name: str) -> bool:
    """Whether the program has what a document names: a file, member, setting, target or word."""
    name = name.replace("\n", " ").strip()
    if name in FOREIGN or name.startswith("<"):
        return True
    name = name.replace("<name>", "vllm").removeprefix("hedgerow_")
    if re.search(r"\.(py|md|json|yaml)$", name) or re.match(r"[a-z_]+/", name):
        return is_file(name)
    if match := re.fullmatch(r"make ([a-z-]+)", name):
        return f"\n{match[1]}:" in (ROOT / "Makefile").read_text()
    if match := re.fullmatch(r"([A-Z]\w+)\.(\w+)", name):
        return match[2] in members(match[1])
    if re.fullmatch(r"[A-Z][a-z]\w*", name):
        return f"class {name}" in text() or name in words()
    if match := re.fullmatch(r"keys\.\*\.(\w+)", name):  # a line of the file of keys
        return match[1] in members("KeyLine")
    section, dot, _ = name.partition(".")
    if dot and section in SECTIONS:
        known = name.partition(":")[0].replace("classes.*", "classes.low")
        return any(fnmatch(setting, known) for setting in settings())
    return all(word in words() for word in re.findall(r"[A-Za-z_]\w{2,}", name))


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
        for path in (*SOURCES, ROOT / "README.md")
        for name in _FILE.findall(path.read_text())
        if not is_file(name)
    ]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_what_a_document_names_exists(document: Path) -> None:
    content = document.read_text()
    names = _QUOTED.findall(_DRAWING.sub("", content))
    names += [name for drawing in _DRAWING.findall(content) for name in _DRAWN.findall(drawing)]
    assert [name for name in names if not exists(name)] == []


@pytest.mark.parametrize(
    "name",
    [
        *("dispatch/queueing/no_such.py", "fleet/no_such/", "no_such.py", "lab/plan/no_such"),
        *("QueueDriver.regions_changed", "NoSuchClass.begin", "AttemptState.no_such"),
        *("NoSuchClass", "no_such_function", "reload.no_such", "limits.no_such"),
        *(
            "make no-such",
            "hedgerow no_such",
            "classes.*.no_such",
            "limits.interval",
            "keys.*.interval",
        ),
    ],
)
def test_what_does_not_exist_is_found(name: str) -> None:
    assert not exists(name)


def test_the_map_is_short() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 300
    assert len((ROOT / "bench" / "RESULTS.md").read_text().splitlines()) <= 600


def test_each_decision_is_listed() -> None:
    listed = re.findall(
        r"\]\(docs/decisions/([\w-]+\.md)\)", (ROOT / "ARCHITECTURE.md").read_text()
    )
    assert {path.name for path in DOCUMENTS[1:]} == set(listed)


def figures(content: str) -> set[float]:
    """The numbers with a fraction, or with a comma before thousands, in a text."""
    found = re.findall(r"\d+\.\d+|\d{1,3}(?:,\d{3})+|\d{4,}", content)
    return {float(number.replace(",", "")) for number in found}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_figures_are_from_the_results(document: Path) -> None:
    """Those of the table of features, and of the paragraphs that say what was measured."""
    content = document.read_text()
    parts = [p for p in content.split("\n\n") if p.startswith(("Measured", "| feature |"))]
    results = figures((ROOT / "bench" / "RESULTS.md").read_text())
    assert {n for part in parts for n in figures(part) if n not in results} == set()
