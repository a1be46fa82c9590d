"""A request that is too long for a replica's context goes to replicas with a longer context.

Replica r0 has a context of 1,000 tokens, r1 one of 4,000, and so on in turn.
"""

from __future__ import annotations

from typing import Any

import pytest

from policies.allowed import Allowed
from router.config.load import parse
from router.config.model import Classes, ClassSettings, Hedging, Queue, Retry
from router.core.errors import Reason
from router.core.urgency import CLASSES
from router.fleet.context.lengths import ContextLengths
from router.fleet.names import NamedModel, Names
from tests.dispatch.driven import Driven, World

LENGTHS = (1000, 4000)
LONG = 2000  # a limit of output tokens that only the longer context has
COPIES = Hedging(policy="fixed", options={"delay_s": 0.5}, classes=CLASSES, budget=1.0)
QUEUES = pytest.mark.parametrize("queue", [Queue(enabled=False), Queue()], ids=["none", "queue"])
WAITS = Classes(normal=ClassSettings(absent_s=5.0))


def long(world: World, name: str = "q", **fields: Any) -> Driven:
    return world.arrives(name, output_limit=LONG, **fields)


def sent(world: World) -> list[str]:
    """The requests that were sent or refused."""
    return [line for line in world.said if line.startswith(("send ", "answer "))]


def ends(request: Driven) -> None:
    (attempt,) = request.driver.state.live
    request.shows(attempt)
    request.whole(attempt)
    request.world.time.turn()


def named(**route: Any) -> NamedModel | None:
    return Names(parse("", {"models": {"m": route}}, serves=False)).find("m")


@QUEUES
def test_the_first_attempt_the_retry_and_the_last_error(queue: Queue) -> None:
    world = World(4, lengths=LENGTHS, queue=queue)
    request = long(world)
    request.fails(request.driver.state.live[0], Reason.REPLICA_RESET)
    assert world.said[:2] == ["send q to r1", "retry q to r3"]
    request.fails(request.driver.state.live[0], Reason.REPLICA_RESET)
    assert world.said[-1] == "answer q: replica_reset"
    world.arrives("short")
    assert world.said[-1] == "send short to r0"


def test_a_copy() -> None:
    world = World(4, lengths=LENGTHS, hedging=COPIES)
    long(world)
    world.time.passes(1.0)
    assert world.said == ["send q to r1", "copy q to r3"]


def test_a_copy_uses_the_lengths_of_now() -> None:
    world = World(3, lengths=(4000,), hedging=COPIES)
    long(world)
    world.fleet.replicas["r1"].lengths = ContextLengths({}, 1000)
    world.fleet.rebuild()
    world.time.passes(1.0)
    assert world.said == ["send q to r0", "copy q to r2"]


@QUEUES
def test_if_no_context_is_long_enough_an_engine_answers(queue: Queue) -> None:
    world = World(2, lengths=LENGTHS, queue=queue)
    world.arrives("q", output_limit=5000)
    assert world.said == ["send q to r0"]


@QUEUES
def test_an_unknown_context_may_be_long_enough(queue: Queue) -> None:
    world = World(2, lengths=(1000, None), queue=queue)
    world.arrives("q", output_limit=5000)
    assert world.said == ["send q to r1"]


def test_it_waits_until_a_longer_replica_is_free_and_delays_no_other() -> None:
    world = World(2, lengths=LENGTHS, queue=Queue(), most=1)
    long(world, "first")
    long(world, "second")
    world.arrives("short")
    ends(world.of("short"))
    assert sent(world) == ["send first to r1", "send short to r0"], "the free replica is too short"
    ends(world.of("first"))
    assert sent(world)[-1] == "send second to r1"


def test_it_waits_for_a_longer_replica_that_is_down() -> None:
    world = World(2, lengths=LENGTHS, queue=Queue(), classes=WAITS)
    world.time.passes(100.0)
    world.goes_down("r1")
    long(world)
    world.time.passes(1.0)
    assert sent(world) == []
    world.time.passes(5.0)
    assert sent(world) == ["answer q: no_replica"]


def test_without_a_queue_it_is_refused_while_the_longer_replica_is_down() -> None:
    world = World(2, lengths=LENGTHS)
    world.goes_down("r1")
    long(world)
    assert world.said == ["answer q: no_replica"]


def test_a_new_replica_frees_requests_that_wait() -> None:
    world = World(2, lengths=LENGTHS, queue=Queue(), most=1)
    long(world, "first")
    long(world, "second")
    world.lengths = (8000,)
    world.joins("r2")
    world.time.turn()
    assert world.said[-1] == "send second to r2"


def test_a_waiting_request_gets_the_limit_of_a_fleet_that_changed() -> None:
    """Both replicas were long enough at the arrival; then one reports a shorter context."""
    world = World(2, lengths=(4000,), queue=Queue(), most=1)
    first, second = long(world, "first"), long(world, "second")
    long(world, "third")
    assert sent(world) == ["send first to r0", "send second to r1"]
    replica = world.fleet.replicas["r0"]
    replica.lengths = ContextLengths({}, 1000)
    world.fleet.rebuild()
    world.time.turn()
    ends(first)
    assert sent(world)[2:] == [], "it waits"
    ends(second)
    assert sent(world)[2:] == ["send third to r1"]


def test_a_retry_uses_the_lengths_of_now() -> None:
    world = World(3, lengths=(4000,), retry=Retry(backoff_s=0.0))
    request = long(world)
    world.fleet.replicas["r1"].lengths = ContextLengths({}, 1000)
    world.fleet.rebuild()
    request.fails(request.driver.state.live[0], Reason.REPLICA_RESET)
    assert world.said == ["send q to r0", "retry q to r2"]


@QUEUES
def test_the_regions_and_the_context_both_apply(queue: Queue) -> None:
    world = World(4, lengths=(1000, 4000, 4000, 1000), regions=("eu", "us"), queue=queue)
    long(world, "q", allowed=Allowed(["eu"]))
    assert world.said == ["send q to r2"]
    request = world.of("q")
    request.limit_regions(Allowed(["us"]))
    assert request.view.allowed == Allowed(["us"], 4000)
    request.fails(request.driver.state.live[0], Reason.REPLICA_RESET)
    assert world.said[-1] == "retry q to r1"


@QUEUES
def test_the_limit_is_that_of_the_fallback(queue: Queue) -> None:
    """Model `m` is at both replicas; model `b` is at the longer one, model `c` at the shorter."""
    world = World(2, lengths=LENGTHS, queue=queue, models=("m", "b", "c"), most=1)
    r0, r1 = world.fleet.replicas.values()
    r0.models, r1.models = frozenset({"m", "c"}), frozenset({"m", "b"})
    world.fleet.rebuild()
    world.goes_down("r1")
    refused = [] if queue.enabled else ["answer q: no_replica"]
    long(world, named=named(fallbacks=["c"]))
    assert sent(world) == refused, "the context of the fallback is too short"
    r0.lengths, r1.lengths = ContextLengths({"c": 8000}, 1000), ContextLengths({}, 4000)
    world.fleet.rebuild()
    long(world, "again", named=named(fallbacks=["c"]))
    assert world.said[-1] == "fallback again to r0"
    assert world.of("again").view.allowed is None


def test_a_pinned_request_goes_where_it_must() -> None:
    world = World(2, lengths=LENGTHS, queue=Queue())
    long(world, pinned="r0")
    assert world.said == ["send q to r0"]
