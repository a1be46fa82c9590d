"""The replicas that may serve a model, and the error if there is none."""

from router.core.errors import Reason
from tests.fleet.helpers import Table
from tests.fleet.table.helpers import refusal, take_down


def test_eligible_by_model(table: Table) -> None:
    table.add("a", ("m", "lora"))
    table.add("b", ("m",))
    table.add("c", ("other",))
    assert table.ids("m") == ["a", "b"]
    assert table.ids("lora") == ["a"]
    assert table.ids("other") == ["c"]
    assert table.ids("m", "a") == ["b"]


def test_a_model_whose_replicas_are_away_is_restarting(table: Table) -> None:
    table.add("a", ("m",))
    lost = table.add("b", ("other",))
    take_down(table, lost)
    err = refusal(lambda: table.ids("other"))
    assert (err.reason, err.status) == (Reason.MODEL_RESTARTING, 503)
    assert err.retry_after_s
    table.fleet.remove("b")
    assert refusal(lambda: table.ids("other")).reason is Reason.MODEL_NOT_FOUND


def test_only_a_model_that_was_removed_ends_a_wait(table: Table) -> None:
    a = table.add("a", ("m",))
    lost = table.add("b", ("other",))
    fleet = table.fleet
    assert fleet.eligibility.refusal("other", None) is None
    take_down(table, lost)
    assert fleet.eligibility.refusal("other", None) is None  # the replica comes back
    new = table.add("c", None, is_new=True)
    fleet.remove("b")
    assert fleet.eligibility.refusal("other", None) is None  # the new replica may list it
    fleet.probes.probed(new, False)
    fleet.remove("c")
    err = fleet.eligibility.refusal("other", None)
    assert err is not None
    assert (err.reason, err.status, err.param) == (Reason.MODEL_NOT_FOUND, 404, "model")
    assert fleet.eligibility.refusal("m", None) is None
    late = table.add("d", ("n",), is_new=True)
    assert (
        fleet.eligibility.refusal("other", None) is None
    )  # no refusal before the replica's first probe
    fleet.probes.probed(late, True)
    assert fleet.eligibility.refusal("other", None) is not None
    take_down(table, late)
    take_down(table, a)
    assert fleet.eligibility.refusal("other", None) is None  # no replica is up


def test_no_replica_is_up(table: Table) -> None:
    assert refusal(lambda: table.ids("m")).reason is Reason.NO_REPLICA
    take_down(table, table.add("a"))
    for model in ("m", "unknown", None):
        err = refusal(lambda model=model: table.ids(model))  # type: ignore[misc]
        assert (err.reason, err.status) == (Reason.NO_REPLICA, 503)
        assert err.retry_after_s


def test_without_a_model_one_pool_will_do(table: Table) -> None:
    table.add("a", ("m", "lora"))
    table.add("b", ("lora", "m"))
    assert table.ids(None) == ["a", "b"]
    other = table.add("c", ("other",))
    err = refusal(lambda: table.ids(None))
    assert (err.reason, err.status, err.param) == (Reason.MODEL_REQUIRED, 400, "model")
    table.fleet.remove(other.id)
    assert table.ids(None) == ["a", "b"]


def test_limits_are_kept(table: Table) -> None:
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


def test_the_owner_of_a_stored_response(table: Table) -> None:
    table.add("a")
    replica = table.add("b")
    fleet = table.fleet
    assert fleet.eligibility.owner_of("resp_1", "", None) is None
    fleet.response_affinity.learn("resp_1", "b")
    assert fleet.eligibility.owner_of("resp_1", "", None) is replica
    take_down(table, replica)
    assert (
        refusal(lambda: fleet.eligibility.owner_of("resp_1", "", None)).reason is Reason.NO_REPLICA
    )
    fleet.remove("b")
    err = refusal(lambda: fleet.eligibility.owner_of("resp_1", "", None))
    assert (err.reason, err.status) == (Reason.STATE_LOST, 404)
