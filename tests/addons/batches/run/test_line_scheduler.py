"""Round robin over owners, and within an owner over batches; blocked batches are skipped."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from router.addons.batches.run.concurrency_window import LineScheduler


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
