"""The attempts of a request that is limited to some regions stay in these regions.

The tests have a first attempt, retries, copies, resumed streams, a wait, and a move from a
reclaimed machine.

Replica r0 is in `eu`, r1 in `us`, r2 in `eu`, and so on.
"""

from __future__ import annotations

import pytest

from policies.allowed import Allowed
from router.config.model import (
    Classes,
    ClassSettings,
    Hedging,
    Preemption,
    Queue,
    Retry,
)
from router.core.errors import Reason
from router.core.urgency import CLASSES
from router.fleet.membership import Duty
from tests.dispatch.driven import World

EU, US = Allowed(["eu"]), Allowed(["us"])
BOTH = Allowed(["eu", "us"])
COPIES = Hedging(policy="fixed", options={"delay_s": 0.5}, classes=CLASSES, budget=1.0)
REGIONS = ("eu", "us")


def test_the_first_attempt_and_the_retry() -> None:
    world = World(4, regions=REGIONS)
    request = world.arrives("q", allowed=US)
    request.fails(request.driver.state.live[0], Reason.CONNECT_FAILED, received=False)
    request.fails(request.driver.state.live[0], Reason.CONNECT_FAILED, received=False)
    assert world.said == ["send q to r1", "retry q to r3", "answer q: connect_failed"]


def test_a_copy() -> None:
    world = World(4, regions=REGIONS, hedging=COPIES)
    world.arrives("q", allowed=US)
    world.time.passes(1.0)
    assert world.said == ["send q to r1", "copy q to r3"]
    alone = World(2, regions=REGIONS, hedging=COPIES)
    alone.arrives("q", allowed=US)
    alone.time.passes(5.0)
    assert alone.said == ["send q to r1"], "the only other replica is elsewhere"


def test_the_rest_of_a_broken_stream() -> None:
    world = World(2, regions=REGIONS)
    request = world.arrives("q", allowed=US, continued=True)
    (attempt,) = request.driver.state.live
    request.shows(attempt)
    request.fails(attempt, Reason.REPLICA_RESET)
    assert world.said[-1] == "truncate q: replica_reset"
    world = World(4, regions=REGIONS)
    request = world.arrives("q", allowed=US, continued=True)
    (attempt,) = request.driver.state.live
    request.shows(attempt)
    request.fails(attempt, Reason.REPLICA_RESET)
    assert world.said[-1] == "continue q to r3"


def test_another_name_of_the_model() -> None:
    world = World(2, regions=REGIONS, models=("m", "*"))
    world.arrives("q", allowed=US, model="another name")
    assert world.said == ["send q to r1"]


@pytest.mark.parametrize("queue", [Queue(enabled=False), Queue()])
def test_regions_without_replicas_are_refused_at_once(queue: Queue) -> None:
    world = World(2, regions=REGIONS, queue=queue)
    world.arrives("q", allowed=Allowed(["mars"]))
    assert world.said == ["answer q: region_not_allowed"]


def test_a_request_waits_for_its_region_and_delays_no_other() -> None:
    world = World(2, regions=REGIONS, queue=Queue())
    world.goes_down("r1")
    world.arrives("limited", allowed=US)
    world.arrives("free")
    assert world.said == ["queue limited", "send free to r0"]
    world.fleet.probes.probed(world.replicas[1], True)
    world.time.passes(0.5)
    assert world.said[2:] == ["grant limited", "send limited to r1"]


def test_the_wait_for_a_lost_region_has_the_limit_of_the_class() -> None:
    brief = Classes(normal=ClassSettings(absent_s=3.0))
    world = World(2, regions=REGIONS, queue=Queue(), classes=brief)
    world.goes_down("r1")
    world.arrives("first", allowed=US)
    world.time.passes(2.5)
    assert world.said == ["queue first"]
    world.time.passes(1.0)
    assert world.said[1:] == ["answer first: no_replica"]
    world.arrives("second", allowed=US)
    assert world.said[2:] == ["answer second: no_replica"], "the limit counts from the loss"


def test_a_region_that_leaves_the_fleet_ends_the_wait() -> None:
    world = World(2, regions=REGIONS, queue=Queue())
    world.goes_down("r1")
    world.arrives("q", allowed=US)
    world.fleet.remove("r1")
    world.time.passes(0.5)
    assert world.said == ["queue q", "answer q: region_not_allowed"]


def test_a_preferred_region_goes_first_and_a_limit_before_it() -> None:
    world = World(2, regions=REGIONS)
    world.arrives("free", region="us")
    world.arrives("limited", region="us", allowed=EU)
    assert world.said == ["send free to r1", "send limited to r0"]


def test_an_attempt_in_another_region_is_a_defect() -> None:
    """No list of candidates has such a replica. This is the last check before bytes are sent."""
    world = World(2, regions=REGIONS)
    request = world.arrives("q", allowed=US)
    before = len(world.said)
    with pytest.raises(RuntimeError, match="r0 is not in the regions us"):
        request.driver.begin(world.replicas[0], world.time.now())
    assert len(world.said) == before
    assert world.replicas[0].inflight == 0


# -- reloads that change regions --------------------------------------------------------------


def test_a_waiting_request_follows_the_regions_of_its_key() -> None:
    world = World(2, regions=REGIONS, queue=Queue(), most=1)
    first, second = world.arrives("first"), world.arrives("second")
    request = world.arrives("q", allowed=BOTH)
    later = world.arrives("later", allowed=EU)
    assert world.said[2:] == ["queue q", "queue later"]
    request.limit_regions(EU)
    second.whole(second.driver.state.live[0])
    world.time.passes(1.0)
    assert request.waits_since > 0.0, "the free replica is in us"
    first.whole(first.driver.state.live[0])
    world.time.passes(1.0)
    assert world.said[-1] == "send q to r0", "it keeps its place in the order of arrival"
    assert request.connects(request.driver.state.live[0])
    request.limit_regions(US)
    request.whole(request.driver.state.live[0])
    world.time.passes(1.0)
    assert world.said[-1] == "send later to r0"
    later.whole(later.driver.state.live[0])
    world.check_empty()


def test_a_waiting_request_may_use_regions_that_its_key_gets() -> None:
    world = World(2, regions=REGIONS, queue=Queue(), most=1)
    world.arrives("first", allowed=EU)
    request = world.arrives("q", allowed=EU)
    request.limit_regions(None)
    world.time.passes(0.1)
    assert world.said[2:] == ["grant q", "send q to r1"]


def test_a_waiting_request_is_refused_if_its_key_loses_all_regions() -> None:
    world = World(1, regions=("eu",), queue=Queue(), most=1)
    world.arrives("first", allowed=EU)
    request = world.arrives("q", allowed=EU)
    request.limit_regions(US)
    world.time.passes(1.0)
    assert world.said[-1] == "answer q: region_not_allowed"


@pytest.mark.parametrize("queue", [Queue(enabled=False), Queue()])
def test_later_attempts_follow_the_regions_of_the_key(queue: Queue) -> None:
    world = World(4, regions=REGIONS, queue=queue)
    request = world.arrives("q", allowed=US)
    request.limit_regions(EU)
    assert request.driver.state.live, "what was sent stays where it is"
    request.fails(request.driver.state.live[0], Reason.REPLICA_RESET)
    assert world.said[-1] == "retry q to r0"


def test_a_retry_on_a_new_connection_leaves_a_region_that_was_removed() -> None:
    world = World(2, regions=REGIONS)
    request = world.arrives("q", allowed=US)
    request.limit_regions(EU)
    request.fails(request.driver.state.live[0], Reason.REPLICA_RESET, reused=True, received=False)
    assert world.said == ["send q to r1", "retry q to r0"]


def test_a_request_is_not_sent_without_its_priority_to_a_region_that_was_removed() -> None:
    world = World(2, regions=REGIONS)
    request = world.arrives("q", allowed=US)
    assert request.connects(request.driver.state.live[0])
    request.limit_regions(EU)
    request.asks_without_priority(request.driver.state.live[0])
    assert world.said == ["send q to r1", "release q at r1", "end q: replica_refused"]


def test_a_preempted_request_waits_for_the_regions_of_its_key() -> None:
    world = World(2, regions=REGIONS, queue=QUEUES["ticket"], most=1)
    request = world.arrives("q", allowed=US)
    assert request.connects(request.driver.state.live[0])
    request.limit_regions(EU)
    assert world.queue is not None and request.ticket is not None
    world.arrives("other", allowed=EU)
    world.queue.recall(request.ticket, world.time.at)
    world.time.passes(1.0)
    assert world.said[-1] == "queue q", "r1 is free"
    assert request.waits_since > 0.0


def test_an_attempt_without_a_connection_leaves_a_region_that_was_removed() -> None:
    for queue in QUEUES.values():
        world = World(2, regions=REGIONS, queue=queue)
        request = world.arrives("q", allowed=US)
        request.limit_regions(EU)
        assert not request.connects(request.driver.state.live[0])
        assert world.said == ["send q to r1", "retry q to r0"]
        assert world.replicas[1].health.failures == 0


def test_an_attempt_that_was_not_sent_is_not_one_of_the_permitted_attempts() -> None:
    world = World(4, regions=REGIONS, retry=Retry(attempts=2, backoff_s=0.0))
    request = world.arrives("q", allowed=US)
    request.limit_regions(EU)
    assert not request.connects(request.driver.state.live[0])
    request.answers(request.driver.state.live[0], Reason.REPLICA_BUSY)
    assert world.said[-1] == "retry q to r2"


def test_a_pinned_request_is_refused_if_its_replica_moves_to_another_region() -> None:
    world = World(2, regions=REGIONS, queue=Queue(), most=1)
    world.arrives("first", allowed=US)
    world.arrives("q", allowed=US, pinned="r1")
    world.moves("r1", "eu")
    world.time.passes(1.0)
    assert world.said == ["send first to r1", "queue q", "answer q: region_not_allowed"]


# -- spot machines that are reclaimed ---------------------------------------------------------

QUEUES = {
    "no queue": Queue(enabled=False),
    "queue": Queue(),
    "ticket": Queue(preemption=Preemption(enabled=True)),  # every request has a ticket
}


@pytest.mark.parametrize("queue", QUEUES.values(), ids=QUEUES)
def test_a_reclaimed_request_stays_without_another_replica_of_its_regions(queue: Queue) -> None:
    world = World(3, regions=REGIONS, queue=queue)
    request = world.arrives("q", allowed=US)
    world.fleet.set_duty(world.replicas[1], Duty.DRAINING)
    assert not request.driver.leave(request.driver.state.live[0], world.time.at)
    world.time.passes(1.0)
    assert world.said == ["send q to r1"]


@pytest.mark.parametrize("queue", QUEUES.values(), ids=QUEUES)
def test_a_reclaimed_request_goes_to_another_replica_of_its_regions(queue: Queue) -> None:
    world = World(4, regions=REGIONS, queue=queue)
    request = world.arrives("q", allowed=US)
    world.fleet.set_duty(world.replicas[1], Duty.DRAINING)
    assert request.driver.leave(request.driver.state.live[0], world.time.at)
    world.time.passes(1.0)
    assert world.said[:2] == ["send q to r1", "drop q at r1"]
    assert world.said[-1] == "retry q to r3"


def test_a_reclaimed_stream_is_continued_in_its_regions_only() -> None:
    for count, found in ((3, "show q from r1"), (4, "continue q to r3")):
        world = World(count, regions=REGIONS)
        request = world.arrives("q", allowed=US, continued=True)
        (attempt,) = request.driver.state.live
        request.shows(attempt)
        world.fleet.set_duty(world.replicas[1], Duty.DRAINING)
        assert request.driver.leave(attempt, world.time.at) is (count == 4)
        assert world.said[-1] == found
        world.check()  # The first engine is told to stop.


def test_a_reclaimed_request_keeps_its_place_among_those_that_wait_for_its_regions() -> None:
    """r3 is free, and the moved request arrived before the one that waits."""
    world = World(4, regions=REGIONS, queue=Queue(), most=1)
    first = world.arrives("first", allowed=US)
    second = world.arrives("second", allowed=US)
    world.arrives("waits", allowed=US)
    assert world.said == ["send first to r1", "send second to r3", "queue waits"]
    second.whole(second.driver.state.live[0])
    world.fleet.set_duty(world.replicas[1], Duty.DRAINING)
    assert first.driver.leave(first.driver.state.live[0], world.time.at)
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
    assert first.driver.leave(first.driver.state.live[0], world.time.at)
    world.time.passes(0.5)
    assert world.said[-1] == "retry first to r3"
    first.whole(first.driver.state.live[0])
    world.time.passes(0.5)
    assert world.said[-1].endswith("waits to r3")


# -- spot replicas ----------------------------------------------------------------------------


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
