"""The price of a copy: 0 at an idle replica, 1 at a busy one, and never lower for more work."""

import pytest
from hypothesis import given, strategies as st

from router.dispatch.hedging.copy_price import (
    BUSY,
    EMPTY_BUSY,
    EMPTY_IDLE,
    FEW,
    IDLE,
    MANY,
    WINDOW_S,
    RecentWork,
    price,
)


@pytest.mark.parametrize(
    ("share", "load", "expected"),
    [
        (0.0, 0, 0.0),
        (0.0, FEW, 0.0),
        (IDLE, 1, 0.0),
        (BUSY, 1, 1.0),
        (0.0, MANY, 1.0),
        ((IDLE + BUSY) / 2, FEW, 0.5),
        (EMPTY_IDLE, 0, 0.0),
        (EMPTY_BUSY, 0, 1.0),
        (50.0, 0, 1.0),
        (0.0, 10**6, 1.0),
    ],
)
def test_the_price(share: float, load: int, expected: float) -> None:
    assert price(share, load) == pytest.approx(expected)


@given(st.floats(0.0, 10.0), st.floats(0.0, 10.0), st.integers(0, 100), st.integers(0, 100))
def test_more_work_is_never_cheaper(share: float, more: float, load: int, others: int) -> None:
    before = price(share, load)
    assert 0.0 <= before <= price(share + more, load + others) <= 1.0


def test_a_steady_load_has_its_share_and_is_forgotten() -> None:
    work = RecentWork()
    assert work.share(1000.0) == 0.0
    for second in range(1200):
        work.add(0.2, 1000.0 + second)
    assert work.share(2199.0) == pytest.approx(0.2, rel=0.02)
    assert work.share(2199.0 + 10.0 * WINDOW_S) < 0.001
    assert work.share(0.0) == work.share(2199.0)  # a clock that goes back changes nothing
