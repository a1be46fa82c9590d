"""The mutants of a module: one small change of its syntax tree per site.

Pure. Changes that no test could notice are left out: annotations, docstrings, `__slots__`, the text
of log messages and of errors.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
}
_QUIET = {"log_event"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of a module: the module's source with this change, and a description with its
    line.
    """

    line: int
    what: str
    source: str


def sites(source: str) -> int:
    """Number of mutants of a module."""
    return sum(1 for _ in _changes(ast.parse(source)))


def mutant(source: str, index: int) -> Mutant:
    """The mutant of this index. Raises IndexError if the index is too large."""
    tree = ast.parse(source)
    for number, (node, what, change) in enumerate(_changes(tree)):
        if number == index:
            line = getattr(node, "lineno", 0)
            change()
            return Mutant(line, what, ast.unparse(ast.fix_missing_locations(tree)) + "\n")
    raise IndexError(index)


Change = tuple[ast.AST, str, Callable[[], None]]


def _changes(tree: ast.Module) -> Iterator[Change]:
    """Every change of the tree, in the order of the source. Only one of them may be made at
    a time.
    """
    for node in _walk(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARE:
            yield node, "comparison turned", _compare(node)
        elif isinstance(node, ast.BoolOp):
            yield node, "and, or exchanged", _boolean(node)
        elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            yield node, "operator exchanged", _binary(node)
        elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
            yield node, "condition turned", _condition(node)
        elif isinstance(node, ast.Constant) and type(node.value) in (bool, int, float):
            yield node, f"constant {node.value!r} changed", _constant(node)
        elif isinstance(node, ast.Return) and not _is_none(node.value):
            yield node, "None returned", _returns_none(node)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                for at, statement in enumerate(block):
                    if _is_effect(statement):
                        yield statement, "statement left out", _left_out(block, at)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Every node except those that no test can notice."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "msg"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_unseen(child):
                yield from _walk(child)


def _is_unseen(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or _is_log(node.value)
    if isinstance(node, ast.Assign):
        return any(isinstance(t, ast.Name) and t.id.startswith("__") for t in node.targets)
    return isinstance(node, (ast.Import, ast.ImportFrom, ast.Assert, ast.JoinedStr))


def _is_log(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") in _QUIET


def _is_none(node: ast.expr | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def _is_effect(node: ast.stmt) -> bool:
    """Whether it is a call or an assignment to an attribute: without it, the rest still runs."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call) and not _is_log(node.value)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Attribute) for target in node.targets)
    return isinstance(node, ast.AugAssign)


def _compare(node: ast.Compare) -> Callable[[], None]:
    def change() -> None:
        node.ops[0] = _COMPARE[type(node.ops[0])]()

    return change


def _boolean(node: ast.BoolOp) -> Callable[[], None]:
    def change() -> None:
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()

    return change


def _binary(node: ast.BinOp) -> Callable[[], None]:
    def change() -> None:
        node.op = _BINARY[type(node.op)]()

    return change


def _condition(node: ast.If | ast.IfExp | ast.While) -> Callable[[], None]:
    def change() -> None:
        node.test = ast.UnaryOp(ast.Not(), node.test)

    return change


def _constant(node: ast.Constant) -> Callable[[], None]:
    def change() -> None:
        value = node.value
        node.value = not value if isinstance(value, bool) else value + 1  # type: ignore[operator]

    return change


def _returns_none(node: ast.Return) -> Callable[[], None]:
    def change() -> None:
        node.value = ast.Constant(None)

    return change


def _left_out(block: list[ast.stmt], at: int) -> Callable[[], None]:
    def change() -> None:
        block[at] = ast.Pass()

    return change
