"""The counts of connections begin at 0, and an object of Python may take their place."""

from __future__ import annotations

from router.core.tally import Tally

COUNTS = ("client_connections", "connections_opened", "connections_reused")


def test_counts_begin_at_zero_and_belong_to_one_tally() -> None:
    first, second = Tally(), Tally()
    for n, name in enumerate(COUNTS, 1):
        setattr(first, name, getattr(first, name) + n)
    assert [getattr(first, name) for name in COUNTS] == [1, 2, 3]
    assert [getattr(second, name) for name in COUNTS] == [0, 0, 0]


def test_a_subclass_counts_more() -> None:
    """The metrics derive from it: compiled code counts into them directly."""

    class Metrics(Tally):
        def __init__(self) -> None:
            super().__init__()
            self.requests = 0

    metrics = Metrics()
    metrics.connections_opened += 1
    assert (metrics.connections_opened, metrics.requests) == (1, 0)
