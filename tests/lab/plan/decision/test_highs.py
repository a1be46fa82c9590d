"""The solver: what it returns, and that it prints nothing."""

from __future__ import annotations

import ctypes
from math import inf
from typing import Any

import pytest
import scipy.optimize

from router.lab.plan.decision.program import Columns, minimise


def knapsack(least: float) -> Columns:
    """Two integers from 0 to 3 with costs 3 and 2, of which 2 x + y is at least `least`."""
    columns = Columns()
    x, y = (columns.add(cost, 0.0, 3.0, whole=True) for cost in (3.0, 2.0))
    columns.rows.append(({x: 2.0, y: 1.0}, least, inf))
    return columns


def test_the_cheapest_integers() -> None:
    columns = knapsack(4.5)
    found = minimise(columns, columns.costs, columns.highs)
    assert found is not None
    assert found.values == pytest.approx([2.0, 1.0])
    assert found.gap == pytest.approx(0.0, abs=1e-6)


def test_nothing_is_feasible() -> None:
    columns = knapsack(10.0)
    assert minimise(columns, columns.costs, columns.highs) is None


def test_lines_of_the_solver_are_discarded(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    milp = scipy.optimize.milp

    def noisy(*args: Any, **more: Any) -> Any:
        found = milp(*args, **more)
        ctypes.CDLL(None).puts(b"a line of C code")
        return found

    monkeypatch.setattr(scipy.optimize, "milp", noisy)
    print("before")
    columns = knapsack(1.0)
    minimise(columns, columns.costs, columns.highs)
    print("after", flush=True)
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr().out == "before\nafter\n"
