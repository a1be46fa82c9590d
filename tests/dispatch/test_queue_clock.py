"""The queue's alarm rings when time alone changes something, however often requests come and go."""

from __future__ import annotations

import pytest

from router.config.model import LowClass, Queue, QueueClasses
from router.core.errors import Reason
from tests.dispatch.driven import World

STEP_S = 0.0002  # much less than the least time between two rings
WAIT_S = 0.05


@pytest.mark.parametrize("step_s", [STEP_S, 0.02])
def test_a_wait_ends_in_time_under_heavy_traffic(step_s: float) -> None:
    """The alarm was put off by each request that came, so that it never rang."""
    classes = QueueClasses(low=LowClass(timeout_s=WAIT_S))
    world = World(
        1, most=1, queue=Queue(order="strict", batch_becomes_normal_after_s=0.0, classes=classes)
    )
    at_work = world.arrives("first", "high")
    patient = world.arrives("patient", "low")
    arrived, number = world.time.at, 0
    while patient.ended is None and world.time.at < arrived + 4 * WAIT_S:
        number += 1
        after = world.arrives(f"next {number}", "high")
        at_work.whole(at_work.driver.live[0])
        world.time.passes(step_s)
        at_work = after
    assert patient.ended is Reason.QUEUE_TIMEOUT
    assert world.time.at - arrived <= WAIT_S + max(step_s, 0.005)
