"""Minimises a mixed-integer linear program with HiGHS (`scipy.optimize.milp`).

scipy is imported at the first call. The search is limited by nodes, not by time, so that the same
program gives the same result. HiGHS 1.12 prints some lines to the standard output of the process,
where a JSON document may be written. So the standard output is discarded during the call. Must
never: depend on the meaning of the program.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from router.lab.extras import MissingExtra
from router.lab.plan.decision.problem import PlanError

GAP: Final = 5e-3  # the search stops at this relative distance from the best possible value
NODES: Final = 50  # maximum number of nodes of the search tree; small programs need one
_INFEASIBLE: Final = 2  # status of `milp` if no values keep all constraints


@dataclass(slots=True)
class Columns:
    """The variables and the constraints of a linear program."""

    costs: list[float] = field(default_factory=list)
    lows: list[float] = field(default_factory=list)
    highs: list[float] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)  # 1: the variable is an integer; 0: it is not
    # Constraints: (factors by variable, lower bound, upper bound) of a weighted sum of variables.
    rows: list[tuple[dict[int, float], float, float]] = field(default_factory=list)

    def add(self, cost: float, low: float, high: float, *, whole: bool = False) -> int:
        """Add a variable; returns its number."""
        self.costs.append(cost)
        self.lows.append(low)
        self.highs.append(high)
        self.whole.append(int(whole))
        return len(self.costs) - 1


@dataclass(frozen=True, slots=True)
class Minimum:
    """The best values of the variables."""

    values: list[float]
    gap: float  # upper bound of the relative distance from the best possible value


def minimise(columns: Columns, costs: Sequence[float], highs: Sequence[float]) -> Minimum | None:
    """Find the values of the variables with the smallest total cost.

    `costs`, `highs`: used instead of the costs and upper bounds of `columns`. Returns None if no
    values keep all constraints. Raises MissingExtra, and PlanError if the search ends without a
    result.
    """
    try:
        from scipy.optimize import (  # type: ignore[import-untyped,unused-ignore]
            Bounds,
            LinearConstraint,
            milp,
        )
        from scipy.sparse import csr_array  # type: ignore[import-untyped,unused-ignore]
    except ImportError as err:
        raise MissingExtra(f"a plan needs {err.name or 'scipy'}: pip install '.[lab]'") from None
    constraints: Any = ()
    if columns.rows:
        numbers = [number for number, (row, _, _) in enumerate(columns.rows) for _ in row]
        places = [column for row, _, _ in columns.rows for column in row]
        values = [value for row, _, _ in columns.rows for value in row.values()]
        size = (len(columns.rows), len(columns.costs))
        constraints = LinearConstraint(
            csr_array((values, (numbers, places)), shape=size),
            [low for _, low, _ in columns.rows],
            [high for _, _, high in columns.rows],
        )
    with _quiet():
        found = milp(
            costs,
            integrality=columns.whole,
            bounds=Bounds(columns.lows, highs),
            constraints=constraints,
            options={"mip_rel_gap": GAP, "node_limit": NODES},
        )
    if found.x is None:
        if found.status == _INFEASIBLE:
            return None
        raise PlanError(f"the solver found no plan: {found.message}")
    return Minimum(found.x.tolist(), max(0.0, float(found.mip_gap or 0.0)))


@contextmanager
def _quiet() -> Iterator[None]:
    """Discard what C code writes to the standard output of the process."""
    sys.stdout.flush()
    flush = _libc().fflush
    flush(None)
    kept = os.dup(1)
    try:
        os.dup2(_nowhere(), 1)
        yield
    finally:
        flush(None)  # the lines that HiGHS printed are still in C's buffer
        os.dup2(kept, 1)
        os.close(kept)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


@cache
def _nowhere() -> int:
    """Return a file descriptor that discards what is written to it; it stays open."""
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
