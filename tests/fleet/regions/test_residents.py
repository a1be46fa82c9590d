"""Data residency in the fleet table: the replicas of the allowed regions, and the errors."""

from collections.abc import Callable

import pytest

from policies.allowed import Allowed
from router.core.errors import Reason, RouterError
from router.fleet.membership import Duty
from router.fleet.replica import Replica
from router.wire.sweep import NEVER
from tests.fleet.helpers import Table

EU = Allowed(["eu"])
US_OR_ASIA = Allowed(["us", "asia"])


def world() -> tuple[Table, Replica, Replica, Replica]:
    table = Table(fall=1)
    return (
        table,
        table.add("a", ("m", "eu only"), region="eu"),
        table.add("b", ("m",), region="us"),
        table.add("c", ("m", "us only"), region="us"),
    )


def refusal(act: Callable[[], object]) -> RouterError:
    with pytest.raises(RouterError) as caught:
        act()
    return caught.value


def test_only_replicas_of_the_allowed_regions_are_found() -> None:
    table, a, b, c = world()
    fleet = table.fleet
    assert fleet.serving.of("m", None) == (a, b, c)
    assert fleet.serving.of("m", EU) == (a,)
    assert fleet.serving.of("m", US_OR_ASIA) == (b, c)
    assert fleet.serving.of(None, EU) == (a,)
    assert fleet.serving.of("us only", EU) == ()
    assert list(fleet.eligibility.replicas("m", US_OR_ASIA, [b])) == [c]
    assert refusal(lambda: fleet.eligibility.replicas("m", US_OR_ASIA, [b, c])).status == 503


def test_a_region_without_the_model_is_refused_at_once() -> None:
    table, *_ = world()
    fleet = table.fleet
    err = refusal(lambda: fleet.eligibility.check("us only", EU))
    assert (err.reason, err.status) == (Reason.REGION_NOT_ALLOWED, 403)
    assert err.retry_after_s is None
    assert "(eu)" in err.message and "`us only`" in err.message
    assert (
        refusal(lambda: fleet.eligibility.replicas("us only", EU)).reason
        is Reason.REGION_NOT_ALLOWED
    )
    waiting = fleet.eligibility.refusal("us only", EU)
    assert waiting is not None and waiting.reason is Reason.REGION_NOT_ALLOWED
    nowhere = Allowed(["mars"])
    assert (
        refusal(lambda: fleet.eligibility.check("m", nowhere)).reason is Reason.REGION_NOT_ALLOWED
    )
    assert refusal(lambda: fleet.eligibility.check("invented", EU)).reason is Reason.MODEL_NOT_FOUND
    fleet.eligibility.check("m", EU)
    assert fleet.eligibility.refusal("m", EU) is None


def test_a_region_that_is_down_is_waited_for() -> None:
    table, a, *_ = world()
    fleet = table.fleet
    fleet.probes.probed(a, False)
    lost = fleet.absent_since.of("m", EU)
    fleet.eligibility.check("m", EU)
    assert fleet.eligibility.refusal("m", EU) is None
    assert fleet.serving.of("m", EU) == ()
    assert fleet.absent_since.of("m", None) == NEVER
    assert lost < NEVER and lost == fleet.absent_since.of("eu only", EU)
    assert fleet.absent_since.of(None, EU) == lost
    err = refusal(lambda: fleet.eligibility.replicas("m", EU))
    assert (err.reason, err.status) == (Reason.NO_REPLICA, 503)
    assert "(eu)" in err.message
    fleet.probes.probed(a, True)
    assert fleet.absent_since.of("m", EU) == NEVER


def test_a_busy_replica_of_an_allowed_region_is_used_although_others_are_not_busy() -> None:
    table, a, b, c = world()
    fleet = table.fleet
    fleet.outcomes.busy(a, b"20", fleet.clock())
    assert fleet.serving.of("m", None) == (b, c)
    assert fleet.serving.of("m", EU) == (a,)
    fleet.outcomes.busy(b, b"20", fleet.clock())
    assert fleet.serving.of("m", US_OR_ASIA) == (c,)
    assert list(fleet.eligibility.replicas("m", US_OR_ASIA, [c])) == [b]


def test_an_ejected_replica_is_used_if_its_region_has_no_other(table: Table) -> None:
    """The ejection is allowed, because other regions serve the model."""
    fleet = table.fleet
    a = table.add("a", region="eu", max_inflight=1)
    b, c = table.add("b", region="us"), table.add("c", region="us")
    for _ in range(table.rules.eject_after):
        fleet.outcomes.failed(a, Reason.SERVER_ERROR)
    assert a.health.is_ejected(fleet.clock())
    assert fleet.serving.of("m", None) == (b, c)
    assert fleet.serving.of("m", EU) == (a,)
    assert fleet.serving.of("m", Allowed(["eu", "us"])) == (b, c)
    assert fleet.absent_since.of("m", EU) == NEVER
    lease = table.lease(a)
    assert refusal(lambda: fleet.eligibility.replicas("m", EU)).reason is Reason.FLEET_FULL
    lease.release()
    fleet.set_duty(a, Duty.CORDONED)
    assert fleet.serving.of("m", EU) == ()


def test_a_new_replica_may_serve_the_model() -> None:
    table, *_ = world()
    new = table.add("new", None, region="asia", is_new=True)
    asia = Allowed(["asia"])
    table.fleet.eligibility.check("m", asia)
    assert table.fleet.eligibility.refusal("m", asia) is None
    table.fleet.probes.learned(new, {"other": {"id": "other"}})
    table.fleet.probes.probed(new, True)
    assert (
        refusal(lambda: table.fleet.eligibility.check("m", asia)).reason
        is Reason.REGION_NOT_ALLOWED
    )


def test_a_fleet_that_lists_no_models_has_regions_too(table: Table) -> None:
    a, b = table.add("a", None, region="eu"), table.add("b", None, region="us")
    assert table.fleet.serving.of("anything", EU) == (a,)
    assert table.fleet.serving.of("anything", US_OR_ASIA) == (b,)
    for number in range(5000):
        table.fleet.serving.of(f"m{number}", EU)
    assert len(table.fleet.serving._residents) < 10, "clients may invent names of models"


def test_a_stored_response_of_another_region_is_refused() -> None:
    table, a, *_ = world()
    table.fleet.response_affinity.learn("resp_1", "a", "")
    assert table.fleet.eligibility.owner_of("resp_1", "", EU) is a
    err = refusal(lambda: table.fleet.eligibility.owner_of("resp_1", "", US_OR_ASIA))
    assert err.reason is Reason.REGION_NOT_ALLOWED


def test_a_removed_replica_leaves_its_region() -> None:
    table, a, *_ = world()
    fleet = table.fleet
    assert fleet.nearest.is_used and fleet.nearest.regions == {"eu", "us"}
    fleet.remove(a.id)
    assert not fleet.nearest.is_used and fleet.nearest.regions == {"us"}
    assert fleet.serving.of("m", EU) == ()
    assert refusal(lambda: fleet.eligibility.check("m", EU)).reason is Reason.REGION_NOT_ALLOWED


def test_a_region_that_joins_again_is_new() -> None:
    """The time since which it had no replica begins again, so requests wait for its first probe."""
    clock = [100.0]
    table = Table(fall=1)
    fleet = table.fleet
    table.clock = lambda: clock[0]
    a = table.add("a", region="eu")
    table.add("b", region="us")
    fleet.probes.probed(a, False)
    assert fleet.absent_since.of("m", EU) == 100.0
    fleet.remove(a.id)
    clock[0] = 500.0
    table.add("c", region="eu", is_new=True)
    assert fleet.absent_since.of("m", EU) == 500.0


def test_the_last_of_several_lost_regions_counts(table: Table) -> None:
    clock, fleet = [2.0], table.fleet
    table.clock = lambda: clock[0]
    a, b = table.add("a", ("m",), region="eu"), table.add("b", ("m", "n"), region="us")
    fleet.set_duty(a, Duty.CORDONED)
    clock[0] = 5.0
    fleet.set_duty(b, Duty.CORDONED)
    assert fleet.absent_since.of("m", EU) == 2.0
    assert fleet.absent_since.of("n", EU) == 2.0, "the region has no replica at all"
    assert fleet.absent_since.of("m", Allowed(["eu", "us"])) == 5.0
