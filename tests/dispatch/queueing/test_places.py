"""The queue's view of the fleet, and a queue driven over a real fleet table."""

from random import Random

from policies.contract import Candidate, RoutingPolicy
from router.config.model import Prefix
from router.core.lease import poll_begins
from router.dispatch.chooser import Chooser, Policies
from router.dispatch.queueing.places import Places, pinned
from router.fleet.prefix.lookup import PrefixLookup
from router.fleet.signals import Signals
from router.observe.metrics import Metrics
from tests.fleet.helpers import Table
from tests.harness.running import scenario


@scenario
async def test_lanes_are_models_and_pins() -> None:
    table = Table()
    a, b = table.add("a", ("m1",)), table.add("b", ("m1", "m2"))
    unlisted = table.add("x", None)
    places = Places(table.fleet)
    assert set(places.eligible("m1")) == {a, b}
    assert set(places.eligible("m2")) == {b}
    assert set(places.eligible("unknown")) == set()
    assert set(places.eligible("")) == {a, b}
    assert places.eligible(pinned(a)) == (a,)
    for lane in ("m1", "m2", "", "unknown", pinned(a)):
        for replica in (a, b, unlisted):
            assert places.serves(replica, lane) is (replica in places.eligible(lane))
    table.fleet.remove("a")
    assert a not in places.eligible("m1")
    assert not places.serves(a, "m1")
    assert places.eligible(pinned(a)) == ()
    assert not places.serves(a, pinned(a))
    assert places.served() == {b: {"m1", "m2"}, unlisted: frozenset()}
    table.fleet.remove("b")
    assert set(places.eligible("m1")) == {unlisted}
    assert places.served() == {unlisted: None}
    table.close()


@scenario
async def test_names_of_lanes_cost_no_memory_without_end() -> None:
    table = Table()
    replica = table.add("a", None)
    places = Places(table.fleet)
    for number in range(5000):
        assert places.serves(replica, f"m{number}")
    assert len(places._sets) <= 1024
    table.close()


@scenario
async def test_a_replica_is_blind_until_its_metrics_are_read() -> None:
    table = Table(fall=1)
    replica = table.add("a")
    places = Places(table.fleet)
    assert places.is_blind(replica)
    poll = poll_begins(replica, 100.0)
    table.fleet.polls.observed(replica, Signals(running=1, waiting=0), poll, 100.0)
    assert not places.is_blind(replica)
    table.fleet.polls.unobserved(replica, "timeout", 1000.0)
    assert places.is_blind(replica)
    table.close()


@scenario
async def test_unreported_slots_are_learned() -> None:
    """Without learned slots, dozens of short prompts would be sent to a full engine."""
    table = Table()
    replica = table.add("a")
    places = Places(table.fleet)
    assert places.slots(replica) is None
    for number in range(12):
        poll = poll_begins(replica, 100.0)
        table.fleet.polls.observed(replica, Signals(running=8, waiting=3), poll, 100.0 + number)
    assert places.slots(replica) == 8
    table.close()


class Planning(RoutingPolicy):
    """Keeps nothing away, and makes a new plan whenever a request is to leave."""

    changes = 0

    def closed_to(self, candidate: Candidate, leaving: int = -1) -> int:
        self.changes += leaving >= 0
        return 0

    def plan_changes(self) -> int:
        return self.changes


@scenario
async def test_the_queue_sees_that_a_policy_has_a_new_plan() -> None:
    table = Table()
    replica = table.add("a", ("m1",))
    policies = Policies(Planning(), {"m1": Planning()}, 8)
    chooser = Chooser(policies, PrefixLookup(Prefix()), Metrics(), Random(1))
    places = Places(table.fleet, chooser)
    assert (places.closed_to(replica), places.plan_changes) == (0, 0)
    assert (places.closed_to(replica, 3), places.plan_changes) == (0, 2)
    assert (places.closed_to(replica), places.plan_changes) == (0, 2)
    table.close()
