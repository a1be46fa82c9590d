"""The window of concurrent lines grows with good answers, halves on refusals, obeys Retry-After."""

from collections import Counter

from hypothesis import given, strategies as st

from router.addons.batches.run.concurrency_window import (
    FIRST,
    LEAST,
    PAUSE_MAX_S,
    PAUSE_S,
    ConcurrencyWindow,
    LineScheduler,
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


def anyone(member: str) -> bool:
    return True


def test_owners_share_whatever_they_bring() -> None:
    turns: LineScheduler[str] = LineScheduler()
    for member in ("a1", "a2", "a3", "b1"):
        turns.add(member[0], member)
    given = [turns.next(anyone) for _ in range(12)]
    assert Counter(member[0] for member in given if member) == {"a": 6, "b": 6}
    assert Counter(given) == {"b1": 6, "a1": 2, "a2": 2, "a3": 2}


def test_who_is_blocked_keeps_its_place() -> None:
    turns: LineScheduler[str] = LineScheduler()
    for member in ("a", "b", "c"):
        turns.add(member, member)
    assert [turns.next(lambda m: m != "a") for _ in range(3)] == ["b", "c", "b"]
    assert turns.next(anyone) == "a"
    assert turns.next(lambda m: False) is None


def test_the_gone_are_forgotten() -> None:
    turns: LineScheduler[str] = LineScheduler()
    turns.add("a", "a1")
    turns.discard("a", "a1")
    turns.discard("a", "a1")
    turns.discard("nobody", "x")
    assert turns.next(anyone) is None
    assert turns.next(anyone) is None


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, unique=True))
def test_nobody_waits_longer_than_a_round(members: list[tuple[int, int]]) -> None:
    turns: LineScheduler[tuple[int, int]] = LineScheduler()
    for member in members:
        turns.add(str(member[0]), member)
    owners = {member[0] for member in members}
    most = max(Counter(member[0] for member in members).values())
    seen = [turns.next(lambda m: True) for _ in range(len(owners) * most)]
    assert set(seen) == set(members)
    for at in range(0, len(seen), len(owners)):
        assert {m[0] for m in seen[at : at + len(owners)] if m is not None} == owners
