"""Duties, conflicts, and the replicas that remain after a reload."""

import pytest

from router.config.model import Replica
from router.fleet.membership import (
    Difference,
    Duty,
    conflict,
    difference,
    duty_after,
    duty_word,
    kept,
)
from tests.fleet.helpers import Table

A = Replica(url="http://gpu-1:8000", id="a")
B = Replica(url="http://gpu-2:8000", id="b")


@pytest.mark.parametrize(
    ("action", "duty", "after"),
    [
        ("cordon", Duty.IN_SERVICE, Duty.CORDONED),
        ("cordon", Duty.DRAINING, Duty.DRAINING),
        ("drain", Duty.IN_SERVICE, Duty.DRAINING),
        ("drain", Duty.CORDONED, Duty.DRAINING),
        ("uncordon", Duty.IN_SERVICE, Duty.IN_SERVICE),
        ("uncordon", Duty.CORDONED, Duty.IN_SERVICE),
        ("uncordon", Duty.DRAINING, Duty.IN_SERVICE),
    ],
)
def test_an_action_gives_a_duty(action: str, duty: int, after: int) -> None:
    assert duty_after(action, duty) == after


def test_the_word_shows_when_a_draining_replica_is_empty() -> None:
    assert duty_word(Duty.CORDONED, 0) == duty_word(Duty.CORDONED, 2) == "cordoned"
    assert (duty_word(Duty.DRAINING, 2), duty_word(Duty.DRAINING, 0)) == ("draining", "drained")


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (Replica(url="http://gpu-3:8000", id="c"), ""),
        (Replica(url="http://gpu-3:8000", id="b"), "id: 'b' is already the id of a replica"),
        (
            Replica(url="http://GPU-2:8000/", id="c"),
            "url: is the same engine as the replica 'b'",
        ),
        (Replica(url="http://gpu-2:8000/prefix", id="c"), ""),
    ],
)
def test_an_id_and_an_address_are_used_once(new: Replica, why: str) -> None:
    assert conflict(new, (A, B)) == why


def test_a_reload_keeps_what_was_added_unless_the_file_lists_it() -> None:
    moved = Replica(url="http://gpu-9:8000", id="b")
    renamed = Replica(url="http://gpu-2:8000", id="z")
    assert kept([B], [A]) == [B]
    assert kept([B], [A, moved]) == []
    assert kept([B], [A, renamed]) == []


def test_the_difference_of_two_fleets() -> None:
    moved = Replica(url="http://gpu-9:8000", id="b")
    heavy = Replica(url="http://gpu-1:8000", id="a", weight=2.0)
    c = Replica(url="http://gpu-3:8000", id="c")
    known, wanted = {"a": A, "b": B, "d": c}, {"a": heavy, "b": moved, "c": c}
    assert difference(known, wanted) == Difference(["c"], ["b"], ["a"], ["d"])
    assert not difference(known, dict(reversed(known.items())))
    assert difference(known, {}) and difference({}, known)


def test_replicas_on_standby_get_nothing_even_in_a_panic() -> None:
    table = Table(panic_share=1.0)
    a, b = table.add("a"), table.add("b")
    table.fleet.set_standby({"b"})
    assert table.ids("m") == ["a"]
    assert (b.state(0.0), b.is_available) == ("standby", True)
    table.fleet.set_duty(a, Duty.CORDONED)
    assert table.fleet.serving.ready == () and not a.is_available
    table.fleet.set_standby(())
    assert table.ids("m") == ["b"]
    table.fleet.set_duty(a, Duty.IN_SERVICE)
    table.fleet.change(["a", "b"], ())
    assert a.removed and b.removed and not table.fleet.replicas


def test_a_cordoned_replica_gets_nothing_even_in_a_panic() -> None:
    table = Table(panic_share=1.0)
    a, b = table.add("a"), table.add("b")
    table.fleet.set_duty(a, Duty.CORDONED)
    assert table.ids("m") == ["b"]
    assert a.state(0.0) == "cordoned"
    for _ in range(table.rules.fall):
        table.fleet.probes.probed(a, False)
    assert a.state(0.0) == "cordoned" and not a.health.up  # it is still probed
    table.fleet.probes.probed(a, True)
    table.fleet.set_duty(a, Duty.IN_SERVICE)
    assert table.ids("m") == ["a", "b"]
    assert b.state(0.0) == "ready"
