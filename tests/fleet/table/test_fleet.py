"""Replicas that join and leave, and any order of events."""

from time import monotonic
from typing import Any

from hypothesis import given, strategies as st

from router.core.errors import Reason
from router.fleet.replica import Replica
from tests.examples import examples
from tests.fleet.helpers import Table
from tests.fleet.table.helpers import listing
from tests.harness.running import run_bounded


def test_replicas_that_come_together_are_one_change(table: Table) -> None:
    table.add("a", ("m", "n"))
    table.changes.clear()
    table.fleet.add_all([table.make("b", ("m", "n")), table.make("c", ("o",))])
    assert table.changes == [frozenset("abc")]
    assert (table.ids("m"), table.ids("o")) == (["a", "b"], ["c"])
    prefixes = table.fleet.knowledge.prefixes
    shares = {prefixes.capacity(replica) for replica in table.fleet.replicas.values()}
    assert len(shares) == 1 and shares != {0}


def test_a_removed_replica_stays_until_its_last_lease(table: Table) -> None:
    table.add("a")
    replica = table.add("b")
    leases = [table.lease(replica), table.lease(replica)]
    table.fleet.remove("b")
    assert table.ids("m") == ["a"]
    assert replica.state(monotonic()) == "draining"
    for lease in leases:
        assert table.fleet.leaving == {replica}
        lease.release()
        table.fleet.attempt_ended(replica)
    assert table.fleet.leaving == set()


def test_late_events_of_a_removed_replica_change_nothing() -> None:
    table = Table(eject_after=1, fall=1)
    table.add("a")
    replica = table.add("b")
    table.fleet.remove("b")
    table.fleet.outcomes.failed(replica, Reason.REPLICA_RESET)
    table.fleet.probes.probed(replica, False)
    table.fleet.outcomes.succeeded(replica)
    table.fleet.attempt_ended(replica)
    assert table.events == []
    assert table.ids("m") == ["a"]


def test_new_settings_keep_what_is_known(table: Table) -> None:
    replica = table.add("a", None)
    table.fleet.probes.learned(replica, listing("m"))
    table.fleet.outcomes.succeeded(replica)
    config = replica.config.__class__(url=replica.config.url, id="a", weight=3.0, max_inflight=4)
    replica.adopt(config, table.rules, None)
    table.fleet.rebuild()
    assert (replica.weight, replica.limit, replica.health.served) == (3.0, 4, 1)
    assert table.ids("m") == ["a"]


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "fail", "good", "bad", "ok", "lease", "release"]),
        st.integers(0, 1),
    ),
    min_size=30,
    max_size=60,
)


@examples(30)
@given(EVENTS)
def test_invariants_hold_under_random_operations(events: list[tuple[str, int]]) -> None:
    async def body() -> None:
        table = Table(eject_after=2, fall=2)
        fleet = table.fleet
        held: list[tuple[Replica, Any]] = []
        for what, index in events:
            id = f"r{index}"
            replica = fleet.replicas.get(id)
            if what == "add" and replica is None:
                table.add(id, ("m", id) if index % 2 else ("m",))
            elif what == "release" and held:
                one, lease = held.pop(index % len(held))
                lease.release()
                fleet.attempt_ended(one)
            elif replica is None:
                continue
            elif what == "remove":
                fleet.remove(id)
            elif what == "fail":
                fleet.outcomes.failed(replica, Reason.CONNECT_FAILED)
            elif what in ("good", "bad"):
                fleet.probes.probed(replica, what == "good")
            elif what == "ok":
                fleet.outcomes.succeeded(replica)
            elif what == "lease":
                held.append((replica, table.lease(replica)))
            ready = set(fleet.serving.ready)
            assert ready <= set(fleet.replicas.values())
            assert all(r.health.up and not r.removed for r in ready)
            assert fleet.serving.ready_ids == {r.id: r for r in ready}
            assert all(r.inflight for r in fleet.leaving)
            if ready:
                assert set(fleet.eligibility.replicas("m", None)) == ready
        for one, lease in held:
            lease.release()
            fleet.attempt_ended(one)
        assert not fleet.leaving
        table.close()

    run_bounded(body, 10.0)
