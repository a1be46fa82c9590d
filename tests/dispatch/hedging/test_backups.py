"""The replicas that may take a copy: each reason against a replica, and the preferred replica."""

from typing import Any

import msgspec
import pytest

from router.core.lease import Lease
from router.dispatch.hedging.backups import (
    ENOUGH,
    RANK,
    SILENT_S,
    WINDOW,
    apart,
    is_sound,
    obstacle,
    same_engine,
    window,
)
from router.fleet.replica import Replica
from router.observe.hedge_counts import Refusal
from tests.dispatch.hedging.world import new_table, played

NOW = 1000.0


def told(replica: Replica, **signals: Any) -> Replica:
    replica.reports.last = replica.reports.signals = msgspec.structs.replace(
        replica.reports.signals, **signals
    )
    replica.kv_usage = replica.reports.signals.kv_usage
    return replica


def asked(primary: Replica, *others: Replica) -> list[str] | Refusal:
    """Replicas that may take a copy, or the reason that stopped the best candidate."""
    found = {r.id: obstacle(primary, r, 0.9, NOW) for r in others}
    able = [id for id, why in found.items() if why is None]
    return able or max((why for why in found.values() if why), key=lambda why: RANK[why])


@played
def test_another_idle_replica_may_take_a_copy() -> None:
    table = new_table()
    a, b, c = table.add("a"), table.add("b"), table.add("c")
    assert asked(a, a, b, c) == ["b", "c"]
    assert asked(a, a) == Refusal.ALONE


@played
def test_no_copy_to_a_replica_with_waiting_requests() -> None:
    table = new_table()
    a, b, c = table.add("a"), table.add("b"), table.add("c")
    lease = Lease(b)
    assert asked(a, b, c) == ["c"]
    assert asked(a, b) == Refusal.WAITING
    lease.begun()  # its request generates and does not wait
    assert asked(a, b) == ["b"]
    lease.release()


@played
def test_no_copy_to_a_replica_with_a_nearly_full_kv_cache() -> None:
    table = new_table()
    a, b, c = table.add("a"), table.add("b"), table.add("c")
    told(b, kv_usage=0.9)
    told(c, kv_usage=0.89)
    assert asked(a, b, c) == ["c"]
    assert asked(a, b) == Refusal.KV


@played
def test_no_copy_to_an_unsuitable_replica() -> None:
    table = new_table()
    a, b = table.add("a"), table.add("b", max_inflight=1)
    health = b.health
    assert is_sound(b, NOW)
    for name, bad, good in (
        ("up", False, True),
        ("ejected_until", NOW + 1.0, 0.0),
        ("suspected_at", NOW - 1.0, None),
        ("half_open", True, False),
        ("busy_until", NOW + 1.0, NOW),
    ):
        setattr(health, name, bad)
        assert asked(a, b) == Refusal.HEALTH, name
        setattr(health, name, good)
    lease = Lease(b)
    lease.begun()
    assert asked(a, b) == Refusal.HEALTH  # a replica is at its request limit
    lease.release()
    assert asked(a, b) == ["b"]


@played
def test_no_copy_to_another_address_of_the_same_engine() -> None:
    table = new_table()
    a, b = table.add("a"), table.add("b")
    c, d = table.add("c", ("other",)), table.add("d", node="n2")
    for replica in (a, b, c, d):
        told(replica, started_at=1_700_000_000.25)
    assert same_engine(a, b)
    assert not same_engine(a, c)  # c serves another model
    assert same_engine(a, d)  # a's node is not known
    assert asked(a, b) == Refusal.SAME_ENGINE
    table.add("e", node="n1")
    e = told(table.fleet.replicas["e"], started_at=1_700_000_000.25)
    assert not same_engine(e, d)
    for started in (None, 0.0, 1_700_000_000.26):
        told(b, started_at=started)
        told(a, started_at=started if not started else 1_700_000_000.25)
        assert not same_engine(a, b)


@pytest.mark.parametrize(
    ("primary", "others", "preferred"),
    [
        (("z1", "n1"), {"b": ("z1", "n1"), "c": ("z1", "n2"), "d": ("z2", "n9")}, "d"),
        (("z1", "n1"), {"b": ("z1", "n1"), "c": ("z1", "n2"), "d": ("", "n9")}, "cd"),
        (("z1", "n1"), {"b": ("z1", "n1"), "c": ("z1", "n1")}, "bc"),
        (("z1", "n1"), {"b": ("", ""), "c": ("z1", "n1")}, "bc"),
        (("", "n1"), {"b": ("z2", "n1"), "c": ("z2", "n2")}, "c"),
        (("", ""), {"b": ("z1", "n1"), "c": ("z2", "n2")}, "bc"),
        (("z1", ""), {"b": ("z1", "n1"), "c": ("z2", "n1")}, "c"),
    ],
)
@played
def test_another_zone_then_another_node_is_preferred(
    primary: tuple[str, str], others: dict[str, tuple[str, str]], preferred: str
) -> None:
    table = new_table()
    first = table.add("a", zone=primary[0], node=primary[1])
    rest = [table.add(id, zone=zone, node=node) for id, (zone, node) in others.items()]
    assert [r.id for r in apart(first, rest)] == list(preferred)


@played
def test_zones_of_another_region_are_other_zones() -> None:
    table = new_table()
    first = table.add("a", zone="z1", region="eu")
    near, far = table.add("b", zone="z1", region="eu"), table.add("c", zone="z1", region="us")
    assert apart(first, [near, far]) == [far]


@played
def test_another_address_is_preferred_to_another_rank() -> None:
    table = new_table()
    a, b = table.add("a", data_parallel_ranks=2), table.add("b")
    for rank in a.ranks:
        told(rank, started_at=5.0)
    assert asked(a, *table.fleet.serving.ready) == ["a@1", "b"]
    assert apart(a, [a.ranks[1], b]) == [b]
    assert apart(a, [a.ranks[1]]) == [a.ranks[1]]


@played
def test_a_large_pool_is_examined_a_few_replicas_at_a_time() -> None:
    table = new_table()
    pool = [table.add(f"r{number}") for number in range(WINDOW + 10)]
    seen = [window(pool, turn) for turn in range(len(pool))]
    for found in seen:
        assert len(found) == len(set(found)) == WINDOW
    firsts = [r for found in seen for r in found[:ENOUGH]]
    assert {firsts.count(r) for r in pool} == {ENOUGH}
    middle = pool[: ENOUGH + 1]
    assert all(set(window(middle, turn)) == set(middle) for turn in range(ENOUGH))
    assert {window(middle, turn)[0] for turn in range(ENOUGH + 1)} == set(middle)
    small = pool[:ENOUGH]
    assert window(small, 7) == small  # all replicas can be offered


@played
def test_no_copy_to_a_replica_whose_streams_are_silent() -> None:
    table = new_table()
    a, b = table.add("a"), table.add("b")
    b.progress.at = NOW - SILENT_S - 0.1
    assert asked(a, b) == ["b"]  # without streams there is nothing to hear
    b.learned.cadence.begins(NOW - 5.0)
    assert asked(a, b) == Refusal.HEALTH
    b.progress.at = NOW - SILENT_S + 0.1
    assert asked(a, b) == ["b"]
    b.progress.at = NOW - 5.0
    b.learned.cadence.ends(NOW)
    assert asked(a, b) == ["b"]
