"""Classes that the routing policy keeps away from replicas."""

from policies.queueing.ticket import WAITING, Ticket
from router.admission.gates.gate_cache import GateCache
from router.admission.headroom import Headroom
from router.admission.rules import Rules
from router.config.model import Config
from router.core.replica_load import ReplicaLoad
from router.core.urgency import BATCH, HIGH, LOW, NORMAL
from tests.admission.parts import Parts
from tests.admission.world import Spot, Stand, World, config, every_class

TOKENS = 100


class Choosy(Stand):
    """A pool whose policy keeps classes away."""

    closed = 0

    def closed_to(self, place: ReplicaLoad, leaving: int = -1) -> int:
        return self.closed


class ChoosyWorld(World):
    def __init__(self, rules: Config, closed: int) -> None:
        self.spot = Spot("a")
        super().__init__([self.spot], rules)
        self.choosy = Choosy([self.spot])
        self.choosy.clock = lambda: self.now
        self.choosy.closed = closed
        self.pool = self.choosy
        self.queue = type(self.queue)(rules, self.choosy)
        self.queue.freed(self.spot, self.now)


def test_batch_has_no_turns_at_a_replica_that_the_policy_keeps_for_others() -> None:
    world = ChoosyWorld(config(), 1 << BATCH)
    high = [world.come(number=1.0, tokens=8000) for _ in range(9)]
    assert high[-1].state == WAITING
    batch = world.come(number=4.0, tokens=1)
    world.run(60.0)
    assert len(world.done) == len(high) and batch.state == WAITING
    world.choosy.closed = 0
    world.free(world.spot)
    assert batch in world.started


def test_a_starved_request_is_sent_whatever_the_policy_wants() -> None:
    rules = config(classes={"low": {"starvation_s": 8.0}})
    world = ChoosyWorld(rules, 1 << LOW | 1 << NORMAL)
    low = world.come(number=3.0, tokens=TOKENS)
    world.run(4.0)
    assert low.state == WAITING
    world.run(4.5)
    assert low in world.started


def test_the_reason_is_the_policy_only_if_the_facts_allow_the_class() -> None:
    spot = Spot("a")
    pool = Choosy([spot])
    pool.closed = 1 << LOW
    gates = GateCache(pool, Rules(config()), Headroom())
    assert gates.why_closed(spot, LOW) == "policy"
    assert gates.why_closed(spot, HIGH) == ""
    assert not gates.admits(spot, LOW)
    assert gates.admits(spot, HIGH)
    spot.load, spot.kv_usage = 1, 1.0
    assert gates.why_closed(spot, LOW) == "kv_cache"


def test_no_request_waits_longer_than_its_bound_while_others_of_its_class_are_sent() -> None:
    rules = config(classes={"low": {"starvation_s": 8.0}})
    world = ChoosyWorld(rules, 1 << LOW | 1 << NORMAL)
    low = world.come(number=3.0, tokens=TOKENS)
    class_queue = low.class_queue
    for _ in range(80):  # tickets of the class queue get places at another replica all the time
        world.run(0.11)
        class_queue.served_at = world.now
        world.free(world.spot)
        if low in world.started:
            break
    assert 8.0 <= world.started[low] - low.arrival <= 8.3


class Planned(Stand):
    """A pool whose policy makes a new plan when it is asked about the second replica."""

    def __init__(self, spots: list[Spot]) -> None:
        super().__init__(spots)
        self.closed = dict.fromkeys(spots, 1 << LOW)
        self.planned: dict[Spot, int] = {}

    def closed_to(self, place: ReplicaLoad, leaving: int = -1) -> int:
        assert isinstance(place, Spot)
        if self.planned and place is self.spots[1]:
            self.closed, self.planned = self.planned, {}
            self.plan_changes += 1
        return self.closed[place]


def planned() -> tuple[World, Planned, Spot, Spot]:
    first, second = Spot("a"), Spot("b")
    world = World([first, second])
    pool = Planned([first, second])
    pool.clock = lambda: world.now
    world.pool = pool
    world.queue = type(world.queue)(config(), pool)
    for spot in pool.spots:
        world.queue.freed(spot, world.now)
    return world, pool, first, second


def test_a_new_plan_opens_the_gates_of_other_replicas_at_once() -> None:
    world, pool, first, second = planned()
    low = world.come(number=3.0, tokens=TOKENS)
    assert low.state == WAITING
    pool.planned = {first: 0, second: 1 << LOW}
    world.free(second)  # an event of the replica that stays closed
    assert low.place is first


def test_a_new_plan_closes_the_gates_of_other_replicas_at_once() -> None:
    world, pool, first, second = planned()
    pool.closed = {first: 0, second: 0}
    world.free(first)
    world.free(second)
    pool.planned = {first: 1 << LOW, second: 0}
    world.free(second)
    low = world.come(number=3.0, tokens=TOKENS)
    assert low.place is second


def test_without_a_new_plan_one_event_reads_one_gate() -> None:
    world, pool, first, second = planned()
    pool.closed = {first: 0, second: 0}
    world.free(second)
    assert world.queue.gates.is_open(second, LOW)
    assert not world.queue.gates.is_open(first, LOW)


def test_age_opens_no_replica_that_the_policy_keeps_for_more_urgent_classes() -> None:
    rules = config(batch_becomes_normal_after_s=8.0, classes={"low": {"starvation_s": 1e6}})
    world = ChoosyWorld(rules, 1 << LOW | 1 << NORMAL)
    low = world.come(number=3.0, tokens=TOKENS)
    world.run(60.0)  # its age has made it as urgent as class high
    assert low.state == WAITING
    world.choosy.closed = 1 << NORMAL | 1 << HIGH
    world.free(world.spot)
    assert low in world.started


# -- lost tickets: the order `slide` sends requests last if they are late by 0.25 of the SLO ------

SLO_S = 2.0
BOUND_S = 40.0
AT = 35.0  # starved, but not for as long as the bound


def sliding(closed: int) -> tuple[Parts, Spot]:
    """A replica that the policy closes to classes."""
    spot = Spot("a")
    classes = every_class(ttft_slo_s=SLO_S, starvation_s=BOUND_S)
    parts = Parts(spot, policy="slide", batch_becomes_normal_after_s=0.0, classes=classes)
    choosy = Choosy([spot])
    choosy.closed = closed
    parts.gates = GateCache(choosy, parts.rules, parts.headroom)
    return parts, spot


def lost(count: int, closed: int) -> tuple[Parts, Spot, list[Ticket]]:
    """Lost and starved tickets of class normal, and a replica that the policy closes to classes."""
    parts, spot = sliding(closed)
    found = [parts.waits(0.0, number=2.0) for _ in range(count)]
    found[0].class_queue.served_at = found[0].class_queue.lost_at = AT
    found[0].class_queue.promote(AT, 0.75 * BOUND_S, count)
    return parts, spot, found


def test_every_tenth_place_is_for_a_starved_lost_ticket() -> None:
    parts, spot, old = lost(2, 1 << BATCH)
    new = [parts.waits(AT, number=2.0) for _ in range(25)]
    served = parts.served(spot, AT)
    assert [served.index(ticket) for ticket in old] == [10, 21]
    assert set(served) == {*old, *new}


def test_a_class_sends_a_lost_ticket_within_its_bound_even_if_no_other_is_sent() -> None:
    parts, spot, old = lost(3, 1 << BATCH)
    assert parts.served(spot, AT + 0.99 * BOUND_S) == []
    assert parts.served(spot, AT + 1.01 * BOUND_S) == old[:1]


def test_an_unstarved_lost_ticket_does_not_take_the_place_of_a_starved_one() -> None:
    parts, spot = sliding(1 << BATCH)
    old = parts.waits(0.0, number=0.0, ttft_slo_s=20.0)
    parts.waits(10.0, number=0.0)  # its deadline is earlier
    old.class_queue.promote(AT, 0.75 * BOUND_S, 2)
    assert parts.served(spot, AT, 1) == [old]
