"""Each part of a replica's state has one writer, which is the one that its docstring names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.fleet.error_answers import ErrorAnswers
from router.fleet.health import Health
from router.fleet.replica import Replica
from router.fleet.state.endpoint import Endpoint
from router.fleet.state.learned import Learned
from router.fleet.state.listed_models import ListedModels
from router.fleet.state.reports import Reports
from router.fleet.state.standing import Standing
from tests.places import ROOT

TABLE = "router/fleet/table"
# By part: the name under which `Replica` has it, its class, and the files that may assign its
# fields, besides the file of its class.
PARTS = {
    "endpoint": (
        Endpoint,
        {f"router/fleet/monitor/{name}.py" for name in ("ask", "probe", "poller")},
    ),
    "listed": (ListedModels, {f"{TABLE}/probe_results.py"}),
    "standing": (Standing, {f"{TABLE}/fleet.py"}),
    "reports": (Reports, {f"{TABLE}/poll_results.py"}),
    "learned": (Learned, set[str]()),
    "health": (
        Health,
        {f"{TABLE}/{name}.py" for name in ("outcomes", "probe_results", "table", "fleet")},
    ),
    "errors": (ErrorAnswers, set[str]()),
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
        if part is not None and node.attr in PARTS[part][0].__slots__:
            may_write = PARTS[part][1]
        elif last_name(node.value) in NAMES_OF_REPLICAS and node.attr in {
            *Replica.__slots__,
            "engine",
        }:
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
    kind, writers = PARTS[part]
    assert len(kind.__slots__) <= 25
    text = kind.__doc__ or ""
    assert "write" in text
    places = {f"{Path(writer).parent.name}/" for writer in writers}
    assert all(place in text for place in places)


def test_a_replica_is_made_of_parts() -> None:
    assert len(Replica.__slots__) <= 25
    assert set(PARTS) <= set(Replica.__slots__)
