"""The time since which a model has no fit replica, from the first fleet rebuild without one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.fleet.table.absent_since import Absences


def test_a_name_that_was_never_present_is_absent_since_it_became_known() -> None:
    absences = Absences()
    absences.update({"m"}, set(), 5.0)
    assert absences.since("m") == 5.0


def test_later_rebuilds_keep_the_time() -> None:
    absences = Absences()
    for now in (5.0, 6.0, 9.0):
        absences.update({"m"}, set(), now)
    assert absences.since("m") == 5.0


def test_a_name_that_comes_back_is_not_absent_and_may_be_lost_again() -> None:
    absences = Absences()
    absences.update({"m"}, set(), 5.0)
    absences.update({"m"}, {"m"}, 6.0)
    assert absences.since("m") is None
    absences.update({"m"}, set(), 7.0)
    assert absences.since("m") == 7.0


def test_a_name_that_is_no_longer_known_is_forgotten() -> None:
    absences = Absences()
    absences.update({"m", "n"}, set(), 5.0)
    absences.update({"n"}, set(), 6.0)
    assert absences.since("m") is None
    assert absences.since("n") == 5.0
    absences.update({"m"}, set(), 7.0)
    assert absences.since("m") == 7.0  # not 5.0: the name was unknown in between


def test_an_unknown_name_is_not_absent() -> None:
    assert Absences().since("m") is None


def test_a_present_name_that_is_not_known_does_no_harm() -> None:
    absences = Absences()
    absences.update([], ["m"], 5.0)
    assert absences.since("m") is None


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
