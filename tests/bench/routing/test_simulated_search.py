"""The search for the highest rate that holds: brackets, precision, evaluated values."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.fleet.simulated.ladder import highest


def upto(limit: float) -> tuple[list[list[float]], object]:
    """A predicate that holds up to `limit`, and the values it was called with."""
    asked: list[list[float]] = []

    def holds(values: Sequence[float]) -> list[bool]:
        asked.append(list(values))
        return [value <= limit for value in values]

    return asked, holds


@given(
    limit=st.floats(0.01, 1000.0),
    low=st.floats(0.1, 10.0),
    width=st.floats(1.1, 10.0),
    precision=st.floats(0.01, 0.5),
)
def test_it_is_found_to_the_precision_wherever_it_begins(
    limit: float, low: float, width: float, precision: float
) -> None:
    _, holds = upto(limit)
    found = highest(holds, low, low * width, precision)  # type: ignore[arg-type]
    assert found <= limit < found * (1.0 + precision) * (1.0 + 1e-9)


def test_what_holds_again_after_a_failure_is_not_believed() -> None:
    def holds(values: Sequence[float]) -> list[bool]:
        return [value <= 2.0 or 4.0 <= value <= 5.0 for value in values]

    assert 1.9 < highest(holds, 1.0, 8.0, 0.01) <= 2.0


@pytest.mark.parametrize("answer", [True, False])
def test_it_gives_up_where_there_is_no_limit(answer: bool) -> None:
    with pytest.raises(ValueError, match="begins to fail"):
        highest(lambda values: [answer] * len(values), 1.0, 2.0, 0.01)
