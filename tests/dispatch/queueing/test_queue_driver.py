"""What the queue driver reports about the requests that it queues."""

import pytest

from router.config.model import Preemption, Queue
from tests.addons.needed import needs
from tests.dispatch.driven import World


@needs("preemption")
def test_each_wait_is_measured_without_the_time_at_replicas() -> None:
    """Before the fix, the wait after a preemption also contained the time since the arrival."""
    queue = Queue(
        order="strict", policy="fifo", preemption=Preemption(enabled=True, after_s=0.5, budget=1.0)
    )
    world = World(1, most=1, queue=queue)
    preempted = world.arrives("preempted", "batch")
    world.time.passes(8.0)
    urgent = world.arrives("urgent", "high")
    world.time.passes(0.75)
    assert preempted.deadlines.waits_since > 0.0
    urgent_wait = world.metrics.classes["high"].wait
    assert sum(urgent_wait.counts) == 1
    assert 0.5 <= urgent_wait.sum < 0.75
    began = preempted.deadlines.waits_since
    urgent.whole(urgent.driver.state.live[0])
    world.time.turn()
    assert preempted.deadlines.waits_since < 0.0
    wait = world.metrics.classes["batch"].wait
    assert sum(wait.counts) == 1
    assert wait.sum == pytest.approx(world.time.at - began)
    assert wait.sum < 0.75
