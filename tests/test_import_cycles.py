"""No module of the router or the policies is part of an import cycle.

Imports count at every place: also inside functions, and under `TYPE_CHECKING`, which hides a cycle
from the interpreter but not from a reader of the two modules.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Set
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.places import ROOT


def modules(root: Path, *packages: str) -> dict[str, Path]:
    """Every module of the packages below `root`, by its dotted name."""
    found = {}
    for package in packages:
        for path in (root / package).rglob("*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
            found[".".join(parts)] = path
    return found


def imports(module: str, path: Path, known: Mapping[str, Path]) -> set[str]:
    """The modules of `known` that a module imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(name.name for name in node.names if name.name in known)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{module}: a relative import"
            for name in node.names:
                full = f"{node.module}.{name.name}"
                found.add(full if full in known else node.module)
    return (found & known.keys()) - {module}


def cycle(graph: Mapping[str, Set[str]]) -> list[str]:
    """The modules of one cycle, each imported by the next; [] if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as err:
        return list(err.args[1])
    return []


def test_there_is_none() -> None:
    known = modules(ROOT, "router", "policies")
    assert len(known) > 300
    assert cycle({name: imports(name, path, known) for name, path in known.items()}) == []


@pytest.mark.parametrize(
    "line",
    [
        "import router.b",
        "from router import b",
        "from router.b import B",
        "if TYPE_CHECKING:\n    from router.b import B",
        "def late():\n    from router.b import B",
    ],
)
def test_each_way_to_import_counts(tmp_path: Path, line: str) -> None:
    (tmp_path / "router").mkdir()
    (tmp_path / "router/__init__.py").write_text("")
    (tmp_path / "router/a.py").write_text(line)
    (tmp_path / "router/b.py").write_text("from router.c import C")
    (tmp_path / "router/c.py").write_text("from router.a import A")
    known = modules(tmp_path, "router")
    found = cycle({name: imports(name, path, known) for name, path in known.items()})
    assert set(found) == {"router.a", "router.b", "router.c"}
