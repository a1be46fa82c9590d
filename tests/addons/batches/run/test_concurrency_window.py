"""The window of concurrent lines grows with good answers, halves on refusals, obeys Retry-After."""

from __future__ import annotations

from router.addons.batches.run.concurrency_window import (
    FIRST,
    LEAST,
    PAUSE_MAX_S,
    PAUSE_S,
    ConcurrencyWindow,
)


def fill(pace: ConcurrencyWindow, now: float) -> int:
    """Send as many as allowed and return their number."""
    count = 0
    while pace.admits(now):
        pace.left()
        count += 1
    return count


def test_it_begins_low_and_doubles_with_every_round() -> None:
    pace = ConcurrencyWindow(64)
    sizes = []
    for now in range(6):
        size = fill(pace, float(now))
        sizes.append(size)
        for _ in range(size):
            pace.answered()
    # Half of a round's answers arrive when few lines are in progress and the window is no limit.
    assert sizes[0] == FIRST
    assert sizes == sorted(sizes)
    assert sizes[-1] > 4 * FIRST
    assert pace.under_way == 0


def test_it_never_passes_its_bound() -> None:
    pace = ConcurrencyWindow(8)
    for now in range(20):
        assert fill(pace, float(now)) <= 8
        while pace.under_way:
            pace.answered()
    assert pace.window == 8


def test_a_round_of_refusals_is_one_cut() -> None:
    pace = ConcurrencyWindow(64)
    pace.window = 32.0
    assert fill(pace, 1.0) == 32
    for _ in range(32):
        pace.refused(1.0, 2.0, None)
    assert pace.window == 16
    assert pace.under_way == 0
    assert not pace.admits(2.0 + PAUSE_S - 0.01)
    assert fill(pace, 2.0 + PAUSE_S) == 16
    pace.refused(3.0, 4.0, None)
    assert pace.window == 8


def test_it_waits_as_long_as_it_is_told_and_no_longer_than_is_sensible() -> None:
    pace = ConcurrencyWindow(64)
    pace.left()
    assert pace.refused(0.0, 10.0, 5.0) == 15.0
    assert not pace.admits(14.9)
    assert pace.admits(15.0)
    pace.left()
    assert pace.refused(15.0, 16.0, 1e9) == 16.0 + PAUSE_MAX_S
    pace.left()
    assert pace.refused(16.0, 17.0, 0.0) == 16.0 + PAUSE_MAX_S  # never shortened


def test_one_at_a_time_is_the_least() -> None:
    pace = ConcurrencyWindow(64)
    for now in range(0, 200, 2):
        pace.left()
        pace.refused(now + 1000.0, now + 1001.0, 0.0)
    assert pace.window == LEAST
    assert fill(pace, 5000.0) == 1


def test_after_a_refusal_it_grows_by_one_per_round() -> None:
    pace = ConcurrencyWindow(64)
    pace.left()
    pace.refused(0.0, 1.0, 0.0)
    pace.window = 16.0
    assert fill(pace, 2.0) == 16
    for _ in range(16):
        pace.answered()
    assert 16.4 < pace.window <= 17.0
