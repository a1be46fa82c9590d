"""Parties, their labels, the heaviest of them, and their requests at once."""

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from router.lab.audit.blame import CLASSES_MAX, Roster
from router.lab.audit.parties import OTHERS, Crowd, Heavy, Party, label, namer, told_by
from router.lab.audit.residency import Row
from router.lab.audit.survey import PartyFigures


def row(**fields: str) -> Row:
    return Row(**{"ts": 1.0, "reason": "ok", "replica": "r0", "client": "10.0.0.1", **fields})  # type: ignore[arg-type]


def test_tenants_where_there_are_any() -> None:
    assert told_by("tenant", [row(), row(tenant="a")]) == "tenant"
    assert namer("tenant")(row(tenant="a", priority="high")) == Party("a", "high")


def test_addresses_where_no_line_has_a_tenant() -> None:
    assert told_by("tenant", [row(), row(client="10.0.0.2")]) == "client"
    assert namer("client")(row()) == Party("10.0.0.1", "")


@pytest.mark.parametrize("by", ["class", "model"])
def test_what_is_asked_for_otherwise_is_what_is_done(by: str) -> None:
    assert told_by(by, [row(tenant="a")]) == by  # type: ignore[arg-type]


def test_labels() -> None:
    assert label(Party("ab", "batch"), "tenant") == "tenant ab (batch)"
    assert label(Party("high", ""), "class") == "class high"
    assert label(Party("", "low"), "tenant") == "no tenant (low)"
    assert label(Party("", ""), "class") == "no class"
    assert label(Party(OTHERS, "low"), "tenant") == "all others (low)"


def watched(parties: int, capacity: int = 100, classes: int = 2) -> Heavy[Party, PartyFigures]:
    heavy: Heavy[Party, PartyFigures] = Heavy(capacity, PartyFigures)
    for number in range(parties):
        party = Party(f"t{number}", f"c{number % classes}")
        heavy.touch(party, 1000.0 - number).requests += 1
    return heavy


def test_the_heaviest_parties_are_named_and_the_rest_are_grouped_by_class() -> None:
    roster = Roster(watched(10), named=3)
    assert roster.parties == [
        Party("t0", "c0"),
        Party("t1", "c1"),
        Party("t2", "c0"),
        Party(OTHERS, "c1"),
        Party(OTHERS, "c0"),
    ]
    assert [figures.requests for figures in roster.figures] == [1, 1, 1, 4, 3]
    assert roster.number(Party("t1", "c1")) == 1
    assert roster.number(Party("t9", "c1")) == 3
    assert roster.number(Party("never seen", "c0")) == 4


def test_classes_have_a_bound_too() -> None:
    roster = Roster(watched(90, classes=90), named=1)
    for number in range(1000):
        roster.number(Party("x", f"new{number}"))
    assert len(roster.parties) <= 1 + CLASSES_MAX + 1
    assert sum(figures.requests for figures in roster.figures) == 90


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 50)), max_size=200), st.integers(1, 12)
)
def test_weights_are_bounded_and_all_heavy_items_are_kept(
    stream: list[tuple[int, int]], capacity: int
) -> None:
    heavy: Heavy[int, list[int]] = Heavy(capacity, list)
    true: Counter[int] = Counter()
    for key, weight in stream:
        true[key] += weight
        heavy.touch(key, weight).append(weight)
    found = dict(heavy.heaviest())
    assert len(found) <= capacity
    for key, entry in found.items():
        assert entry.weight - entry.error <= true[key] <= entry.weight
        assert sum(entry.value) == entry.weight - entry.error
    for key, weight in true.items():
        if weight > sum(true.values()) / capacity:
            assert key in found
    weights = [entry.weight for _, entry in heavy.heaviest()]
    assert weights == sorted(weights, reverse=True)


def test_a_new_item_replaces_the_lightest_one() -> None:
    heavy: Heavy[str, list[int]] = Heavy(2, list)
    heavy.touch("a", 5.0).append(5)
    heavy.touch("b", 1.0).append(1)
    heavy.touch("b", 1.0).append(1)
    assert heavy.touch("c", 1.0) == []
    assert [(key, entry.weight, entry.error) for key, entry in heavy.heaviest()] == [
        ("a", 5.0, 0.0),
        ("c", 3.0, 2.0),
    ]
    assert heavy.displaced == 1


def test_the_capacity_must_be_positive() -> None:
    with pytest.raises(ValueError, match="capacity"):
        Heavy(0, list)


def test_the_peak_has_its_first_time_and_running_times_add_up() -> None:
    crowd = Crowd()
    for now in (1.0, 2.0, 3.0):
        crowd.comes(now)
    crowd.goes(5.0)
    crowd.comes(9.0)
    crowd.goes(0.5)
    assert (crowd.now, crowd.peak, crowd.peak_at, crowd.seconds) == (2, 3, 3.0, 5.5)
