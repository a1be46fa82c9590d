"""The fleet table: the replicas that may serve a model, and the error if there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.core.errors import Reason, RouterError
from router.fleet.replica import UNLIMITED, Replica
from tests.fleet.helpers import Table
from tests.harness.replica import eventually
from tests.harness.running import run_bounded, scenario


def refusal(call: Callable[[], Any]) -> RouterError:
    with pytest.raises(RouterError) as refused:
        call()
    return refused.value


def eject(table: Table, replica: Replica) -> None:
    for _ in range(table.rules.eject_after):
        table.fleet.failed(replica, Reason.REPLICA_RESET)


def listed(table: Table) -> list[dict[str, Any]]:
    """The entries of /v1/models."""
    entries: list[dict[str, Any]] = json.loads(table.fleet.model_list(None).whole)["data"]
    return entries


def take_down(table: Table, replica: Replica) -> None:
    for _ in range(table.rules.fall):
        table.fleet.probed(replica, False)


def listing(*names: str) -> dict[str, dict[str, Any]]:
    return {name: {"id": name, "object": "model", "owned_by": "engine"} for name in names}


# -- eligibility ------------------------------------------------------------------------------


@scenario
async def test_eligible_by_model() -> None:
    table = Table()
    table.add("a", ("m", "lora"))
    table.add("b", ("m",))
    table.add("c", ("other",))
    assert table.ids("m") == ["a", "b"]
    assert table.ids("lora") == ["a"]
    assert table.ids("other") == ["c"]
    assert table.ids("m", "a") == ["b"]
    table.close()


@scenario
async def test_replicas_that_come_together_are_one_change() -> None:
    table = Table()
    table.add("a", ("m", "n"))
    table.changes.clear()
    table.fleet.add_all([table.make("b", ("m", "n")), table.make("c", ("o",))])
    assert table.changes == [frozenset("abc")]
    assert (table.ids("m"), table.ids("o")) == (["a", "b"], ["c"])
    prefixes = table.fleet.knowledge.prefixes
    shares = {prefixes.capacity(replica) for replica in table.fleet.replicas.values()}
    assert len(shares) == 1 and shares != {0}
    table.close()


@scenario
async def test_an_unknown_model_does_not_exist() -> None:
    table = Table()
    table.add("a")
    err = refusal(lambda: table.ids("unknown"))
    assert (err.reason, err.status, err.param) == (Reason.MODEL_NOT_FOUND, 404, "model")
    assert "unknown" in err.message
    table.close()


@scenario
async def test_a_model_whose_replicas_are_away_is_restarting() -> None:
    table = Table()
    table.add("a", ("m",))
    lost = table.add("b", ("other",))
    take_down(table, lost)
    err = refusal(lambda: table.ids("other"))
    assert (err.reason, err.status) == (Reason.MODEL_RESTARTING, 503)
    assert err.retry_after_s
    table.fleet.remove("b")
    assert refusal(lambda: table.ids("other")).reason is Reason.MODEL_NOT_FOUND
    table.close()


@scenario
async def test_only_a_model_that_was_removed_ends_a_wait() -> None:
    table = Table()
    a = table.add("a", ("m",))
    lost = table.add("b", ("other",))
    fleet = table.fleet
    assert fleet.refusal("other", None) is None
    take_down(table, lost)
    assert fleet.refusal("other", None) is None  # the replica comes back
    new = table.add("c", None, is_new=True)
    fleet.remove("b")
    assert fleet.refusal("other", None) is None  # the new replica may list it
    fleet.probed(new, False)
    fleet.remove("c")
    err = fleet.refusal("other", None)
    assert err is not None
    assert (err.reason, err.status, err.param) == (Reason.MODEL_NOT_FOUND, 404, "model")
    assert fleet.refusal("m", None) is None
    late = table.add("d", ("n",), is_new=True)
    assert fleet.refusal("other", None) is None  # no refusal before the replica's first probe
    fleet.probed(late, True)
    assert fleet.refusal("other", None) is not None
    take_down(table, late)
    take_down(table, a)
    assert fleet.refusal("other", None) is None  # no replica is up
    table.close()


@scenario
async def test_no_replica_is_up() -> None:
    table = Table()
    assert refusal(lambda: table.ids("m")).reason is Reason.NO_REPLICA
    take_down(table, table.add("a"))
    for model in ("m", "unknown", None):
        err = refusal(lambda model=model: table.ids(model))  # type: ignore[misc]
        assert (err.reason, err.status) == (Reason.NO_REPLICA, 503)
        assert err.retry_after_s
    table.close()


@scenario
async def test_a_replica_that_lists_no_models_serves_any_where_none_does() -> None:
    table = Table()
    unlisted = table.add("unlisted", None)
    table.add("another", None)
    assert table.ids("anything") == ["another", "unlisted"]
    assert table.ids(None) == ["another", "unlisted"]
    assert table.fleet.models_of(unlisted) is None
    table.add("lists", ("m",))
    assert table.ids("m") == ["lists"]
    assert table.ids(None) == ["lists"]
    assert refusal(lambda: table.ids("anything")).reason is Reason.MODEL_NOT_FOUND
    assert unlisted.state(0.0) == "unknown"
    assert table.events == [("lists no models", "unlisted"), ("lists no models", "another")]
    table.fleet.learned(unlisted, listing("m"))
    assert table.ids("m") == ["lists", "unlisted"]
    assert unlisted.state(0.0) == "ready"
    table.close()


@scenario
async def test_a_new_replica_is_not_eligible_before_its_first_good_probe() -> None:
    table = Table(rise=3, fall=3)
    table.add("old")
    new, dead = table.add("new", is_new=True), table.add("dead", is_new=True)
    decided: list[bool] = []
    table.fleet.on_first_probe = lambda: decided.append(table.fleet.awaits_probe)
    assert table.ids("m") == ["old"]
    assert new.state(0.0) == "unknown"
    table.fleet.probed(dead, False)
    assert dead.state(0.0) == "down"
    table.fleet.probed(new, True)
    assert table.ids("m") == ["new", "old"]
    assert decided == [True, False]
    assert table.events == [("down", "dead"), ("up", "new")]
    assert new.weight < 0.2  # the replica is in its slow start
    for _ in range(3):
        table.fleet.probed(dead, True)
    assert table.ids("m") == ["dead", "new", "old"]
    assert len(decided) == 2
    table.close()


@scenario
async def test_the_first_round_starts_nothing_slowly() -> None:
    table = Table()
    replicas = [table.add(id, is_new=True) for id in ("a", "b")]
    for replica in replicas:
        table.fleet.probed(replica, True, at_start=True)
    assert [replica.weight for replica in replicas] == [1.0, 1.0]
    assert table.events == []
    table.close()


@scenario
async def test_without_a_model_one_pool_will_do() -> None:
    table = Table()
    table.add("a", ("m", "lora"))
    table.add("b", ("lora", "m"))
    assert table.ids(None) == ["a", "b"]
    other = table.add("c", ("other",))
    err = refusal(lambda: table.ids(None))
    assert (err.reason, err.status, err.param) == (Reason.MODEL_REQUIRED, 400, "model")
    table.fleet.remove(other.id)
    assert table.ids(None) == ["a", "b"]
    table.close()


@scenario
async def test_limits_are_kept() -> None:
    table = Table()
    first = table.add("a", max_inflight=1)
    second = table.add("b", max_inflight=2)
    leases = [table.lease(first), table.lease(second)]
    assert table.ids("m") == ["b"]
    leases.append(table.lease(second))
    err = refusal(lambda: table.ids("m"))
    assert (err.reason, err.status) == (Reason.FLEET_FULL, 503)
    assert err.retry_after_s
    leases[0].release()
    assert table.ids("m") == ["a"]
    table.close()


@scenario
async def test_the_list_of_one_request_is_not_changed_by_another() -> None:
    table = Table()
    table.add("a")
    found = table.fleet.eligible("m", None)
    table.add("b")
    assert [r.id for r in found] == ["a"]
    table.close()


# -- facts learned from replicas --------------------------------------------------------------


@scenario
async def test_what_a_replica_serves_is_learned() -> None:
    table = Table()
    replica = table.add("a", None)
    table.fleet.learned(replica, listing("m"))
    assert refusal(lambda: table.ids("x")).reason is Reason.MODEL_NOT_FOUND
    table.fleet.learned(replica, listing("m", "x"))
    assert table.ids("x") == ["a"]
    table.fleet.learned(replica, listing("x"))
    assert refusal(lambda: table.ids("m")).reason is Reason.MODEL_NOT_FOUND
    table.close()


@scenario
async def test_configured_models_stand_whatever_the_replica_lists() -> None:
    table = Table()
    replica = table.add("a", ("m",))
    table.fleet.learned(replica, listing("m", "hidden"))
    assert refusal(lambda: table.ids("hidden")).reason is Reason.MODEL_NOT_FOUND
    assert [entry["id"] for entry in listed(table)] == ["m"]
    table.close()


@scenario
async def test_models_are_listed_once_as_their_replica_shows_them() -> None:
    table = Table()
    first, _, _ = table.add("a", None), table.add("b", ("m", "z")), table.add("c", None)
    table.fleet.learned(first, listing("m", "x"))
    entries = {entry["id"]: entry for entry in listed(table)}
    assert sorted(entries) == ["m", "x", "z"]
    assert entries["m"]["owned_by"] == "engine"
    assert entries["z"]["object"] == "model"
    take_down(table, first)
    assert sorted(entry["id"] for entry in listed(table)) == ["m", "z"]
    table.close()


@scenario
async def test_the_memory_of_models_is_bounded() -> None:
    table = Table()
    replica = table.add("a", None)
    for n in range(30):
        table.fleet.learned(replica, listing(*(f"m{n}-{k}" for k in range(500))))
    assert len(table.fleet.known_models) <= 10_000
    table.close()


# -- health -----------------------------------------------------------------------------------


@scenario
async def test_probes_take_a_replica_out_and_in() -> None:
    table = Table(fall=2, rise=2)
    table.add("a")
    replica = table.add("b")
    take_down(table, replica)
    assert table.ids("m") == ["a"]
    assert replica.state(monotonic()) == "down"
    table.fleet.probed(replica, True)
    assert table.ids("m") == ["a"]
    table.fleet.probed(replica, True)
    assert table.ids("m") == ["a", "b"]
    assert table.events == [("down", "b"), ("up", "b")]
    table.close()


@scenario
async def test_a_failing_replica_is_ejected_then_tried_then_trusted() -> None:
    table = Table(eject_base_s=0.02, slow_start_s=0)
    table.add("a")
    replica = table.add("b")
    eject(table, replica)
    assert table.ids("m") == ["a"]
    assert replica.state(monotonic()) == "ejected"
    await eventually(lambda: replica.health.half_open, "the trial")
    assert table.ids("m") == ["a", "b"]
    assert replica.limit == 1
    lease = table.lease(replica)
    assert table.ids("m") == ["a"]
    table.fleet.succeeded(replica)
    lease.release()
    assert replica.limit == UNLIMITED
    assert table.ids("m") == ["a", "b"]
    names = [what for what, _ in table.events]
    assert names == ["ejected", "half_open", "recovered"]
    await eventually(lambda: not table.sweeper.parties, "no timer left")
    table.close()


@scenario
async def test_only_what_speaks_against_a_replica_counts() -> None:
    table = Table(eject_after=1)
    table.add("a")
    replica = table.add("b")
    for reason in (Reason.REPLICA_BUSY, Reason.CLIENT_GONE, Reason.NO_FILES, Reason.NO_PORTS):
        for _ in range(10):
            table.fleet.failed(replica, reason)
    assert table.ids("m") == ["a", "b"]
    table.close()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_at_most_a_share_is_ejected_and_one_always_stays(share: float, count: int) -> None:
    async def body() -> None:
        table = Table(eject_share=share)
        replicas = [table.add(f"r{n}") for n in range(count)]
        for replica in replicas:
            eject(table, replica)
        ejected = count - len(table.fleet.ready)
        assert ejected <= max(1, int(count * share))
        assert table.fleet.ready, "one replica always stays"
        table.close()

    run_bounded(body, 10.0)


@scenario
async def test_the_last_one_that_is_up_is_not_ejected() -> None:
    table = Table()
    down, last = table.add("a"), table.add("b")
    take_down(table, down)
    eject(table, last)
    assert table.ids("m") == ["b"]
    table.close()


# -- membership ------------------------------------------------------------------------------


@scenario
async def test_each_change_is_reported() -> None:
    table = Table()
    table.add("a")
    table.add("b")
    table.fleet.remove("a")
    assert table.changes == [frozenset("a"), frozenset("ab"), frozenset("b")]
    table.close()


@scenario
async def test_a_removed_replica_stays_until_its_last_lease() -> None:
    table = Table()
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
    table.close()


@scenario
async def test_late_events_of_a_removed_replica_change_nothing() -> None:
    table = Table(eject_after=1, fall=1)
    table.add("a")
    replica = table.add("b")
    table.fleet.remove("b")
    table.fleet.failed(replica, Reason.REPLICA_RESET)
    table.fleet.probed(replica, False)
    table.fleet.succeeded(replica)
    table.fleet.attempt_ended(replica)
    assert table.events == []
    assert table.ids("m") == ["a"]
    table.close()


@scenario
async def test_removing_one_that_is_ejected_leaves_no_timer() -> None:
    table = Table()
    table.add("a")
    replica = table.add("b")
    eject(table, replica)
    assert table.sweeper.parties == {table.fleet}
    table.fleet.remove("b")
    assert table.sweeper.parties == set()
    table.close()


@scenario
async def test_new_settings_keep_what_is_known() -> None:
    table = Table()
    replica = table.add("a", None)
    table.fleet.learned(replica, listing("m"))
    table.fleet.succeeded(replica)
    config = replica.config.__class__(url=replica.config.url, id="a", weight=3.0, max_inflight=4)
    replica.adopt(config, table.rules)
    table.fleet.rebuild()
    assert (replica.weight, replica.limit, replica.served) == (3.0, 4, 1)
    assert table.ids("m") == ["a"]
    table.close()


# -- owners of stored responses ------------------------------------------------------------------


@scenario
async def test_the_owner_of_a_stored_response() -> None:
    table = Table()
    table.add("a")
    replica = table.add("b")
    fleet = table.fleet
    assert fleet.owner_of("resp_1", "", None) is None
    fleet.response_affinity.learn("resp_1", "b")
    assert fleet.owner_of("resp_1", "", None) is replica
    take_down(table, replica)
    assert refusal(lambda: fleet.owner_of("resp_1", "", None)).reason is Reason.NO_REPLICA
    fleet.remove("b")
    err = refusal(lambda: fleet.owner_of("resp_1", "", None))
    assert (err.reason, err.status) == (Reason.STATE_LOST, 404)
    table.close()


# -- any order of events ---------------------------------------------------------------------

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "fail", "good", "bad", "ok", "lease", "release"]),
        st.integers(0, 1),
    ),
    min_size=30,
    max_size=60,
)


@settings(max_examples=30, deadline=None)
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
                fleet.failed(replica, Reason.CONNECT_FAILED)
            elif what in ("good", "bad"):
                fleet.probed(replica, what == "good")
            elif what == "ok":
                fleet.succeeded(replica)
            elif what == "lease":
                held.append((replica, table.lease(replica)))
            ready = set(fleet.ready)
            assert ready <= set(fleet.replicas.values())
            assert all(r.health.up and not r.removed for r in ready)
            assert fleet.ready_ids == {r.id: r for r in ready}
            assert all(r.inflight for r in fleet.leaving)
            if ready:
                assert set(fleet.eligible("m", None)) == ready
        for one, lease in held:
            lease.release()
            fleet.attempt_ended(one)
        assert not fleet.leaving
        table.close()

    run_bounded(body, 10.0)


@scenario
async def test_a_first_token_bounds_the_round_trip() -> None:
    """Slow probes make the distance too long. No token comes sooner than a round trip takes."""
    table = Table()
    far = table.add("far", region="us")
    table.fleet.timed(far, 0.5)
    for ttft_s, is_timed, found in ((0.8, True, 0.5), (0.1, False, 0.5), (0.3, True, 0.3)):
        table.fleet.showed_content(far, 1.0, 0.0, ttft_s, 10, is_timed=is_timed)
        assert far.speed.rtt_s == found
    table.fleet.showed_content(far, 1.0, 0.0, None, 10)
    assert far.speed.rtt_s == 0.3
    table.close()
