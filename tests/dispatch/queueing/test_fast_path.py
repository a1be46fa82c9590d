"""A request is sent without a queue ticket if the chosen replica accepts it; else it gets one."""

from typing import Any

from router.config.model import (
    BatchClass,
    Classes,
    ClassSettings,
    Health,
    Queue,
    Replica as ReplicaConfig,
    Reservations,
)
from router.core.errors import Reason
from router.fleet.replica import Replica
from tests.addons.needed import needs
from tests.dispatch.driven import World

ABSENT_S = 3.0
CLASSES = Classes(normal=ClassSettings(absent_s=ABSENT_S), batch=BatchClass(absent_s=60.0))


def front(replicas: int = 2, queue: Queue | None = None) -> World:
    """Its policy chooses the first replica by name. Each replica accepts one request."""
    queue = Queue(policy="fifo") if queue is None else queue
    return World(replicas, most=1, queue=queue, classes=CLASSES)


def ask(world: World, urgency: str = "normal", **fields: Any) -> Reason | str | None:
    """Return the replica of a request without a ticket; `None`: it has one; or its refusal."""
    request = world.arrives(f"q{len(world.all)}", urgency, **fields)
    if request.ended is not None:
        return request.ended
    return None if request.ticket is not None else request.driver.state.live[0].replica_id


def test_the_chosen_replica_takes_the_request() -> None:
    world = front()
    assert ask(world) == "r0"
    world.requests[0].whole(world.requests[0].driver.state.live[0])
    assert ask(world, model=None) == "r0"  # there is one model: a request need not name it


def test_a_chosen_replica_that_is_full_means_a_ticket_although_another_has_room() -> None:
    """The queue may know a better replica; asking the queue costs more than one check."""
    world = front()
    assert ask(world) == "r0"
    assert ask(world) is None
    assert world.said == ["send q0 to r0", "send q1 to r1"]


def test_the_current_facts_count_and_no_request_overtakes_one_that_waits() -> None:
    world = front(replicas=1)
    assert ask(world) == "r0"
    first = world.requests[0]
    assert ask(world) is None
    waiting = world.requests[1]
    world.replicas[0].inflight = 0
    assert ask(world) is None
    world.replicas[0].inflight = 1
    waiting.leaves()
    world.requests[1].leaves()
    first.whole(first.driver.state.live[0])
    assert ask(world) == "r0"


def test_a_key_at_its_limit_does_not_pass() -> None:
    world = front()
    world.concurrency.take(False, world.time.at)
    assert ask(world, concurrency=world.concurrency) is None


@needs("reservations")
def test_rules_that_count_every_request_need_a_ticket_for_each() -> None:
    assert ask(front(queue=Queue(reservations=Reservations(enabled=True)))) is None


def test_a_model_that_does_not_exist_is_refused_at_once() -> None:
    assert ask(front(), model="unknown") is Reason.MODEL_NOT_FOUND


def test_a_request_waits_for_a_lost_replica_as_long_as_its_class_allows() -> None:
    world = front(replicas=1)
    world.goes_down("r0")
    assert ask(world) is None
    world.time.passes(ABSENT_S - 0.5)
    assert ask(world) is None
    world.time.passes(0.5)
    assert ask(world) is Reason.NO_REPLICA
    assert ask(world, "batch") is None


def test_the_reason_is_the_models_where_other_replicas_are_up() -> None:
    world = front(replicas=1)
    other = Replica(ReplicaConfig(url="http://n:1", id="n", models=("n",)), Health(), None)
    world.fleet.add(other)
    world.goes_down("r0")
    world.time.passes(ABSENT_S)
    assert ask(world, model="m") is Reason.MODEL_RESTARTING
    assert ask(world, model=None) is Reason.MODEL_REQUIRED
    assert ask(world, model="n") == "n"
