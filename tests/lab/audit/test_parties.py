"""How requests are grouped into parties, and how many parties are named."""

from __future__ import annotations

import pytest

from router.lab.audit.blame import CLASSES_MAX, Roster
from router.lab.audit.parties import OTHERS, Heavy, Party, label, namer, told_by
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
