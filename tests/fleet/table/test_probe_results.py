"""Probes take replicas in and out; their model lists are learned."""

from time import monotonic

from tests.fleet.helpers import Table
from tests.fleet.table.helpers import take_down


def test_a_new_replica_is_not_eligible_before_its_first_good_probe() -> None:
    table = Table(rise=3, fall=3)
    table.add("old")
    new, dead = table.add("new", is_new=True), table.add("dead", is_new=True)
    decided: list[bool] = []
    table.fleet.hooks.first_probe = lambda: decided.append(table.fleet.models.awaits_probe)
    assert table.ids("m") == ["old"]
    assert new.state(0.0) == "unknown"
    table.fleet.probes.probed(dead, False)
    assert dead.state(0.0) == "down"
    table.fleet.probes.probed(new, True)
    assert table.ids("m") == ["new", "old"]
    assert decided == [True, False]
    assert table.events == [("down", "dead"), ("up", "new")]
    assert new.weight < 0.2  # the replica is in its slow start
    for _ in range(3):
        table.fleet.probes.probed(dead, True)
    assert table.ids("m") == ["dead", "new", "old"]
    assert len(decided) == 2


def test_the_first_round_starts_nothing_slowly(table: Table) -> None:
    replicas = [table.add(id, is_new=True) for id in ("a", "b")]
    for replica in replicas:
        table.fleet.probes.probed(replica, True, at_start=True)
    assert [replica.weight for replica in replicas] == [1.0, 1.0]
    assert table.events == []


def test_probes_take_a_replica_out_and_in() -> None:
    table = Table(fall=2, rise=2)
    table.add("a")
    replica = table.add("b")
    take_down(table, replica)
    assert table.ids("m") == ["a"]
    assert replica.state(monotonic()) == "down"
    table.fleet.probes.probed(replica, True)
    assert table.ids("m") == ["a"]
    table.fleet.probes.probed(replica, True)
    assert table.ids("m") == ["a", "b"]
    assert table.events == [("down", "b"), ("up", "b")]
