"""The attempts of a request that is limited to some regions stay in these regions.

The tests have a first attempt, retries, copies, resumed streams, a wait, and a move from a
reclaimed machine. The tables are explained in `driver_tables.py`.

Replica r0 is in `eu`, r1 in `us`, r2 in `eu`, and so on.
"""

from typing import Any

import pytest

from policies.allowed import Allowed
from router.config.model import Classes, ClassSettings, Preemption, Queue, Retry
from router.core.errors import Reason
from router.dispatch.driver.retries import leave
from router.fleet.membership import Duty
from tests.addons.needed import needs
from tests.dispatch.driven import World
from tests.dispatch.driver.driver_tables import run, stories

pytestmark = needs("preemption")

US = Allowed(["us"])
REGIONS = ("eu", "us")
QUEUES = {
    "no queue": Queue(enabled=False),
    "queue": Queue(),
    "ticket": Queue(preemption=Preemption(enabled=True)),  # every request has a ticket
}

STORIES = stories(
    """
    the first attempt and the retries [4 replicas]
        q arrives us  -> send q to r1
        r1 refuses q  -> retry q to r3
        r3 refuses q  -> answer q: connect_failed
    a copy [4 replicas, copies]
        q arrives us  -> send q to r1
        1s passes     -> copy q to r3
        q leaves      -> drop q at r1; drop q at r3; end q: client_gone
    no copy goes to another region [2 replicas, copies]
        q arrives us  -> send q to r1
        5s passes     -> nothing
        q leaves      -> drop q at r1; end q: client_gone
    the rest of a broken stream [4 replicas]
        q arrives us continued  -> send q to r1
        r1 shows q              -> show q from r1
        r1 resets q             -> continue q to r3
        q leaves                -> drop q at r3; end q: client_gone
    no rest comes from another region [2 replicas]
        q arrives us continued  -> send q to r1
        r1 shows q              -> show q from r1
        r1 resets q             -> truncate q: replica_reset
    another name of the model [2 replicas, any model]
        q arrives us by-another-name  -> send q to r1
        q leaves                      -> drop q at r1; end q: client_gone
    a request waits for its region and delays no other [2 replicas, queue]
        r1 goes-down    -> nothing
        q arrives us    -> queue q
        free arrives    -> send free to r0
        r1 proves-good  -> grant q; send q to r1
        free leaves     -> drop free at r0; end free: client_gone
        q leaves        -> drop q at r1; end q: client_gone
    the wait for a lost region counts from the loss [2 replicas, queue, brief]
        r1 goes-down  -> nothing
        a arrives us  -> queue a
        2.5s passes   -> nothing
        1s passes     -> answer a: no_replica
        b arrives us  -> answer b: no_replica
    a region that leaves the fleet ends the wait [2 replicas, queue]
        r1 goes-down  -> nothing
        q arrives us  -> queue q
        r1 leaves     -> nothing
        0.5s passes   -> answer q: region_not_allowed
    a preferred region goes first, and a limit before it [2 replicas]
        free arrives near-us  -> send free to r1
        q arrives near-us eu  -> send q to r0
        free leaves           -> drop free at r1; end free: client_gone
        q leaves              -> drop q at r0; end q: client_gone
    a waiting request follows the regions of its key, in its place [2 replicas, queue, 1 each]
        first arrives     -> send first to r0
        second arrives    -> send second to r1
        q arrives eu-us   -> queue q
        later arrives eu  -> queue later
        q may-use eu      -> nothing
        r1 ends second    -> show second from r1; release second at r1; end second: ok
        r0 ends first     -> show first from r0; release first at r0; end first: ok; grant q; \
send q to r0
        r0 accepts q      -> nothing
        q may-use us      -> nothing
        r0 ends q         -> show q from r0; release q at r0; end q: ok; grant later; \
send later to r0
        r0 ends later     -> show later from r0; release later at r0; end later: ok
    a waiting request may use regions that its key gets [2 replicas, queue, 1 each]
        first arrives eu  -> send first to r0
        q arrives eu      -> queue q
        q may-use all     -> grant q; send q to r1
        first leaves      -> drop first at r0; end first: client_gone
        q leaves          -> drop q at r1; end q: client_gone
    a waiting request is refused if its key loses all regions [1 replica, queue, 1 each]
        first arrives eu  -> send first to r0
        q arrives eu      -> queue q
        q may-use us      -> nothing
        1s passes         -> answer q: region_not_allowed
        first leaves      -> drop first at r0; end first: client_gone
    a retry on a new connection leaves a region that was removed [2 replicas]
        q arrives us        -> send q to r1
        q may-use eu        -> nothing
        r1 was-stale-for q  -> retry q to r0
        q leaves            -> drop q at r0; end q: client_gone
    no request goes without its priority to a region that was removed [2 replicas]
        q arrives us               -> send q to r1
        r1 accepts q               -> nothing
        q may-use eu               -> nothing
        r1 knows-no-priority-of q  -> release q at r1; end q: replica_refused
    a preempted request waits for the regions of its key [2 replicas, tickets, 1 each]
        q arrives us      -> send q to r1
        r1 accepts q      -> nothing
        q may-use eu      -> nothing
        other arrives eu  -> send other to r0
        q yields          -> drop q at r1; queue q
        1s passes         -> nothing
        other leaves      -> drop other at r0; end other: client_gone; grant q; retry q to r0
        q leaves          -> drop q at r0; end q: client_gone
    an attempt that was not sent is not one of the permitted attempts [4 replicas, 2 attempts]
        q arrives us  -> send q to r1
        q may-use eu  -> nothing
        r1 accepts q  -> retry q to r0
        r0 503s q     -> discard q at r0; retry q to r2
        q leaves      -> drop q at r2; end q: client_gone
    a pinned request is refused if its replica moves to another region [2 replicas, queue, 1 each]
        first arrives us  -> send first to r1
        q arrives us r1   -> queue q
        r1 moves-to eu    -> nothing
        1s passes         -> answer q: region_not_allowed
        first leaves      -> drop first at r1; end first: client_gone
    a reclaimed request goes to another replica of its regions [4 replicas]
        q arrives us  -> send q to r1
        r1 drains     -> nothing
        q must-leave  -> drop q at r1; retry q to r3
        q leaves      -> drop q at r3; end q: client_gone
    ... also with a ticket, by the queue [4 replicas, tickets]
        q arrives us  -> send q to r1
        r1 drains     -> nothing
        q must-leave  -> drop q at r1; queue q
        1s passes     -> grant q; retry q to r3
        q leaves      -> drop q at r3; end q: client_gone
    a reclaimed stream is continued in its regions [4 replicas]
        q arrives us continued  -> send q to r1
        r1 shows q              -> show q from r1
        r1 drains               -> nothing
        q must-leave            -> drop q at r1; continue q to r3
        q leaves                -> drop q at r3; end q: client_gone
    ... and in no other one [3 replicas]
        q arrives us continued  -> send q to r1
        r1 shows q              -> show q from r1
        r1 drains               -> nothing
        q must-leave            -> q stays
        q leaves                -> drop q at r1; end q: client_gone
    """,
    {
        "2 attempts": {"retry": Retry(attempts=2, backoff_s=0.0)},
        "any model": {"models": ("m", "*")},
        "brief": {"classes": Classes(normal=ClassSettings(absent_s=3.0))},
        "queue": {"queue": QUEUES["queue"]},
        "tickets": {"queue": QUEUES["ticket"]},
    },
)
WITH_ANY_QUEUE = stories(
    """
    regions without replicas are refused at once [2 replicas]
        q arrives mars  -> answer q: region_not_allowed
    later attempts follow the regions of the key [4 replicas]
        q arrives us  -> send q to r1
        q may-use eu  -> nothing
        r1 resets q   -> retry q to r0
        q leaves      -> drop q at r0; end q: client_gone
    an attempt without a connection leaves a region that was removed [2 replicas]
        q arrives us  -> send q to r1
        q may-use eu  -> nothing
        r1 accepts q  -> retry q to r0
        q leaves      -> drop q at r0; end q: client_gone
    a reclaimed request stays without another replica of its regions [3 replicas]
        q arrives us  -> send q to r1
        r1 drains     -> nothing
        q must-leave  -> q stays
        1s passes     -> nothing
        q leaves      -> drop q at r1; end q: client_gone
    """
)


@pytest.mark.parametrize(("table", "settings"), STORIES)
def test_regions(table: str, settings: dict[str, Any]) -> None:
    run(table, {"regions": REGIONS, **settings})


@pytest.mark.parametrize(("table", "settings"), WITH_ANY_QUEUE)
@pytest.mark.parametrize("queue", QUEUES.values(), ids=QUEUES)
def test_regions_with_any_queue(table: str, settings: dict[str, Any], queue: Queue) -> None:
    run(table, {"regions": REGIONS, "queue": queue, **settings})


def test_an_attempt_in_another_region_is_a_defect() -> None:
    """No list of candidates has such a replica. This is the last check before bytes are sent."""
    world = World(2, regions=REGIONS)
    request = world.arrives("q", allowed=US)
    before = len(world.said)
    with pytest.raises(RuntimeError, match="r0 is not in the regions us"):
        request.driver.begin(world.replicas[0], world.time.now())
    assert len(world.said) == before
    assert world.replicas[0].inflight == 0


def test_a_reclaimed_request_keeps_its_place_among_those_that_wait_for_its_regions() -> None:
    """r3 is free, and the moved request arrived before the one that waits."""
    world = World(4, regions=REGIONS, queue=Queue(), most=1)
    first = world.arrives("first", allowed=US)
    second = world.arrives("second", allowed=US)
    world.arrives("waits", allowed=US)
    assert world.said == ["send first to r1", "send second to r3", "queue waits"]
    second.whole(second.driver.state.live[0])
    world.fleet.set_duty(world.replicas[1], Duty.DRAINING)
    assert leave(first.driver, first.driver.state.live[0], world.time.at)
    world.time.passes(0.5)
    assert world.said[-1] == "retry first to r3"
    first.whole(first.driver.state.live[0])
    world.time.passes(0.5)
    assert world.said[-1] == "send waits to r3"


def test_a_reclaimed_request_keeps_its_place_before_one_that_waits_for_another_replica() -> None:
    """r3 is free, and `waits` has tried it. The moved request is of the same lane, and queues."""
    world = World(4, regions=REGIONS, queue=Queue(), most=1)
    first = world.arrives("first", allowed=US)
    second = world.arrives("second", allowed=US)
    waits = world.arrives("waits", allowed=US)
    second.whole(second.driver.state.live[0])
    world.time.passes(0.0)
    assert world.said[-1] == "send waits to r3"
    waits.fails(waits.driver.state.live[0], Reason.REPLICA_RESET)
    world.time.passes(0.5)
    assert world.said[-1] == "queue waits"
    world.fleet.set_duty(world.replicas[1], Duty.DRAINING)
    assert leave(first.driver, first.driver.state.live[0], world.time.at)
    world.time.passes(0.5)
    assert world.said[-1] == "retry first to r3"
    first.whole(first.driver.state.live[0])
    world.time.passes(0.5)
    assert world.said[-1].endswith("waits to r3")


@pytest.mark.parametrize(
    ("spot", "batch", "critical"),
    [((1, 3), "r0", "r0"), ((2,), "r2", "r0"), ((0,), "r0", "r2"), ((0, 2), "r0", "r0")],
)
def test_the_preference_for_spot_does_not_leave_the_region(
    spot: tuple[int, ...], batch: str, critical: str
) -> None:
    for urgency, found in (("batch", batch), ("critical", critical)):
        world = World(4, regions=REGIONS)
        for number in spot:
            world.replicas[number].is_spot = True
        world.chooser.has_spot = True
        world.arrives("q", urgency, region="eu")
        assert world.said == [f"send q to {found}"]
