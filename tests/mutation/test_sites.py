"""Each mutant differs from its module in one place that a test can notice."""

import ast

import pytest

from tests.mutation.sites import mutant, sites

SOURCE = '''
"""A docstring."""
from __future__ import annotations

LEAST: int = 3


def chosen(a: int, b: int) -> int:
    """Another."""
    if a < b and b:
        log_event(1, "two")
        return a - b
    a += 1
    assert a
    note(a)
    return 0
'''


def test_every_mutant_is_another_program() -> None:
    plain = ast.unparse(ast.parse(SOURCE))
    changed = [mutant(SOURCE, at).source.strip() for at in range(sites(SOURCE))]
    assert len({*changed, plain}) == len(changed) + 1
    for source in changed:
        compile(source, "mutant", "exec")


def test_what_is_changed() -> None:
    found = [(mutant(SOURCE, at).line, mutant(SOURCE, at).what) for at in range(sites(SOURCE))]
    assert sorted(found) == [
        (5, "constant 3 changed"),
        (10, "and, or exchanged"),
        (10, "comparison turned"),
        (10, "condition turned"),
        (12, "None returned"),
        (12, "operator exchanged"),
        (13, "constant 1 changed"),
        (13, "statement left out"),
        (15, "statement left out"),
        (16, "None returned"),
        (16, "constant 0 changed"),
    ]


def test_there_are_no_more() -> None:
    with pytest.raises(IndexError):
        mutant(SOURCE, sites(SOURCE))
