"""The queue's timer expires when time alone changes something, for any rate of requests."""

import pytest

from router.admission.pools import Pools
from router.admission.timers import QueueTimers, Ticked
from router.config.model import BatchClass, Classes, LowClass, Queue
from router.core.build import is_compiled
from router.core.errors import Reason
from tests.dispatch.driven import World

STEP_S = 0.0002  # much less than the minimum time between two expiries of the timer
WAIT_S = 0.05


@pytest.mark.parametrize("step_s", [STEP_S, 0.02])
def test_a_wait_ends_in_time_under_heavy_traffic(step_s: float) -> None:
    """Before the fix, each new request postponed the timer, so that it never expired."""
    classes = Classes(low=LowClass(wait_s=WAIT_S))
    queue = Queue(order="strict", batch_becomes_normal_after_s=0.0)
    world = World(1, most=1, queue=queue, classes=classes)
    at_work = world.arrives("first", "high")
    patient = world.arrives("patient", "low")
    arrived, number = world.time.at, 0
    while patient.ended is None and world.time.at < arrived + 4 * WAIT_S:
        number += 1
        after = world.arrives(f"next {number}", "high")
        at_work.whole(at_work.driver.state.live[0])
        world.time.passes(step_s)
        at_work = after
    assert patient.ended is Reason.QUEUE_TIMEOUT
    assert world.time.at - arrived <= WAIT_S + max(step_s, 0.005)


@pytest.mark.skipif(is_compiled(), reason="compiled methods cannot be replaced")
@pytest.mark.parametrize("where", ["age", "poll_early", "the driver"])
def test_a_wait_ends_after_a_defect_in_a_tick(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception in a tick must not stop the timer, or waiting requests would never expire."""
    classes = Classes(low=LowClass(wait_s=5.0))
    queue = Queue(order="strict", batch_becomes_normal_after_s=0.0)
    world = World(1, most=1, queue=queue, classes=classes)
    assert world.queue is not None
    world.arrives("first", "high")
    patient = world.arrives("patient", "low")

    def fails(*_: object) -> Ticked:
        raise RuntimeError("a defect")

    with monkeypatch.context() as patch:
        if where != "the driver":
            patch.setattr(QueueTimers, where, fails)
        else:
            ticked = Ticked()
            ticked.polls = [world.replicas[0]]
            patch.setattr(Pools, "tick", lambda *_: ticked)
            world.queue.poll_early = lambda _: fails() and None
        with pytest.raises(RuntimeError):
            world.time.passes(1.0)
    world.queue.poll_early = None
    world.time.passes(6.0)
    assert patient.ended is Reason.QUEUE_TIMEOUT


@pytest.mark.skipif(is_compiled(), reason="compiled methods cannot be replaced")
def test_a_request_that_expired_before_a_defect_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its ticket is in no queue any more, so no later tick would find it."""
    classes = Classes(low=LowClass(wait_s=0.5), batch=BatchClass(wait_s=9.0))
    queue = Queue(order="strict", batch_becomes_normal_after_s=0.0)
    world = World(1, most=1, queue=queue, classes=classes)
    assert world.queue is not None
    world.arrives("first", "high")
    expired, waiting = world.arrives("expired", "low"), world.arrives("waiting", "batch")

    def fails(*_: object) -> None:
        raise RuntimeError("a defect")

    world.time.passes(0.495)
    with monkeypatch.context() as patch:
        patch.setattr(QueueTimers, "poll_early", fails)
        with pytest.raises(RuntimeError):
            world.time.passes(0.01)
    assert expired.ended is Reason.QUEUE_TIMEOUT
    assert waiting.ended is None
