"""Each part of a replica's state has one writer, which is the one that its docstring names."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places import ROOT

FLEET, TABLE = "router/fleet", "router/fleet/table"
# By part: the name under which `Replica` has it, the file and name of its class, and the files that
# may assign its fields besides that file.
PARTS = {
    "endpoint": (
        "state/endpoint",
        "Endpoint",
        {f"{FLEET}/monitor/{name}.py" for name in ("ask", "probe", "poller")},
    ),
    "listed": ("state/listed_models", "ListedModels", {f"{TABLE}/probe_results.py"}),
    "standing": ("state/standing", "Standing", {f"{TABLE}/fleet.py"}),
    "reports": ("state/reports", "Reports", {f"{TABLE}/poll_results.py"}),
    "learned": ("state/learned", "Learned", set[str]()),
    "health": (
        "health",
        "Health",
        {f"{TABLE}/{name}.py" for name in ("outcomes", "probe_results", "table", "fleet")},
    ),
    "errors": ("error_answers", "ErrorAnswers", set[str]()),
}
RANKS = ("rank", "ranks", "rank_count", "rank_line", "first_rank")
# The fields of `Replica` itself that another file may assign.
OWN = {
    "descriptor": {"router/lab/simulator/router.py"},
    "engine": {"router/fleet/monitor/probe.py", "router/fleet/monitor/poller.py"},
    "group": {"router/fleet/regions/nearest.py"},
    "last_priority": {"router/dispatch/attempts/sending.py"},
    **{name: {"router/fleet/data_parallel.py"} for name in RANKS},
    "removed": {f"{TABLE}/fleet.py"},
}
NAMES_OF_REPLICAS = {
    *("replica", "rank", "lead", "made", "other", "successor", "leaving", "member"),
    *("place", "at"),
}
SOURCES = sorted((ROOT / "router").rglob("*.py"))


def class_of(file: str, name: str) -> ast.ClassDef:
    tree = ast.parse((ROOT / FLEET / f"{file}.py").read_text())
    return next(x for x in tree.body if isinstance(x, ast.ClassDef) and x.name == name)


def slots(kind: ast.ClassDef) -> set[str]:
    """The fields of a class. They are read from the source, because it may be compiled."""
    for node in kind.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__":
            return set(ast.literal_eval(node.value))
    raise AssertionError(kind.name)


FIELDS = {part: slots(class_of(file, name)) for part, (file, name, _) in PARTS.items()}
REPLICA = slots(class_of("replica", "Replica")) | {"engine"}


def stores(tree: ast.AST) -> Iterator[ast.Attribute]:
    """The attributes that a file assigns or deletes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield node


def last_name(node: ast.expr) -> str:
    """The last name in `a.b.c`, which is `c`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def aliases(tree: ast.AST) -> dict[str, str]:
    """The variables that stand for a part of a replica, such as `health = replica.health`."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = [*zip(target.elts, node.value.elts, strict=True)]
                for name, value in pairs:
                    is_alias = isinstance(name, ast.Name) and isinstance(value, ast.Attribute)
                    if is_alias and value.attr in PARTS:
                        found[name.id] = value.attr
    return found


def wrong_writes(path: Path, source: str) -> list[str]:
    """The assignments of a file to a field that it may not write."""
    tree = ast.parse(source)
    known = {**{part: part for part in PARTS}, **aliases(tree)}
    where = str(path.relative_to(ROOT))
    found = []
    for node in stores(tree):
        part = known.get(last_name(node.value))
        if part is not None and node.attr in FIELDS[part]:
            may_write = PARTS[part][2]
        elif last_name(node.value) in NAMES_OF_REPLICAS and node.attr in REPLICA:
            may_write = OWN.get(node.attr, set())
        else:
            continue
        if where not in may_write:
            found.append(f"{where}:{node.lineno}: {ast.unparse(node)}")
    return found


def test_only_its_writer_assigns_a_field_of_a_part() -> None:
    assert [line for path in SOURCES for line in wrong_writes(path, path.read_text())] == []


@pytest.mark.parametrize(
    "line",
    [
        "replica.health.up = True",
        "health = one.health\nhealth.served += 1",
        "errors, health = one.errors, one.health\nerrors.share = 0.0",
        "self.work.replica.reports.at = 0.0",
        "replica.region = ''",
    ],
)
def test_another_writer_is_found(line: str) -> None:
    assert len(wrong_writes(ROOT / "router" / "dispatch" / "dispatcher.py", line)) == 1


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_small_and_names_its_writer(part: str) -> None:
    file, name, writers = PARTS[part]
    assert len(FIELDS[part]) <= 25
    text = ast.get_docstring(class_of(file, name)) or ""
    assert "write" in text
    assert all(f"{Path(writer).parent.name}/" in text for writer in writers)


def test_a_replica_is_made_of_parts() -> None:
    assert len(REPLICA) <= 25
    assert set(PARTS) <= REPLICA
