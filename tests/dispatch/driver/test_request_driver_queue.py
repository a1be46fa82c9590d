"""The drivers' actions, event by event, when requests wait in the queue."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from policies.queueing.contract import (
    QUEUEING,
    OrderPolicy,
    TicketQueue,
    make_order,
)
from policies.queueing.ticket import ENDED
from router.config.model import (
    Classes,
    ClassSettings,
    CriticalClass,
    Preemption,
    Queue,
    QueueGates,
    Replica as ReplicaConfig,
    Retry,
)
from router.dispatch.driver.attempt_state import Attempt
from router.fleet.replica import Replica
from router.intake.flow import Flow
from tests.addons.needed import needs
from tests.dispatch.driven import BODY, Driven, World
from tests.dispatch.driver.driver_tables import (
    HEDGED,
    QUEUED,
    happen,
    play,
    run,
    stories,
)

pytestmark = needs("preemption")

# -- the queue ------------------------------------------------------------------------------------

PREEMPTS = Queue(
    order="strict", policy="fifo", preemption=Preemption(enabled=True, after_s=0.5, budget=1.0)
)
LONG_PAUSES = Retry(backoff_s=16.0, backoff_max_s=16.0)  # about 2 s with the tests' seed
GATED = {
    "queue": msgspec.structs.replace(QUEUED, gates=QueueGates(waiting=1, prefill_tokens=0)),
    "classes": Classes(critical=CriticalClass(waiting=2)),
}
SHORT = {"classes": Classes(normal=ClassSettings(wait_s=2.0, starvation_s=1.0, absent_s=1.0))}
WORDS = {
    "depth 2": {"classes": Classes(normal=ClassSettings(depth=2))},
    "from 0": {"starts_at": 0.0},
    "gated": GATED,
    "long pauses": {"retry": LONG_PAUSES},
    "preempts": {"queue": PREEMPTS},
    "short waits": SHORT,
    "unlimited": {"most": None},
}

QUEUES = stories(
    """
    a request waits for room and is granted it [1 replica]
        a arrives  -> send a to r0
        b arrives  -> queue b
        c arrives  -> queue c
        r0 ends a  -> show a from r0; release a at r0; end a: ok; grant b; send b to r0
        r0 ends b  -> show b from r0; release b at r0; end b: ok; grant c; send c to r0
        r0 ends c  -> show c from r0; release c at r0; end c: ok
    the client leaves while it waits [1 replica]
        a arrives  -> send a to r0
        b arrives  -> queue b
        b leaves   -> end b: client_gone
        r0 ends a  -> show a from r0; release a at r0; end a: ok
    the client of the request that runs leaves [1 replica]
        a arrives  -> send a to r0
        b arrives  -> queue b
        a leaves   -> drop a at r0; end a: client_gone; grant b; send b to r0
        b leaves   -> drop b at r0; end b: client_gone
    it has waited for too long [1 replica, short waits]
        a arrives    -> send a to r0
        b arrives    -> queue b
        1.5s passes  -> nothing
        0.5s passes  -> answer b: queue_timeout
        r0 ends a    -> show a from r0; release a at r0; end a: ok
    an error that was put aside is told if the retry waits too long [copies, short waits]
        a arrives  -> send a to r0
        1s passes  -> copy a to r1
        b arrives  -> send b to r2
        r0 503s a  -> put a aside: replica_busy of r0
        r1 503s a  -> discard a at r1; queue a
        1s passes  -> copy b to r0; tell a: replica_busy of r0
        r2 ends b  -> drop b at r0; show b from r2; release b at r2; end b: ok
    a retry goes on at once where there is room [2 replicas]
        a arrives    -> send a to r0
        r0 resets a  -> retry a to r1
        r1 ends a    -> show a from r1; release a at r1; end a: ok
    a retry waits where the other replica is full, and then goes [2 replicas]
        a arrives    -> send a to r0
        b arrives    -> send b to r1
        r0 resets a  -> queue a
        1s passes    -> nothing
        r1 ends b    -> show b from r1; release b at r1; end b: ok; grant a; retry a to r1
        r1 ends a    -> show a from r1; release a at r1; end a: ok
    a retry waits before requests that came later [2 replicas]
        a arrives    -> send a to r0
        b arrives    -> send b to r1
        c arrives    -> queue c
        r0 resets a  -> queue a; grant c; send c to r0
        d arrives    -> queue d
        r1 ends b    -> show b from r1; release b at r1; end b: ok; grant a; retry a to r1
        r0 ends c    -> show c from r0; release c at r0; end c: ok; grant d; send d to r0
        r0 ends d    -> show d from r0; release d at r0; end d: ok
        r1 ends a    -> show a from r1; release a at r1; end a: ok
    the client of a retry that waits leaves [2 replicas]
        a arrives    -> send a to r0
        b arrives    -> send b to r1
        r0 resets a  -> queue a
        a leaves     -> end a: client_gone
        r1 ends b    -> show b from r1; release b at r1; end b: ok
    a 503 waits for another replica [2 replicas]
        a arrives  -> send a to r0
        b arrives  -> send b to r1
        r0 503s a  -> discard a at r0; queue a
        r1 ends b  -> show b from r1; release b at r1; end b: ok; grant a; retry a to r1
        r1 ends a  -> show a from r1; release a at r1; end a: ok
    a retry waits while the other replica is closed to its class [2 replicas, unlimited, gated]
        a arrives    -> send a to r0
        b arrives    -> send b to r1
        r0 resets a  -> queue a
        1s passes    -> nothing
        r1 shows b   -> show b from r1; grant a; retry a to r1
        r1 ends b    -> release b at r1; end b: ok
        r1 ends a    -> show a from r1; release a at r1; end a: ok
    ... and goes at once where it is open to its class [2 replicas, unlimited, gated]
        a arrives critical  -> send a to r0
        b arrives           -> send b to r1
        r0 resets a         -> retry a to r1
        r1 ends b           -> show b from r1; release b at r1; end b: ok
        r1 ends a           -> show a from r1; release a at r1; end a: ok
    a retry of a request that has waited waits for a replica that it has not tried [2 replicas]
        x arrives    -> send x to r0
        y arrives    -> send y to r1
        a arrives    -> queue a
        r0 ends x    -> show x from r0; release x at r0; end x: ok; grant a; send a to r0
        r0 resets a  -> queue a
        1s passes    -> nothing
        r1 ends y    -> show y from r1; release y at r1; end y: ok; grant a; retry a to r1
        r1 ends a    -> show a from r1; release a at r1; end a: ok
    ... and goes on at once where one is open [2 replicas]
        x arrives    -> send x to r0
        y arrives    -> send y to r1
        a arrives    -> queue a
        r0 ends x    -> show x from r0; release x at r0; end x: ok; grant a; send a to r0
        r1 ends y    -> show y from r1; release y at r1; end y: ok
        r0 resets a  -> retry a to r1
        z arrives    -> send z to r0
        r1 ends a    -> show a from r1; release a at r1; end a: ok
        r0 ends z    -> show z from r0; release z at r0; end z: ok
    a retry of a request that has waited keeps its place [2 replicas, unlimited, gated]
        x arrives    -> send x to r0
        y arrives    -> send y to r1
        a arrives    -> queue a
        b arrives    -> queue b
        r0 shows x   -> show x from r0; grant a; send a to r0
        r0 leaves    -> nothing
        r0 resets a  -> queue a
        r1 shows y   -> show y from r1; grant a; retry a to r1
        r1 shows a   -> show a from r1; grant b; send b to r1
        x leaves     -> drop x at r0; end x: client_gone
        y leaves     -> drop y at r1; end y: client_gone
        a leaves     -> drop a at r1; end a: client_gone
        b leaves     -> drop b at r1; end b: client_gone
    a refused connect waits until the replica may be tried again [1 replica]
        a arrives     -> send a to r0
        r0 refuses a  -> queue a
        0.05s passes  -> nothing
        0.06s passes  -> grant a; retry a to r0
        r0 ends a     -> show a from r0; release a at r0; end a: ok
    refused connects are answered after a while [1 replica, short waits]
        a arrives     -> send a to r0
        r0 refuses a  -> queue a
        0.1s passes   -> grant a; retry a to r0
        r0 refuses a  -> queue a
        0.1s passes   -> nothing
        0.1s passes   -> grant a; retry a to r0
        0.8s passes   -> nothing
        r0 refuses a  -> answer a: connect_failed
    ... also where the first one was refused at the time 0 [1 replica, from 0, short waits]
        a arrives     -> send a to r0
        r0 refuses a  -> queue a
        0.1s passes   -> grant a; retry a to r0
        r0 refuses a  -> queue a
        0.1s passes   -> nothing
        0.1s passes   -> grant a; retry a to r0
        0.8s passes   -> nothing
        r0 refuses a  -> answer a: connect_failed
    a connection ends that while [1 replica, short waits]
        a arrives     -> send a to r0
        r0 refuses a  -> queue a
        0.1s passes   -> grant a; retry a to r0
        r0 accepts a  -> nothing
        1.5s passes   -> nothing
        r0 refuses a  -> queue a
        0.2s passes   -> grant a; retry a to r0
        r0 ends a     -> show a from r0; release a at r0; end a: ok
    no replica is there in time [1 replica, short waits]
        r0 goes-down  -> nothing
        a arrives     -> queue a
        1s passes     -> answer a: no_replica
    a replica is removed and another one joins [1 replica]
        a arrives    -> send a to r0
        b arrives    -> queue b
        r0 leaves    -> nothing
        r1 joins     -> grant b; send b to r1
        r0 resets a  -> queue a
        r1 ends b    -> show b from r1; release b at r1; end b: ok; grant a; retry a to r1
        r1 ends a    -> show a from r1; release a at r1; end a: ok
    a pinned request waits for its replica [2 replicas]
        a arrives r0  -> send a to r0
        b arrives r0  -> queue b
        c arrives     -> send c to r1
        r0 ends a     -> show a from r0; release a at r0; end a: ok; grant b; send b to r0
        r0 ends b     -> show b from r0; release b at r0; end b: ok
        r1 ends c     -> show c from r1; release c at r1; end c: ok
    a less urgent request gives way and comes back [1 replica, preempts]
        a arrives batch  -> send a to r0
        b arrives high   -> queue b
        0.25s passes     -> nothing
        0.25s passes     -> drop a at r0; queue a; grant b; send b to r0
        r0 ends b        -> show b from r0; release b at r0; end b: ok; grant a; retry a to r0
        r0 ends a        -> show a from r0; release a at r0; end a: ok
    a request that gave way comes before later ones of its class [1 replica, preempts]
        a arrives batch  -> send a to r0
        b arrives batch  -> queue b
        a yields         -> drop a at r0; queue a; grant a; retry a to r0
        b leaves         -> end b: client_gone
        r0 ends a        -> show a from r0; release a at r0; end a: ok
    a request that gives way in an empty queue is sent again in the same turn [1 replica, preempts]
        a arrives batch  -> send a to r0
        a yields         -> drop a at r0; queue a; grant a; retry a to r0
        r0 ends a        -> show a from r0; release a at r0; end a: ok
    a request that has shown content does not give way [1 replica, preempts]
        a arrives batch  -> send a to r0
        r0 shows a       -> show a from r0
        a yields         -> nothing
        b arrives high   -> queue b
        2s passes        -> nothing
        r0 ends a        -> release a at r0; end a: ok; grant b; send b to r0
        r0 ends b        -> show b from r0; release b at r0; end b: ok
    a request that must not be repeated does not give way [1 replica, preempts]
        a arrives batch once  -> send a to r0
        b arrives high        -> queue b
        2s passes             -> nothing
        r0 ends a             -> show a from r0; release a at r0; end a: ok; grant b; send b to r0
        r0 ends b             -> show b from r0; release b at r0; end b: ok
    a request gives way with its copy [2 replicas, preempts, copies]
        a arrives batch  -> send a to r0
        1s passes        -> copy a to r1
        b arrives high   -> queue b
        0.5s passes      -> drop a at r0; drop a at r1; queue a; grant b; grant a; send b to r0; \
retry a to r1
        r0 ends b        -> show b from r0; release b at r0; end b: ok
        9s passes        -> nothing
        r1 ends a        -> show a from r1; release a at r1; end a: ok
    a request that gives way in the pause before a retry goes once [2 replicas, preempts, pauses]
        a arrives batch  -> send a to r0
        r0 503s a        -> discard a at r0
        a yields         -> queue a
        0.25s passes     -> grant a; retry a to r1
        1s passes        -> nothing
        r1 ends a        -> show a from r1; release a at r1; end a: ok
    a request that gives way while it waits for a probe goes once [2 replicas, preempts, pauses]
        a arrives batch   -> send a to r0
        r0 503s a         -> discard a at r0
        r1 leaves         -> nothing
        r2 joins-untried  -> nothing
        0.25s passes      -> nothing
        r0 goes-down      -> nothing
        a yields          -> queue a
        r2 proves-good    -> grant a; retry a to r2
        3s passes         -> nothing
        r2 ends a         -> show a from r2; release a at r2; end a: ok
    a request in its pause holds nothing, so another gives way [2 replicas, preempts, long pauses]
        c arrives batch  -> send c to r0
        a arrives batch  -> send a to r1
        r1 resets a      -> nothing
        d arrives high   -> send d to r1
        b arrives high   -> queue b
        0.5s passes      -> drop c at r0; queue c; grant b; send b to r0
        a leaves         -> end a: client_gone
        r1 ends d        -> show d from r1; release d at r1; end d: ok; grant c; retry c to r1
        r0 ends b        -> show b from r0; release b at r0; end b: ok
        r1 ends c        -> show c from r1; release c at r1; end c: ok
    a request that waits for a first probe holds nothing either [2 replicas, preempts, pauses]
        a arrives batch   -> send a to r0
        r0 503s a         -> discard a at r0
        r1 leaves         -> nothing
        r2 joins-untried  -> nothing
        0.25s passes      -> nothing
        c arrives high    -> send c to r0
        b arrives high    -> queue b
        1s passes         -> nothing
        1s passes         -> answer a: replica_busy
        r0 ends c         -> show c from r0; release c at r0; end c: ok; grant b; send b to r0
        r0 ends b         -> show b from r0; release b at r0; end b: ok
    a retry that gives way goes nowhere where it has failed [2 replicas, preempts, long pauses]
        a arrives batch  -> send a to r0
        r0 resets a      -> nothing
        4s passes        -> retry a to r1
        b arrives high   -> send b to r0
        c arrives high   -> queue c
        0.5s passes      -> drop a at r1; queue a; grant c; send c to r1
        r0 ends b        -> show b from r0; release b at r0; end b: ok
        r1 ends c        -> show c from r1; release c at r1; end c: ok; grant a; retry a to r1
        r1 ends a        -> show a from r1; release a at r1; end a: ok
    a request that went at once keeps its place before later ones when it comes back [2 replicas]
        a arrives    -> send a to r0
        b arrives    -> send b to r1
        c arrives    -> queue c
        r0 leaves    -> nothing
        r0 resets a  -> queue a
        r1 ends b    -> show b from r1; release b at r1; end b: ok; grant a; retry a to r1
        r1 ends a    -> show a from r1; release a at r1; end a: ok; grant c; send c to r1
        r1 ends c    -> show c from r1; release c at r1; end c: ok
    ... also where it could not be connected to [1 replica]
        a arrives     -> send a to r0
        b arrives     -> queue b
        r0 refuses a  -> queue a
        0.2s passes   -> grant a; retry a to r0
        r0 ends a     -> show a from r0; release a at r0; end a: ok; grant b; send b to r0
        r0 ends b     -> show b from r0; release b at r0; end b: ok
    a copy passes the queue by, and has the ticket from its content on [2 replicas, copies]
        a arrives   -> send a to r0
        1s passes   -> copy a to r1
        b arrives   -> queue b
        r1 shows a  -> drop a at r0; show a from r1; grant b; send b to r0
        r0 ends b   -> show b from r0; release b at r0; end b: ok
        r1 ends a   -> release a at r1; end a: ok
    a light request passes the queue by, and its retry as well [1 replica, unlimited, gated]
        a arrives        -> send a to r0
        b arrives        -> queue b
        c arrives light  -> send c to r0
        r1 joins         -> grant b; send b to r1
        r0 resets c      -> retry c to r1
        r1 ends c        -> show c from r1; release c at r1; end c: ok
        r0 ends a        -> show a from r0; release a at r0; end a: ok
        r1 ends b        -> show b from r1; release b at r1; end b: ok
    a key may have one request at replicas [2 replicas]
        a arrives limited  -> send a to r0
        b arrives limited  -> queue b
        c arrives          -> send c to r1
        r0 ends a          -> show a from r0; release a at r0; end a: ok; grant b; send b to r0
        b leaves           -> drop b at r0; end b: client_gone
        d arrives limited  -> send d to r0
        d leaves           -> drop d at r0; end d: client_gone
        r1 ends c          -> show c from r1; release c at r1; end c: ok
    ... and a request that waits for another try is not there [1 replica, 2 each]
        a arrives limited  -> send a to r0
        r0 refuses a       -> queue a
        0.2s passes        -> grant a; retry a to r0
        b arrives limited  -> queue b
        r0 ends a          -> show a from r0; release a at r0; end a: ok; grant b; send b to r0
        r0 ends b          -> show b from r0; release b at r0; end b: ok
    a request of the largest flow gives way to a newcomer [1 replica, depth 2]
        a arrives by-k  -> send a to r0
        b arrives by-k  -> queue b
        c arrives by-k  -> queue c
        d arrives       -> queue d; answer c: queue_evicted
        r0 ends a       -> show a from r0; release a at r0; end a: ok; grant b; send b to r0
        r0 ends b       -> show b from r0; release b at r0; end b: ok; grant d; send d to r0
        r0 ends d       -> show d from r0; release d at r0; end d: ok
    a reload makes room [1 replica]
        a arrives  -> send a to r0
        b arrives  -> queue b
        r0 grows   -> grant b; send b to r0
        r0 ends a  -> show a from r0; release a at r0; end a: ok
        r0 ends b  -> show b from r0; release b at r0; end b: ok
    """,
    WORDS,
)


@pytest.mark.parametrize(("table", "settings"), QUEUES)
def test_queues(table: str, settings: dict[str, Any]) -> None:
    run(table, {"queue": QUEUED, "most": 1, **settings})


@pytest.mark.parametrize(
    "sections",
    [
        {"queue": QUEUED},
        {"classes": Classes(normal=ClassSettings(waiting=2))},
    ],
    ids=["of the queue", "of the classes"],
)
def test_a_reload_lets_waiting_requests_go(sections: dict[str, Any]) -> None:
    world = World(1, **GATED)
    play(world, "a arrives -> send a to r0")
    play(world, "b arrives -> queue b")
    world.said.clear()
    world.adopts(**sections)
    world.time.turn()
    assert world.said == ["grant b", "send b to r0"]
    play(world, "a leaves -> drop a at r0; end a: client_gone")
    play(world, "b leaves -> drop b at r0; end b: client_gone")
    world.check_empty()


def test_a_ticket_refers_to_the_replica_of_its_retry_at_once() -> None:
    world = World(2, queue=PREEMPTS)
    play(world, "a arrives -> send a to r0")
    ticket = world.of("a").ticket
    assert ticket is not None
    play(world, "r0 resets a -> retry a to r1")
    assert ticket.place is world.replicas[1]
    play(world, "a leaves -> drop a at r1; end a: client_gone")
    world.check_empty()


def test_a_reload_does_not_let_a_request_in_its_pause_give_way() -> None:
    world = World(2, queue=PREEMPTS, most=1, retry=LONG_PAUSES)
    play(world, "c arrives batch -> send c to r0")
    play(world, "a arrives batch -> send a to r1")
    play(world, "r1 resets a -> nothing")
    world.adopts(queue=msgspec.structs.replace(PREEMPTS, policy="shortest"))
    play(world, "d arrives high -> send d to r1")
    play(world, "b arrives high -> queue b")
    play(world, "0.5s passes -> drop c at r0; queue c; grant b; send b to r0")
    for request in [*world.requests]:
        request.leaves()
    world.check_empty()


def test_a_request_whose_ticket_has_ended_is_answered() -> None:
    """No event would ever send such a request, so it must not wait."""
    world = World(2, queue=PREEMPTS, most=1)
    play(world, "a arrives -> send a to r0")
    play(world, "b arrives -> send b to r1")
    ticket = world.of("a").ticket
    assert ticket is not None
    ticket.state = ENDED
    play(world, "r0 resets a -> answer a: replica_reset")
    play(world, "b leaves -> drop b at r1; end b: client_gone")
    world.check_empty()


def test_a_request_whose_ticket_has_ended_does_not_wait_for_a_connection() -> None:
    world = World(1, queue=PREEMPTS)
    play(world, "a arrives -> send a to r0")
    ticket = world.of("a").ticket
    assert ticket is not None
    ticket.state = ENDED
    play(world, "r0 refuses a -> answer a: connect_failed")
    world.check_empty()


def test_a_defect_while_one_granted_request_is_sent_ends_that_request_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(1, queue=QUEUED, most=1)
    for name in "abc":
        world.arrives(name)
    opens = Driven.open

    def fails_for_b(request: Driven, attempt: Attempt, fresh: bool) -> None:
        if request.name == "b":
            raise RuntimeError("a defect")
        opens(request, attempt, fresh)

    monkeypatch.setattr(Driven, "open", fails_for_b)
    monkeypatch.setattr(Driven, "crashed", lambda request, _: request.leaves())
    ends_b = "drop b at r0; end b: client_gone"
    play(world, f"r0 grows -> grant b; grant c; {ends_b}; send c to r0")
    play(world, "a leaves -> drop a at r0; end a: client_gone")
    play(world, "c leaves -> drop c at r0; end c: client_gone")
    world.check_empty()


def test_an_early_status_is_allowed_while_a_replica_is_fit() -> None:
    world = World(1, queue=QUEUED, most=1)
    assert world.queue is not None
    world.arrives("a")
    allowed = []
    for name in "bc":
        ticket = world.arrives(name).ticket
        assert ticket is not None
        allowed.append(world.queue.pools.allows_early_status(ticket))
        world.goes_down("r0")
    assert allowed == [True, False]
    for request in [*world.requests]:
        request.leaves()
    world.check_empty()


@pytest.mark.parametrize("predicted", [0, 7])
def test_the_expected_output_is_the_predicted_one_or_else_that_of_the_flow(predicted: int) -> None:
    world = World(1, queue=QUEUED)
    assert world.queue is not None
    request = world.arrives("a")
    request.view.output_tokens = predicted
    assert world.queue.expected_output(request) == predicted
    request.view.output_tokens = -1
    usual = world.queue.pools.of("m").runs.expected_output(request.flow)
    assert world.queue.expected_output(request) == usual > predicted


def test_a_copy_is_not_its_tickets_before_it_shows_content() -> None:
    world = World(2, queue=PREEMPTS, hedging=HEDGED)
    play(world, "a arrives -> send a to r0")
    ticket = world.of("a").ticket
    assert ticket is not None
    play(world, "1s passes -> copy a to r1")
    places = [ticket.place]
    play(world, "r1 shows a -> drop a at r0; show a from r1")
    places.append(ticket.place)
    assert places == world.replicas
    play(world, "a leaves -> drop a at r1; end a: client_gone")
    assert ticket.place is None
    world.check_empty()


def test_a_retry_that_waits_for_room_is_not_counted_in_the_limit_of_its_key() -> None:
    world = World(2, queue=QUEUED, most=1)
    play(world, "a arrives limited -> send a to r0")
    assert world.concurrency.own == 1
    play(world, "b arrives -> send b to r1")
    play(world, "r0 resets a -> queue a")
    assert world.concurrency.own == 0
    play(world, "b leaves -> drop b at r1; end b: client_gone; grant a; retry a to r1")
    assert world.concurrency.own == 1
    play(world, "a leaves -> drop a at r1; end a: client_gone")
    assert world.concurrency.own == 0
    world.check_empty()


def test_a_pinned_request_without_a_model_waits_with_the_requests_of_its_replica() -> None:
    world = World(1, queue=QUEUED, most=1)
    world.arrives("a")
    pinned = world.arrives("b", pinned="r0", model="")
    assert pinned.ticket is not None and pinned.ticket.model == "m"
    for request in [*world.requests]:
        request.leaves()
    world.check_empty()


def test_a_request_is_sent_in_the_turn_in_which_the_limit_of_its_key_allows_it() -> None:
    """The other request of the key was in no queue, so its end changes nothing at a replica."""
    world = World(1, queue=QUEUED, most=2)
    assert world.queue is not None
    world.concurrency.take(False, world.time.at)
    play(world, "a arrives limited -> queue a")
    world.concurrency.give(False, world.time.at)
    world.queue.wake()
    world.time.turn()
    assert world.requests[0].running, "the request still waits"
    play(world, "a leaves -> drop a at r0; end a: client_gone")
    world.check_empty()


@pytest.mark.parametrize(
    ("missing", "gone"),
    [
        (0, ["answer f: queue_evicted"]),
        (BODY, ["answer f: queue_evicted"]),
        (2 * BODY, ["answer f: queue_evicted", "answer e: queue_evicted"]),
        (9 * BODY, []),
    ],
    ids=["connections are short", "a body", "two bodies", "more than there is"],
)
def test_requests_of_the_largest_flow_are_evicted_if_memory_is_short(
    missing: int, gone: list[str]
) -> None:
    world = World(1, queue=QUEUED, most=1)
    for name in "abcdef":
        happen(world, f"{name} arrives by-k")
    assert world.queue is not None
    world.said.clear()
    newcomer = Flow("other", "", "")
    assert world.queue.relieve(newcomer, missing) == bool(gone)
    if missing == BODY:
        assert world.queue.relieve(newcomer, BODY), "so much is on its way"
        assert world.queue.relieve(newcomer, 0), "connections are short as well"
        assert not world.queue.relieve(newcomer, 9 * BODY)
        gone = [*gone, "answer e: queue_evicted"]
    assert world.said == [], "they are answered at the end of the turn"
    world.time.turn()
    assert world.said == gone
    for request in [*world.requests]:
        request.leaves()
    world.check_empty()


def test_a_pool_whose_order_cannot_be_made_goes_by_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third-party constructor fails when the fleet grows by a replica of another model."""
    fails = False

    @dataclass(slots=True)
    class Moody(OrderPolicy):
        def __post_init__(self) -> None:
            if fails:
                raise RuntimeError("not now")

        def line(self, urgency: int) -> TicketQueue:
            return make_order("fifo").line(urgency)

    QUEUEING.names()
    monkeypatch.setattr(QUEUEING, "classes", {**QUEUEING.classes, "moody": Moody})
    world = World(replicas=1, queue=Queue(policy="moody"))
    assert world.queue is not None
    fails = True
    config = ReplicaConfig(url="http://other:1", id="other", models=("n",), engine="vllm")
    other = Replica(config, world.config.health, None)
    world.fleet.add(other)
    world.time.turn()
    fails = False
    pools = world.queue.pools
    assert [pools.of(model).config.queue.policy for model in ("m", "n")] == ["moody", "fifo"]
    assert pools.failures.count == 1
    world.adopts(queue=Queue(policy="moody", order="strict"))
    assert [pools.of(model).config.queue.policy for model in ("m", "n")] == ["moody", "moody"]
    world.time.turn()
    world.check_empty()
