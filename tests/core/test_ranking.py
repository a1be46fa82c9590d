"""The ranking returns the item with the highest level at any time."""

from hypothesis import given, strategies as st

from router.core.ranking import Ranked, Ranking

moves = st.tuples(st.integers(0, 9), st.integers(0, 5))


@given(st.lists(st.one_of(moves, st.none()), max_size=60))
def test_the_highest_is_found(steps: list[tuple[int, int] | None]) -> None:
    ranking, things = Ranking(), [Ranked() for _ in range(10)]
    for step in [*steps, None]:
        if step is not None:
            which, level = step
            ranking.move(things[which], level)
            assert things[which].level == level
            continue
        highest = max(thing.level for thing in things)
        found = ranking.largest()
        if highest:
            assert found in things and found is not None and found.level == highest
        else:
            assert found is None


def test_levels_may_change_between_queries() -> None:
    ranking, things = Ranking(), [Ranked() for _ in range(5_000)]
    for round in range(1, 4):
        for number, thing in enumerate(things):
            ranking.move(thing, number % 7 + round)
    found = ranking.largest()
    assert found is not None and found.level == 9
    for thing in things:
        ranking.move(thing, 0)
    assert ranking.largest() is None
