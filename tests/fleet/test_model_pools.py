"""Pools by model: members, ejection limit, panic, and the cost of a large fleet."""

import msgspec
import pytest
from hypothesis import given, strategies as st

from router.core.errors import Reason
from router.core.lease import poll_begins
from router.fleet.membership import Duty
from router.fleet.model_pools import ModelPool, ModelPools
from router.fleet.replica import Replica
from router.fleet.signals import NO_SIGNALS
from tests.examples import examples
from tests.fleet.helpers import Table
from tests.harness.running import run_bounded


def ids(pool: ModelPool) -> list[str]:
    return [replica.id for replica in pool.members]


def test_models_of_the_same_replicas_are_one_pool(table: Table) -> None:
    replicas = [table.add("a", ("m", "x")), table.add("b", ("m", "x")), table.add("c", ("m",))]
    pools = ModelPools(replicas)
    assert sorted((sorted(pool.names), ids(pool)) for pool in pools.all) == [
        (["m"], ["a", "b", "c"]),
        (["x"], ["a", "b"]),
    ]
    assert len(pools.of(frozenset(("m", "x")))) == 2
    assert [pool.names for pool in pools.of(frozenset(("m",)))] == [["m"]]
    assert pools.of(frozenset(("unknown",))) == []
    assert pools.any.members == []


def test_replicas_that_list_no_models_are_a_pool_alone(table: Table) -> None:
    pools = ModelPools([table.add("a", None), table.add("b", None)])
    assert ids(pools.any) == ["a", "b"]
    assert pools.names == {}
    assert [ids(pool) for pool in pools.of(None)] == [["a", "b"]]
    pools = ModelPools([table.add("c", ("m",)), table.add("d", ())])
    assert ids(pools.names["m"]) == ["c"]
    assert [ids(pool) for pool in pools.of(frozenset())] == [["d"]]


# Lists of each replica; either every replica of a pool's fleet lists models, or none does.
MODELS = st.one_of(
    st.lists(st.none(), max_size=8), st.lists(st.frozensets(st.sampled_from("abcd")), max_size=8)
)


@examples(100)
@given(MODELS, st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)), st.floats(0, 1))
def test_any_fleet(
    lists: list[frozenset[str] | None], away: set[int], out: set[int], share: float
) -> None:
    async def body() -> None:
        table = Table()
        fleet: list[Replica] = []
        for number, models in enumerate(lists):
            listed = None if models is None else tuple(models)
            fleet.append(table.add(f"r{number}", listed))
        pools = ModelPools(fleet)
        gone = {r for n, r in enumerate(fleet) if n in away}
        ejected = {r for n, r in enumerate(fleet) if n in out}
        for name, pool in pools.names.items():
            assert list(pool.members) == [r for r in fleet if name in (r.models or ())]
        for pool in pools.all:
            pool.judge(gone, ejected, share)
            up = [r for r in pool.members if r not in gone]
            fit = [r for r in up if r not in ejected]
            assert pool.fit == len(fit)
            assert list(pool.candidates) in (fit, up)
            assert pool.is_panicking == (list(pool.candidates) != fit)
            if pool.may_eject(True, share):
                assert pool.fit >= 2
                assert pool.ejected + 1 <= max(1, pool.meant * share)
        for replica in fleet:
            found = pools.of(replica.models)
            assert found
            assert all(replica in pool.members for pool in found)
        table.close()

    run_bounded(body, 20.0)


@pytest.mark.parametrize("panic_share", [0.0, 0.5, 1.0])
def test_a_pool_whose_replicas_are_all_down_does_not_panic(
    panic_share: float, table: Table
) -> None:
    replicas = [table.add("a"), table.add("b")]
    (pool,) = ModelPools(replicas).all
    pool.judge(set(replicas), set(), panic_share)
    assert (pool.is_panicking, list(pool.candidates)) == (False, [])


def test_the_shares_are_of_the_replicas_that_are_meant_to_serve() -> None:
    """Four replicas should serve; ten others are on standby, cordoned, draining or asleep."""
    table = Table(eject_after=1, eject_share=0.5, panic_share=0.4)
    dead, *primaries = [table.add(f"p{n}") for n in range(4)]
    others = [table.add(f"s{n}") for n in range(10)]
    table.fleet.set_standby({r.id for r in others[:7]})
    table.fleet.set_duty(others[7], Duty.CORDONED)
    table.fleet.set_duty(others[8], Duty.DRAINING)
    asleep = msgspec.structs.replace(NO_SIGNALS, asleep=True)
    table.fleet.polls.observed(others[9], asleep, poll_begins(others[9], 0.0), 0.0)
    table.fleet.outcomes.failed(dead, Reason.REPLICA_RESET)
    assert table.ids("m") == ["p1", "p2", "p3"], "no panic"
    assert not table.fleet.panic["m"]
    table.fleet.outcomes.failed(primaries[0], Reason.REPLICA_RESET)
    assert table.ids("m") == ["p2", "p3"]
    table.fleet.outcomes.failed(primaries[1], Reason.REPLICA_RESET)
    assert table.ids("m") == ["p2", "p3"], "half of the four is ejected"
    # A replica that is down was meant to serve, and is missed.
    for _ in range(table.rules.fall):
        table.fleet.probes.probed(primaries[1], False)
    assert table.ids("m") == ["p0", "p1", "p3"]
    assert table.fleet.panic["m"]


def test_equal_lists_are_kept_once(table: Table) -> None:
    first, second = table.add("a", None), table.add("b", None)
    listing = {name: {"id": name} for name in ("m", "x")}
    table.fleet.probes.learned(first, dict(listing))
    table.fleet.probes.learned(second, dict(listing))
    assert first.models is second.models
