"""`classes.batch.slots`: class batch uses at most a share of a replica's slots."""

import pytest

from router.config.model import Config
from router.core.urgency import BATCH, NORMAL
from tests.admission.world import Spot, World, config

ONE = {"number": 4.0, "tokens": 10}


def rules(slots: float) -> Config:
    return config(
        classes={"batch": {"slots": slots, "waiting": 100, "wait_s": 10_000}},
        batch_becomes_normal_after_s=0,
    )


def running(world: World, spot: Spot, *, batch: bool) -> int:
    """The requests of class batch, or of the others, at a replica."""
    return sum(
        job.spot is spot and (job.ticket.urgency == BATCH) is batch for job in world.jobs.values()
    )


@pytest.mark.parametrize(("share", "most"), [(1.0, 9), (0.5, 4), (0.25, 2), (0.3, 2), (0.0, 1)])
def test_the_rest_of_the_slots_stays_free_of_batch(share: float, most: int) -> None:
    spot = Spot("a", slots=8)
    world = World([spot], rules(share))
    for _ in range(20):
        world.come(**ONE, output=1000)
    assert running(world, spot, batch=True) == most
    if share < 1.0:
        assert world.queue.gates.why_closed(spot, BATCH) == "share"
    for _ in range(8 - most):
        assert world.come(tokens=10, output=10) in world.started
    world.run(3000.0)
    assert len(world.done) == 20 + max(0, 8 - most)
    world.assert_empty()


def test_other_classes_are_not_limited() -> None:
    spot = Spot("a", slots=8)
    world = World([spot], rules(0.25))
    for _ in range(8):
        world.come(tokens=10, output=1000)
    assert running(world, spot, batch=False) == 8
    assert world.queue.gates.why_closed(spot, NORMAL) != "share"


def test_batch_needs_a_ticket_only_if_its_slots_are_limited() -> None:
    for share in (1.0, 0.5):
        spot = Spot("a", slots=8)
        queue = World([spot], rules(share)).queue
        assert queue.passes(spot, NORMAL, 0.0)
        assert queue.passes(spot, BATCH, 0.0) == (share == 1.0)


def test_a_retry_elsewhere_makes_room_where_it_was() -> None:
    first, second = Spot("a", slots=4), Spot("b", slots=4)
    world = World([first, second], rules(0.25))
    moving = world.come(**ONE, output=1000)
    waiting = [world.come(**ONE, output=1000) for _ in range(2)]
    assert [ticket in world.started for ticket in waiting] == [True, False]
    world.run(1.0)  # Both requests have begun, and cause no event for a long time.
    job = world.jobs[moving]
    origin, target = job.spot, second if job.spot is first else first
    # The attempt fails while the other replica serves another batch request, too.
    world._stop(job)
    world.queue.runs.failed(moving)
    world.free(origin)
    assert waiting[1] not in world.started, "the request may still return to this replica"
    again = world._lease(moving, target)
    world.queue.runs.moved(moving, target, world.now)
    world._dispatch(again)
    world._after_event()
    world.run(0.1)
    assert waiting[1] in world.started
    assert (running(world, origin, batch=True), running(world, target, batch=True)) == (1, 2)
