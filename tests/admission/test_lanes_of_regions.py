"""Requests that are limited to regions have lanes of their own, and delay no other request."""

from policies.allowed import Allowed, lane_of
from policies.queueing.ticket import SENT, WAITING, Ticket
from router.core.urgency import BATCH
from tests.addons.needed import needs
from tests.admission.world import Spot, World, config

pytestmark = needs("preemption")

EU, US = Allowed(["eu"]), Allowed(["us"])
SLOTS = 4
HIGH, NORMAL = 1.0, 2.0
PREEMPTS = config(
    gates={"waiting": 1, "prefill_tokens": 0},
    preemption={"enabled": True, "after_s": 0.0, "budget": 1.0},
)


class Regions(World):
    """A replica in each region. The headroom is at its highest level."""

    def __init__(self, **changes: object) -> None:
        self.eu, self.us = Spot("eu", slots=SLOTS), Spot("us", slots=SLOTS)
        super().__init__([self.eu, self.us], **changes)  # type: ignore[arg-type]
        self.pool.lanes = {lane_of("m", EU): [self.eu], lane_of("m", US): [self.us]}
        self.queue.headroom.own = 1.0
        self.queue.headroom._quiet_at = float("inf")

    def arrives(self, allowed: Allowed | None, number: float = NORMAL) -> int:
        """The state of a new request, which runs for a long time."""
        lane = lane_of("m", allowed)
        ticket = self.come(model="m", lane=lane, number=number, tokens=10, output=100_000)
        state: int = ticket.state
        self.run(0.1)
        return state


def test_an_urgent_request_keeps_no_slot_where_it_may_not_go() -> None:
    world = Regions()
    assert {world.arrives(EU, HIGH) for _ in range(SLOTS)} == {SENT}
    assert world.arrives(EU, HIGH) == WAITING, "every slot of its region is taken"
    assert {world.arrives(US) for _ in range(SLOTS)} == {SENT}
    assert world.arrives(US) == SENT, "a full engine queues a request that is not urgent"
    assert world.arrives(EU) == WAITING, "the next free slot there is for the urgent request"


def test_a_free_replica_takes_only_requests_of_its_region() -> None:
    world = Regions()
    world.pool.lanes[lane_of("m", EU)] = []
    waiting = world.come(model="m", lane=lane_of("m", EU), tokens=10, output=5)
    world.free(world.us)
    world.tick()
    assert waiting.state == WAITING
    world.pool.lanes[lane_of("m", EU)] = [world.eu]
    world.free(world.us)
    assert waiting.state == WAITING
    world.free(world.eu)
    assert (waiting.state, waiting.place) == (SENT, world.eu)


def preempting() -> tuple[Regions, Ticket]:
    """A batch request without content is at the replica in `us`.

    An urgent request waits for `eu`, where no replica is up.
    """
    world = Regions(rules=PREEMPTS)
    world.us.prefill_rate = 1.0
    victim = world.come(model="m", lane=lane_of("m", US), number=4.0, tokens=100, output=10)
    world.pool.lanes[lane_of("m", EU)] = []
    assert world.arrives(EU, HIGH) == WAITING
    return world, victim


def test_an_urgent_request_without_a_victim_keeps_no_other_from_one() -> None:
    world, victim = preempting()
    urgent = world.come(model="m", lane=lane_of("m", US), number=HIGH, tokens=10, output=10)
    assert urgent.state == WAITING
    world.run(5.0)
    assert (urgent.state, victim.state) == (SENT, WAITING)
    assert world.queue.counts.preempted == [0, 0, 0, 0, 1]


def test_batch_of_other_regions_does_not_count_before_a_request() -> None:
    world = Regions()
    for allowed, count in ((EU, 3), (US, 2), (None, 4)):
        world.pool.lanes[lane_of("m", allowed)] = []
        for _ in range(count):
            world.come(model="m", lane=lane_of("m", allowed), number=4.0, tokens=10)
    assert world.queue.eligible[BATCH] == 9
    assert world.queue.eligible_before(BATCH, EU) == 7
    assert world.queue.eligible_before(BATCH, Allowed(["us"])) == 6
    assert world.queue.eligible_before(BATCH, None) == 4
    assert world.queue.eligible_before(BATCH, Allowed(["eu", "us"])) == 4
