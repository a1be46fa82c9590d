"""No compiled function calls itself, directly or through other functions of its module.

Compiled code has no recursion limit: recursion over the input would overflow the stack of the
process, or block the event loop. Calls between modules are not followed.
"""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.places import ROOT

Name = tuple[str, str]  # class or "", function


def compiled() -> list[str]:
    """The modules that setup.py compiles, by its own output."""
    said: dict[str, set[str]] = {}
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in ("HOT", "NOT_HOT"):
                said[name] = set(ast.literal_eval(node.value))
    found = {str(file.relative_to(ROOT)) for hot in said["HOT"] for file in ROOT.glob(hot)}
    return sorted(found - said["NOT_HOT"])


def called(function: ast.AST, owner: str) -> Iterator[Name]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            target = node.func
            if isinstance(target, ast.Name):
                yield "", target.id
            elif isinstance(target, ast.Attribute) and _is_self(target.value):
                yield owner, target.attr


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def calls(source: str) -> dict[Name, set[Name]]:
    """For each function and method of a module, the functions that it calls."""
    graph: dict[Name, set[Name]] = {}
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.parse(source).body:
        if isinstance(node, functions):
            graph["", node.name] = set(called(node, ""))
        elif isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, functions):
                    graph[node.name, part.name] = set(called(part, node.name))
    return graph


def test_no_function_calls_itself() -> None:
    for file in compiled():
        try:
            TopologicalSorter(calls((ROOT / file).read_text())).prepare()
        except CycleError as err:
            raise AssertionError(file) from err


@pytest.mark.parametrize(
    "source",
    [
        "def f(x):\n    return f(x[1:])",
        "def f(x):\n    return g(x)\ndef g(x):\n    return [f(y) for y in x]",
        "class A:\n    def f(self):\n        self.g()\n    def g(self):\n        self.f()",
    ],
)
def test_the_test_finds_recursion(source: str) -> None:
    with pytest.raises(CycleError):
        TopologicalSorter(calls(source)).prepare()
