"""The time since which a model has no fit replica, from the first fleet rebuild without one."""

from hypothesis import given, strategies as st

from router.fleet.table.absent_since import Absences

NAMES = st.frozensets(st.sampled_from("abcd"))


@given(st.lists(st.tuples(NAMES, NAMES), max_size=12))
def test_the_time_is_that_of_the_first_rebuild_of_the_present_absence(
    rebuilds: list[tuple[frozenset[str], frozenset[str]]],
) -> None:
    absences, lost = Absences(), dict[str, float]()
    for number, (known, present) in enumerate(rebuilds):
        now = float(number)
        absences.update(known, present, now)
        lost = {name: lost.get(name, now) for name in known - present}
        assert {name: absences.since(name) for name in "abcd"} == {
            name: lost.get(name) for name in "abcd"
        }
        assert len(absences._since) == len(lost)
