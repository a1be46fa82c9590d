"""Which worker serves a connection."""

from router.app.workers.balance import AWAY, HUNG_S, receiver

SEEN = [10_000] * 4  # milliseconds


def spread(counts: list[int], slot: int, connections: int) -> list[int]:
    """Accept all connections at one worker; return how many each has then."""
    counts = list(counts)
    for _ in range(connections):
        counts[receiver(counts, SEEN, slot, 10.0)] += 1
    return counts


def test_a_worker_that_accepts_all_keeps_about_half() -> None:
    assert spread([0, 0], 0, 32) == [17, 15]
    assert spread([0, 0, 0, 0], 2, 400) == [97, 97, 110, 96]


def test_a_busy_worker_gives_all_away_until_the_other_has_as_many() -> None:
    assert spread([100, 0], 0, 60) == [100, 60]


def test_many_connections_may_differ_by_an_eighth() -> None:
    """So that short connections are rarely passed."""
    assert receiver([1120, 1000], SEEN, 0, 10.0) == 0
    assert receiver([1127, 1000], SEEN, 0, 10.0) == 1


def test_a_worker_that_does_not_serve_gets_none() -> None:
    assert spread([0, AWAY], 0, 5) == [5, AWAY]


def test_a_worker_that_hangs_gets_none() -> None:
    seen = [10_000, 10_000, 10_000]
    assert receiver([5, 0, 3], seen, 0, 10.0) == 1
    seen[1] -= int(HUNG_S * 1000.0)
    assert receiver([5, 0, 3], seen, 0, 10.0) == 1
    seen[1] -= 1
    assert receiver([5, 0, 3], seen, 0, 10.0) == 2
    assert receiver([4, 0, 3], seen, 0, 10.0) == 0
