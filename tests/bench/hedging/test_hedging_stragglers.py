"""The drawn times of slow engines: their share, their places, and their seed."""

from __future__ import annotations

import pytest

from bench.hedging.simulated.world import spells


def test_slow_times_cover_their_share_of_the_time() -> None:
    found = spells("a", 50, 10_000.0, 0.05, 15.0)
    slow_s = sum(one.until - one.at for one in found)
    assert slow_s / (50 * 10_000.0) == pytest.approx(0.05, rel=0.1)
    assert {one.place for one in found} == set(range(50))
    assert [one.at for one in found] == sorted(one.at for one in found)


def test_the_seed_decides() -> None:
    first = spells("a", 4, 1000.0, 0.1, 15.0)
    assert spells("a", 4, 1000.0, 0.1, 15.0) == first
    assert spells("b", 4, 1000.0, 0.1, 15.0) != first
    # Another place does not change the times at the first ones.
    assert [one for one in spells("a", 5, 1000.0, 0.1, 15.0) if one.place < 4] == first
