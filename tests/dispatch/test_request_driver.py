"""What the request driver does, event by event.

A case is a table. Each row is an event and, behind the arrow, everything that the drivers do about
it, in that order; `nothing`: they do nothing. `send`, `retry`, `copy` and `continue` begin an
attempt; `drop`, `discard` and `release` end one. After each row the leases and budgets are checked;
after the last row nothing may be left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from router.config.model import (
    ClassRules,
    ClassTimeouts,
    Continuation,
    CriticalClass,
    Health,
    Hedging,
    Preemption,
    Queue,
    QueueClass,
    QueueClasses,
    QueueGates,
    Retry,
    Timeouts,
)
from router.core.errors import Reason
from router.core.urgency import NUMBERS
from router.dispatch.attempts import Attempt
from router.dispatch.continuation.outcome import Outcome
from router.intake.flow import Flow
from tests.dispatch.driven import BODY, TOKENS, Driven, World

HEDGED = Hedging(policy="fixed", options={"delay_s": 1.0}, classes=tuple(NUMBERS), budget=1.0)
QUEUED = Queue(order="strict", policy="fifo")
TIMES = Timeouts(first_token_s=4.0, whole_s=8.0, token_gap_s=2.0)

# -- events ---------------------------------------------------------------------------------------


def attempt_of(request: Driven, replica: str) -> Attempt:
    (found,) = [a for a in request.driver.live if a.replica_id == replica]
    return found


# What a replica does to a request: "r0 refuses a".
REPLICA: dict[str, Callable[[Driven, Attempt], None]] = {
    "accepts": lambda r, a: r.driver.connected(a),
    "shows": lambda r, a: r.shows(a),
    "ends": lambda r, a: r.whole(a),
    "refuses": lambda r, a: r.fails(a, Reason.CONNECT_FAILED, received=False),
    "resets": lambda r, a: r.fails(a, Reason.REPLICA_RESET),
    "was-stale-for": lambda r, a: r.fails(a, Reason.REPLICA_RESET, reused=True, received=False),
    "garbles": lambda r, a: r.fails(a, Reason.BAD_RESPONSE),
    "400s": lambda r, a: r.answers(a, Reason.REPLICA_REFUSED),
    "500s": lambda r, a: r.answers(a, Reason.SERVER_ERROR),
    "503s": lambda r, a: r.answers(a, Reason.REPLICA_BUSY),
    "errs-in-the-stream-of": lambda r, a: r.answers(a, Reason.STREAM_ERROR),
    "knows-no-priority-of": lambda r, a: r.asks_without_priority(a),
}

# What happens to a replica: "r0 leaves".
FLEET: dict[str, Callable[[World, str], object]] = {
    "leaves": lambda w, id: w.fleet.remove(id),
    "joins": lambda w, id: w.joins(id),
    "joins-untried": lambda w, id: w.joins(id, is_tried=False),
    "proves-good": lambda w, id: w.fleet.probed(w.fleet.replicas[id], True),
    "goes-down": lambda w, id: w.goes_down(id),
    "refuses-all": lambda w, id: w.refusing.add(id),
    "grows": lambda w, id: w.grows(id),
}


def arrives(world: World, name: str, how: list[str]) -> None:
    options: dict[str, Any] = {
        "whole": {"streamed": False},
        "once": {"repeatable": False},
        "single": {"hedged": False},
        "continued": {"continued": True},
        "light": {"light": True},
        "limited": {"key": "limited", "concurrency": world.concurrency},
        "by-k": {"key": "k"},
    }
    urgency, arguments = "normal", {}
    for word in how:
        if word in NUMBERS:
            urgency = word
        elif word in options:
            arguments.update(options[word])
        else:
            arguments["pinned"] = word
    world.arrives(name, urgency, **arguments)


def happen(world: World, event: str) -> None:
    subject, verb, *rest = event.split()
    if verb == "arrives":
        arrives(world, subject, rest)
    elif verb == "leaves" and not subject.startswith("r"):
        world.of(subject).leaves()
    elif verb == "forgets":
        world.of(subject).is_kept = False  # its body was too large to keep
    elif verb == "yields":
        request = world.of(subject)
        assert world.queue is not None and request.ticket is not None
        world.queue.recall(request.ticket, world.time.at)
    elif verb == "passes":
        world.time.passes(float(subject.removesuffix("s")))
    elif verb == "closes":
        world.context.closing = True
    elif verb in FLEET:
        FLEET[verb](world, subject)
    else:
        request = world.of(rest[0])
        REPLICA[verb](request, attempt_of(request, subject))
    world.time.turn()


def play(world: World, table: str) -> None:
    for row in table.strip().splitlines():
        event, expected = (half.strip() for half in row.split("->"))
        world.said.clear()
        happen(world, event)
        assert "; ".join(world.said) == expected.replace("nothing", ""), event
        world.check()


def case(name: str, table: str, **settings: Any) -> Any:
    return pytest.param(table, settings, id=name)


def run(table: str, settings: dict[str, Any]) -> World:
    world = World(**settings)
    play(world, table)
    world.check_empty()
    return world


# -- one attempt after another --------------------------------------------------------------------

NO_RETRY = Retry(budget=0.0, budget_min=0, backoff_s=0.0)
PAUSES = Retry(backoff_s=0.25)  # 0.25 s at most

RETRIES = [
    case(
        "all is well",
        """
        a arrives     -> send a to r0
        r0 accepts a  -> nothing
        r0 shows a    -> show a from r0
        r0 shows a    -> nothing
        r0 ends a     -> release a at r0; end a: ok
        """,
    ),
    case(
        "a refused connect is tried elsewhere",
        """
        a arrives     -> send a to r0
        r0 refuses a  -> retry a to r1
        r1 ends a     -> show a from r1; release a at r1; end a: ok
        """,
    ),
    case(
        "a refused connect costs no budget and is not one of the attempts",
        """
        a arrives     -> send a to r0
        r0 refuses a  -> retry a to r1
        r1 refuses a  -> retry a to r2
        r2 refuses a  -> retry a to r3
        r3 refuses a  -> answer a: connect_failed
        """,
        replicas=4,
        retry=NO_RETRY,
    ),
    case(
        "a replica that refuses before the call returns",
        """
        r0 refuses-all  -> nothing
        r1 refuses-all  -> nothing
        a arrives       -> send a to r0; retry a to r1; retry a to r2
        r2 ends a       -> show a from r2; release a at r2; end a: ok
        """,
    ),
    case(
        "a reset before content is tried elsewhere, once",
        """
        a arrives    -> send a to r0
        r0 resets a  -> retry a to r1
        r1 resets a  -> answer a: replica_reset
        """,
    ),
    case(
        "a reset after a refused connect counts as the first",
        """
        a arrives     -> send a to r0
        r0 refuses a  -> retry a to r1
        r1 resets a   -> retry a to r2
        r2 resets a   -> answer a: replica_reset
        """,
        replicas=4,
    ),
    case(
        "a reset that may not be repeated is answered",
        """
        a arrives once  -> send a to r0
        r0 resets a     -> answer a: replica_reset
        """,
    ),
    case(
        "a reset of a request that is not kept is answered",
        """
        a arrives    -> send a to r0
        a forgets    -> nothing
        r0 resets a  -> answer a: replica_reset
        """,
    ),
    case(
        "a reset while the router closes is answered",
        """
        a arrives        -> send a to r0
        the-router closes -> nothing
        r0 resets a      -> answer a: replica_reset
        """,
    ),
    case(
        "a reset of a pinned request is answered",
        """
        a arrives r1  -> send a to r1
        r1 resets a   -> answer a: replica_reset
        """,
    ),
    case(
        "a stale connection is tried again at the same replica",
        """
        a arrives           -> send a to r0
        r0 was-stale-for a  -> retry a to r0 on a new connection
        r0 resets a         -> retry a to r1
        r1 resets a         -> answer a: replica_reset
        """,
    ),
    case(
        "a pinned request may have had a stale connection",
        """
        a arrives r1        -> send a to r1
        r1 was-stale-for a  -> retry a to r1 on a new connection
        r1 was-stale-for a  -> answer a: replica_reset
        """,
    ),
    case(
        "a stale connection to a replica that was removed is tried elsewhere",
        """
        a arrives           -> send a to r0
        r0 leaves           -> nothing
        r0 was-stale-for a  -> retry a to r1
        r1 ends a           -> show a from r1; release a at r1; end a: ok
        """,
    ),
    case(
        "what is no response is answered",
        """
        a arrives     -> send a to r0
        r0 garbles a  -> answer a: bad_response
        """,
    ),
    case(
        "a 400 is passed on",
        """
        a arrives  -> send a to r0
        r0 400s a  -> release a at r0; end a: replica_refused
        """,
    ),
    case(
        "a 500 is passed on",
        """
        a arrives  -> send a to r0
        r0 500s a  -> release a at r0; end a: server_error
        """,
    ),
    case(
        "a 503 is tried elsewhere, and the last one allowed is passed on",
        """
        a arrives  -> send a to r0
        r0 503s a  -> discard a at r0; retry a to r1
        r1 503s a  -> discard a at r1; retry a to r2
        r2 503s a  -> release a at r2; end a: replica_busy
        """,
        replicas=4,
    ),
    case(
        "a refused connect is not one of the attempts that 503s use up",
        """
        a arrives     -> send a to r0
        r0 503s a     -> discard a at r0; retry a to r1
        r1 refuses a  -> retry a to r2
        r2 503s a     -> discard a at r2; retry a to r3
        r3 503s a     -> release a at r3; end a: replica_busy
        """,
        replicas=5,
    ),
    case(
        "a 503 is passed on where there is no other replica",
        """
        a arrives  -> send a to r0
        r0 503s a  -> release a at r0; end a: replica_busy
        """,
        replicas=1,
    ),
    case(
        "a 503 is passed on where the request is not kept",
        """
        a arrives  -> send a to r0
        a forgets  -> nothing
        r0 503s a  -> release a at r0; end a: replica_busy
        """,
    ),
    case(
        "a stream that begins with an error is tried elsewhere, once",
        """
        a arrives                   -> send a to r0
        r0 errs-in-the-stream-of a  -> discard a at r0; retry a to r1
        r1 errs-in-the-stream-of a  -> release a at r1; end a: stream_error
        """,
    ),
    case(
        "a stream that begins with an error and may not be repeated is passed on",
        """
        a arrives once              -> send a to r0
        r0 errs-in-the-stream-of a  -> release a at r0; end a: stream_error
        """,
    ),
    case(
        "a replica that knows no priority is asked again without",
        """
        a arrives                  -> send a to r0
        r0 knows-no-priority-of a  -> release a at r0; retry a to r0
        r0 ends a                  -> show a from r0; release a at r0; end a: ok
        """,
        retry=NO_RETRY,
    ),
    case(
        "no budget: a reset is answered",
        """
        a arrives    -> send a to r0
        r0 resets a  -> answer a: replica_reset
        """,
        retry=NO_RETRY,
    ),
    case(
        "no budget: a 503 is passed on",
        """
        a arrives  -> send a to r0
        r0 503s a  -> release a at r0; end a: replica_busy
        """,
        retry=NO_RETRY,
    ),
    case(
        "no budget: a replica that is down costs none",
        """
        a arrives     -> send a to r0
        r0 goes-down  -> nothing
        r0 resets a   -> retry a to r1
        r1 ends a     -> show a from r1; release a at r1; end a: ok
        """,
        retry=NO_RETRY,
    ),
    case(
        "the budget is a request's until the request ends",
        """
        a arrives    -> send a to r0
        b arrives    -> send b to r0
        r0 resets a  -> retry a to r1
        r0 resets b  -> answer b: replica_reset
        r1 503s a    -> discard a at r1; retry a to r2
        r2 ends a    -> show a from r2; release a at r2; end a: ok
        c arrives    -> send c to r0
        r0 resets c  -> retry c to r2
        r2 ends c    -> show c from r2; release c at r2; end c: ok
        """,
        retry=Retry(budget=0.0, budget_min=1, backoff_s=0.0),
    ),
    case(
        "a retry on the budget comes after a pause",
        """
        a arrives      -> send a to r0
        r0 503s a      -> discard a at r0
        0.25s passes   -> retry a to r1
        r1 resets a    -> nothing
        0.25s passes   -> retry a to r2
        r2 ends a      -> show a from r2; release a at r2; end a: ok
        """,
        retry=PAUSES,
    ),
    case(
        "the client leaves in the pause",
        """
        a arrives  -> send a to r0
        r0 503s a  -> discard a at r0
        a leaves   -> end a: client_gone
        1s passes  -> nothing
        """,
        retry=PAUSES,
    ),
    case(
        "the router closes in the pause",
        """
        a arrives          -> send a to r0
        r0 503s a          -> discard a at r0
        the-router closes  -> nothing
        0.25s passes       -> answer a: replica_busy
        """,
        retry=PAUSES,
    ),
    case(
        "the other replica leaves in the pause",
        """
        a arrives     -> send a to r0
        r0 503s a     -> discard a at r0
        r1 leaves     -> nothing
        0.25s passes  -> answer a: replica_busy
        """,
        replicas=2,
        retry=PAUSES,
    ),
    case(
        "... and one that has just joined takes the request after its first probe",
        """
        a arrives         -> send a to r0
        r0 503s a         -> discard a at r0
        r1 leaves         -> nothing
        r2 joins-untried  -> nothing
        0.25s passes      -> nothing
        r2 proves-good    -> retry a to r2
        2s passes         -> nothing
        r2 ends a         -> show a from r2; release a at r2; end a: ok
        """,
        replicas=2,
        retry=PAUSES,
    ),
    case(
        "... or is not awaited for longer than two seconds",
        """
        a arrives         -> send a to r0
        r0 503s a         -> discard a at r0
        r1 leaves         -> nothing
        r2 joins-untried  -> nothing
        0.25s passes      -> nothing
        1.5s passes       -> nothing
        0.5s passes       -> answer a: replica_busy
        r2 proves-good    -> nothing
        """,
        replicas=2,
        retry=PAUSES,
    ),
    case(
        "... or is awaited until the client leaves",
        """
        a arrives         -> send a to r0
        r0 503s a         -> discard a at r0
        r1 leaves         -> nothing
        r2 joins-untried  -> nothing
        0.25s passes      -> nothing
        a leaves          -> end a: client_gone
        r2 proves-good    -> nothing
        2s passes         -> nothing
        """,
        replicas=2,
        retry=PAUSES,
    ),
    case(
        "a refused connect at the last replica waits for a first probe, too",
        """
        a arrives         -> send a to r0
        r1 joins-untried  -> nothing
        r0 refuses a      -> nothing
        r1 proves-good    -> retry a to r1
        r1 ends a         -> show a from r1; release a at r1; end a: ok
        """,
        replicas=1,
    ),
    case(
        "the other replica is full",
        """
        a arrives    -> send a to r0
        b arrives    -> send b to r1
        r0 resets a  -> answer a: replica_reset
        r1 ends b    -> show b from r1; release b at r1; end b: ok
        """,
        replicas=2,
        most=1,
    ),
    case(
        "the other replica is full, but has room after the pause",
        """
        a arrives     -> send a to r0
        b arrives     -> send b to r1
        r0 resets a   -> nothing
        r1 ends b     -> show b from r1; release b at r1; end b: ok
        0.25s passes  -> retry a to r1
        r1 ends a     -> show a from r1; release a at r1; end a: ok
        """,
        replicas=2,
        most=1,
        retry=PAUSES,
    ),
    case(
        "the client leaves while connecting",
        """
        a arrives  -> send a to r0
        a leaves   -> drop a at r0; end a: client_gone
        """,
    ),
    case(
        "the client leaves while streaming",
        """
        a arrives   -> send a to r0
        r0 shows a  -> show a from r0
        a leaves    -> drop a at r0; end a: client_gone
        """,
    ),
    case(
        "a replica that is removed finishes what it has",
        """
        a arrives   -> send a to r0
        r0 leaves   -> nothing
        b arrives   -> send b to r1
        r0 shows a  -> show a from r0
        r0 ends a   -> release a at r0; end a: ok
        r1 ends b   -> show b from r1; release b at r1; end b: ok
        """,
    ),
    case(
        "a replica that was removed fails",
        """
        a arrives    -> send a to r0
        r0 leaves    -> nothing
        r0 resets a  -> retry a to r1
        r1 leaves    -> nothing
        r1 503s a    -> discard a at r1; retry a to r2
        r2 ends a    -> show a from r2; release a at r2; end a: ok
        """,
    ),
    case(
        "another replica with the same ID is another replica",
        """
        a arrives    -> send a to r0
        r0 leaves    -> nothing
        r0 joins     -> nothing
        r0 resets a  -> retry a to r0
        r0 ends a    -> show a from r0; release a at r0; end a: ok
        """,
        replicas=1,
    ),
]


@pytest.mark.parametrize(("table", "settings"), RETRIES)
def test_retries(table: str, settings: dict[str, Any]) -> None:
    run(table, settings)


def test_a_fleet_of_dead_replicas_is_not_searched_to_its_end() -> None:
    world = World(replicas=12, retry=NO_RETRY)
    world.refusing = {f"r{number}" for number in range(12)}
    world.arrives("a")
    assert len(world.said) == 11
    assert world.said[0] == "send a to r0"
    assert world.said[-1] == "answer a: connect_failed"
    world.check_empty()


# -- time -----------------------------------------------------------------------------------------

HURRIED = {"high": ClassRules(ClassTimeouts(connect_s=0.5))}

DEADLINES = [
    case(
        "the first content of a stream is late",
        """
        a arrives     -> send a to r0
        r0 accepts a  -> nothing
        3.5s passes   -> nothing
        0.5s passes   -> drop a at r0; answer a: ttft_timeout
        """,
    ),
    case(
        "a whole answer has more time",
        """
        a arrives whole  -> send a to r0
        7.5s passes      -> nothing
        0.5s passes      -> drop a at r0; answer a: whole_timeout
        """,
    ),
    case(
        "a retry has its own time",
        """
        a arrives     -> send a to r0
        3.5s passes   -> nothing
        r0 refuses a  -> retry a to r1
        3.5s passes   -> nothing
        0.5s passes   -> drop a at r1; answer a: ttft_timeout
        """,
    ),
    case(
        "a copy has its own time",
        """
        a arrives    -> send a to r0
        1s passes    -> copy a to r1
        3s passes    -> drop a at r0
        0.5s passes  -> nothing
        0.5s passes  -> drop a at r1; answer a: ttft_timeout
        """,
        hedging=HEDGED,
    ),
    case(
        "a copy may answer after the time of the first attempt",
        """
        a arrives    -> send a to r0
        1s passes    -> copy a to r1
        3s passes    -> drop a at r0
        0.5s passes  -> nothing
        r1 ends a    -> show a from r1; release a at r1; end a: ok
        """,
        hedging=HEDGED,
    ),
    case(
        "content ends the time to the first content",
        """
        a arrives    -> send a to r0
        3.5s passes  -> nothing
        r0 shows a   -> show a from r0
        1.5s passes  -> nothing
        r0 shows a   -> nothing
        1.5s passes  -> nothing
        0.5s passes  -> drop a at r0; truncate a: token_gap_timeout
        """,
    ),
    case(
        "a class may have less time to connect",
        """
        a arrives high  -> send a to r0
        b arrives       -> send b to r0
        0.5s passes     -> drop a at r0; retry a to r1
        r1 accepts a    -> nothing
        0.5s passes     -> nothing
        r1 ends a       -> show a from r1; release a at r1; end a: ok
        r0 ends b       -> show b from r0; release b at r0; end b: ok
        """,
        classes=HURRIED,
    ),
    case(
        "two attempts are late to connect in one moment",
        """
        a arrives high  -> send a to r0; copy a to r1
        0.5s passes     -> drop a at r0; drop a at r1; retry a to r2
        0.5s passes     -> drop a at r2; answer a: connect_timeout
        """,
        classes=HURRIED,
        hedging=Hedging(policy="fixed", options={"delay_s": 0.0}, budget=1.0),
    ),
    case(
        "a request takes too long: while its replica is silent",
        """
        a arrives  -> send a to r0
        3s passes  -> drop a at r0; answer a: total_timeout
        """,
        timeouts=Timeouts(total_s=3.0),
    ),
    case(
        "... while two are",
        """
        a arrives  -> send a to r0
        1s passes  -> copy a to r1
        2s passes  -> drop a at r0; drop a at r1; answer a: total_timeout
        """,
        timeouts=Timeouts(total_s=3.0),
        hedging=HEDGED,
    ),
    case(
        "... while it streams",
        """
        a arrives  -> send a to r0
        2s passes  -> nothing
        r0 shows a -> show a from r0
        1s passes  -> drop a at r0; truncate a: total_timeout
        """,
        timeouts=Timeouts(total_s=3.0),
    ),
    case(
        "... in the pause before a retry",
        """
        a arrives    -> send a to r0
        3s passes    -> nothing
        r0 503s a    -> discard a at r0
        0.01s passes -> answer a: total_timeout
        1s passes    -> nothing
        """,
        timeouts=Timeouts(total_s=3.01),
        retry=PAUSES,
    ),
    case(
        "... in the queue",
        """
        a arrives  -> send a to r0
        1s passes  -> nothing
        b arrives  -> queue b
        2s passes  -> drop a at r0; answer a: total_timeout; grant b; send b to r0
        1s passes  -> drop b at r0; answer b: total_timeout
        """,
        replicas=1,
        most=1,
        queue=QUEUED,
        timeouts=Timeouts(total_s=3.0),
    ),
]


@pytest.mark.parametrize(("table", "settings"), DEADLINES)
def test_deadlines(table: str, settings: dict[str, Any]) -> None:
    run(table, {"timeouts": TIMES, **settings})


def test_only_the_attempt_that_waited_so_long_is_blamed() -> None:
    world = World(hedging=HEDGED, timeouts=TIMES)
    play(
        world,
        """
        a arrives  -> send a to r0
        1s passes  -> copy a to r1
        3s passes  -> drop a at r0
        r1 ends a  -> show a from r1; release a at r1; end a: ok
        """,
    )
    assert [replica.health.failures for replica in world.replicas] == [1, 0, 0]


def test_a_first_token_that_is_overdue_makes_its_replica_suspect() -> None:
    world = World(replicas=2, health=Health(suspect_min_s=2.0, suspect_factor=2.0))
    play(
        world,
        """
        a arrives  -> send a to r0
        1s passes  -> nothing
        r0 ends a  -> show a from r0; release a at r0; end a: ok
        b arrives  -> send b to r0
        1s passes  -> nothing
        """,
    )
    health = world.replicas[0].health
    assert not health.is_suspect(world.time.at)
    play(world, "1s passes -> nothing")
    assert health.is_suspect(world.time.at)
    play(world, "c arrives -> send c to r1")
    play(world, "r0 resets b -> retry b to r1")
    assert health.is_ejected(world.time.at), "the attempt that was overdue has failed"
    world.of("b").leaves()
    world.of("c").leaves()
    world.check_empty()


def test_no_first_content_is_awaited_while_the_client_reads_nothing() -> None:
    world = World(timeouts=TIMES, hedging=HEDGED)
    play(world, "a arrives -> send a to r0")
    play(world, "1s passes -> copy a to r1")
    driver = world.of("a").driver
    driver.excuse()
    driver.await_first(world.time.at + 1.0)
    assert [a.first_due - a.began for a in driver.live] == [4.0, 4.0], "that is later"
    driver.excuse()
    play(world, "9s passes -> nothing")
    driver.await_first(world.time.at + 1.0)
    world.of("a").look_by(driver.due())
    play(world, "0.5s passes -> nothing")
    play(world, "0.5s passes -> drop a at r0; drop a at r1; answer a: ttft_timeout")
    world.check_empty()


# -- copies ---------------------------------------------------------------------------------------

AT_ONCE = Hedging(policy="fixed", options={"delay_s": 0.0}, classes=("normal",), budget=1.0)

HEDGES = [
    case(
        "the copy is first",
        """
        a arrives     -> send a to r0
        r0 accepts a  -> nothing
        0.5s passes   -> nothing
        0.5s passes   -> copy a to r1
        r1 accepts a  -> nothing
        r1 shows a    -> drop a at r0; show a from r1
        r1 ends a     -> release a at r1; end a: ok
        """,
    ),
    case(
        "the first attempt is first",
        """
        a arrives   -> send a to r0
        1s passes   -> copy a to r1
        r0 shows a  -> drop a at r1; show a from r0
        r0 ends a   -> release a at r0; end a: ok
        """,
    ),
    case(
        "an answer in time needs no copy",
        """
        a arrives   -> send a to r0
        r0 shows a  -> show a from r0
        1s passes   -> nothing
        r0 ends a   -> release a at r0; end a: ok
        """,
    ),
    case(
        "a copy may go at once",
        """
        a arrives  -> send a to r0; copy a to r1
        r1 ends a  -> drop a at r0; show a from r1; release a at r1; end a: ok
        """,
        hedging=AT_ONCE,
    ),
    case(
        "a retry that hangs gets a copy",
        """
        a arrives     -> send a to r0
        0.75s passes  -> nothing
        r0 refuses a  -> retry a to r1
        0.75s passes  -> nothing
        0.25s passes  -> copy a to r2
        r2 ends a     -> drop a at r1; show a from r2; release a at r2; end a: ok
        """,
    ),
    case(
        "a copy goes where no attempt has failed",
        """
        a arrives     -> send a to r0
        r0 refuses a  -> retry a to r1
        9s passes     -> nothing
        r1 ends a     -> show a from r1; release a at r1; end a: ok
        """,
        replicas=2,
    ),
    case(
        "one copy is enough",
        """
        a arrives     -> send a to r0
        1s passes     -> copy a to r1
        r1 refuses a  -> nothing
        2s passes     -> nothing
        r0 resets a   -> retry a to r2
        2s passes     -> nothing
        r2 ends a     -> show a from r2; release a at r2; end a: ok
        """,
        replicas=5,
    ),
    case(
        "the first attempt fails and its copy goes on",
        """
        a arrives    -> send a to r0
        1s passes    -> copy a to r1
        r0 resets a  -> nothing
        9s passes    -> nothing
        r1 ends a    -> show a from r1; release a at r1; end a: ok
        """,
    ),
    case(
        "both are lost: there is no third",
        """
        a arrives    -> send a to r0
        1s passes    -> copy a to r1
        r0 resets a  -> nothing
        r1 resets a  -> answer a: replica_reset
        """,
    ),
    case(
        "both fail: the first attempt's failure is told",
        """
        a arrives     -> send a to r0
        1s passes     -> copy a to r1
        r0 garbles a  -> nothing
        r1 refuses a  -> answer a: bad_response
        """,
        replicas=2,
    ),
    case(
        "both fail, and the first one reached no replica: the copy's failure is told",
        """
        a arrives     -> send a to r0
        1s passes     -> copy a to r1
        r0 refuses a  -> nothing
        r1 garbles a  -> answer a: bad_response
        """,
    ),
    case(
        "a copy that refuses at once",
        """
        r1 refuses-all  -> nothing
        a arrives       -> send a to r0; copy a to r1
        r0 ends a       -> show a from r0; release a at r0; end a: ok
        """,
        hedging=AT_ONCE,
    ),
    case(
        "a first attempt that refuses at once has its copy as the retry has it",
        """
        r0 refuses-all  -> nothing
        a arrives       -> send a to r0; retry a to r1
        0.5s passes     -> nothing
        0.5s passes     -> copy a to r2
        r2 ends a       -> drop a at r1; show a from r2; release a at r2; end a: ok
        """,
    ),
    case(
        "no alarm is set for a request that ended while it was sent",
        """
        r0 refuses-all  -> nothing
        r1 refuses-all  -> nothing
        a arrives       -> send a to r0; retry a to r1; answer a: connect_failed
        """,
        replicas=2,
    ),
    case(
        "a 503 is kept while the copy lives, and forgotten when the copy answers",
        """
        a arrives  -> send a to r0
        1s passes  -> copy a to r1
        r0 503s a  -> put a aside: replica_busy of r0
        r1 ends a  -> show a from r1; release a at r1; end a: ok
        """,
    ),
    case(
        "a 503 is told when the copy fails",
        """
        a arrives    -> send a to r0
        1s passes    -> copy a to r1
        r0 503s a    -> put a aside: replica_busy of r0
        r1 resets a  -> tell a: replica_busy of r0
        """,
    ),
    case(
        "a 400 of the copy is kept while the first attempt lives",
        """
        a arrives    -> send a to r0
        1s passes    -> copy a to r1
        r1 400s a    -> put a aside: replica_refused of r1
        r0 resets a  -> tell a: replica_refused of r1
        """,
    ),
    case(
        "of two errors the first attempt's is told",
        """
        a arrives  -> send a to r0
        1s passes  -> copy a to r1
        r1 400s a  -> put a aside: replica_refused of r1
        r0 500s a  -> put a aside: server_error of r0; tell a: server_error of r0
        """,
    ),
    case(
        "... whichever came first",
        """
        a arrives  -> send a to r0
        1s passes  -> copy a to r1
        r0 400s a  -> put a aside: replica_refused of r0
        r1 500s a  -> put a aside: server_error of r1; tell a: replica_refused of r0
        """,
    ),
    case(
        "two 503s are no answer while a third replica may have room",
        """
        a arrives  -> send a to r0
        1s passes  -> copy a to r1
        r0 503s a  -> put a aside: replica_busy of r0
        r1 503s a  -> discard a at r1; retry a to r2
        r2 ends a  -> show a from r2; release a at r2; end a: ok
        """,
    ),
    case(
        "... and the first one is told when the third replica fails",
        """
        a arrives    -> send a to r0
        1s passes    -> copy a to r1
        r0 503s a    -> put a aside: replica_busy of r0
        r1 503s a    -> discard a at r1; retry a to r2
        r2 resets a  -> tell a: replica_busy of r0
        """,
    ),
    case(
        "... or has left before it was asked",
        """
        a arrives     -> send a to r0
        1s passes     -> copy a to r1
        r0 400s a     -> put a aside: replica_refused of r0
        r1 503s a     -> discard a at r1
        r2 leaves     -> nothing
        0.25s passes  -> tell a: replica_refused of r0
        """,
        retry=PAUSES,
    ),
    case(
        "the client leaves while two race",
        """
        a arrives  -> send a to r0
        1s passes  -> copy a to r1
        a leaves   -> drop a at r0; drop a at r1; end a: client_gone
        """,
    ),
    case(
        "the client leaves before the copy",
        """
        a arrives  -> send a to r0
        a leaves   -> drop a at r0; end a: client_gone
        1s passes  -> nothing
        """,
    ),
    case(
        "a copy goes on although its replica is removed",
        """
        a arrives   -> send a to r0
        1s passes   -> copy a to r1
        r1 leaves   -> nothing
        r1 shows a  -> drop a at r0; show a from r1
        r1 ends a   -> release a at r1; end a: ok
        """,
    ),
    case(
        "no copy goes to a replica that is down or has left",
        """
        a arrives     -> send a to r0
        r1 leaves     -> nothing
        r2 goes-down  -> nothing
        1s passes     -> copy a to r3
        r3 ends a     -> drop a at r0; show a from r3; release a at r3; end a: ok
        """,
        replicas=4,
    ),
    case(
        "a copy waits until a replica is free of waiting requests",
        """
        a arrives single  -> send a to r0
        b arrives         -> send b to r0
        r0 leaves         -> nothing
        c arrives single  -> send c to r1
        1s passes         -> nothing
        r1 shows c        -> show c from r1
        0.5s passes       -> copy b to r1
        r1 ends b         -> drop b at r0; show b from r1; release b at r1; end b: ok
        a leaves          -> drop a at r0; end a: client_gone
        c leaves          -> drop c at r1; end c: client_gone
        """,
        replicas=2,
    ),
    case(
        "no copy of a request that must not be hedged",
        """
        a arrives single  -> send a to r0
        9s passes         -> nothing
        r0 ends a         -> show a from r0; release a at r0; end a: ok
        """,
    ),
    case(
        "no copy of a request that is not kept",
        """
        a arrives  -> send a to r0
        a forgets  -> nothing
        9s passes  -> nothing
        r0 ends a  -> show a from r0; release a at r0; end a: ok
        """,
    ),
    case(
        "no copy of a pinned request",
        """
        a arrives r1  -> send a to r1
        9s passes     -> nothing
        r1 ends a     -> show a from r1; release a at r1; end a: ok
        """,
    ),
    case(
        "no copy while the router closes",
        """
        a arrives          -> send a to r0
        the-router closes  -> nothing
        9s passes          -> nothing
        r0 ends a          -> show a from r0; release a at r0; end a: ok
        """,
    ),
    case(
        "a second stream has a copy although a priority was told in vain",
        """
        a arrives                  -> send a to r0
        r0 knows-no-priority-of a  -> release a at r0; retry a to r0
        1s passes                  -> nothing
        r0 ends a                  -> show a from r0; release a at r0; end a: ok
        """,
        replicas=1,
    ),
    case(
        "no priority: a replica is not asked again while two race",
        """
        a arrives                  -> send a to r0
        1s passes                  -> copy a to r1
        r0 knows-no-priority-of a  -> put a aside: replica_refused of r0
        r1 ends a                  -> show a from r1; release a at r1; end a: ok
        """,
    ),
]


@pytest.mark.parametrize(("table", "settings"), HEDGES)
def test_hedges(table: str, settings: dict[str, Any]) -> None:
    run(table, {"hedging": HEDGED, **settings})


@pytest.mark.parametrize("had_connection", [False, True])
@pytest.mark.parametrize("ends", ["r0 shows a", "a leaves", "r1 refuses a"])
def test_a_copy_that_never_had_a_connection_is_refunded(had_connection: bool, ends: str) -> None:
    world = World(hedging=HEDGED)
    play(world, "a arrives -> send a to r0")
    paid_in = world.hedger._budget.level
    play(world, "1s passes -> copy a to r1")
    assert world.counts.fired_tokens == TOKENS
    if had_connection:
        happen(world, "r1 accepts a")
    happen(world, ends)
    kept = TOKENS if had_connection else 0
    assert world.counts.fired_tokens == kept
    assert world.counts.returned_tokens == TOKENS - kept
    world.check()
    assert world.hedger._budget.level == world.counts.budget_tokens == paid_in - kept
    for request in [*world.requests]:
        request.leaves()
    world.check_empty()


# -- the rest of a broken stream ------------------------------------------------------------------

CONTINUED = Continuation(enabled=True)

BREAKS = [
    case(
        "a stream breaks and is truncated",
        """
        a arrives    -> send a to r0
        r0 shows a   -> show a from r0
        r0 resets a  -> truncate a: replica_reset
        """,
    ),
    case(
        "a stream breaks and another replica goes on",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        r0 resets a          -> continue a to r1
        r1 shows a           -> show a from r1
        r1 ends a            -> release a at r1; end a: ok
        """,
    ),
    case(
        "the continuation cannot be connected",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        r0 resets a          -> continue a to r1
        r1 refuses a         -> continue a to r2
        r2 refuses a         -> truncate a: replica_reset
        """,
        replicas=4,
    ),
    case(
        "the continuation breaks after content",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        r0 garbles a         -> continue a to r1
        r1 shows a           -> show a from r1
        r1 resets a          -> continue a to r2
        r2 shows a           -> show a from r2
        r2 resets a          -> truncate a: replica_reset
        """,
        replicas=4,
    ),
    case(
        "two replicas are lost: there is no third",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        r0 resets a          -> continue a to r1
        r1 resets a          -> truncate a: replica_reset
        """,
    ),
    case(
        "a stream that stops is continued",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        2s passes            -> drop a at r0; continue a to r1
        r1 ends a            -> show a from r1; release a at r1; end a: ok
        """,
    ),
    case(
        "the continuation shows nothing in time",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        r0 resets a          -> continue a to r1
        3.5s passes          -> nothing
        0.5s passes          -> drop a at r1; continue a to r2
        4s passes            -> drop a at r2; truncate a: replica_reset
        """,
    ),
    case(
        "there is no other replica",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        r0 resets a          -> truncate a: replica_reset
        """,
        replicas=1,
    ),
    case(
        "there is no budget",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        r0 resets a          -> truncate a: replica_reset
        """,
        retry=NO_RETRY,
    ),
    case(
        "the router closes",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        the-router closes    -> nothing
        r0 resets a          -> truncate a: replica_reset
        """,
    ),
    case(
        "the request takes too long",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        r0 resets a          -> continue a to r1
        3s passes            -> drop a at r1; truncate a: replica_reset
        """,
        timeouts=Timeouts(total_s=3.0),
    ),
    case(
        "the client leaves while another replica is asked",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        r0 resets a          -> continue a to r1
        a leaves             -> drop a at r1; end a: client_gone
        """,
    ),
    case(
        "the winner of a race breaks, and neither of the two is asked",
        """
        a arrives continued  -> send a to r0
        1s passes            -> copy a to r1
        r1 shows a           -> drop a at r0; show a from r1
        r1 resets a          -> continue a to r2
        9s passes            -> drop a at r2; truncate a: replica_reset
        """,
        hedging=HEDGED,
    ),
]


@pytest.mark.parametrize(("table", "settings"), BREAKS)
def test_broken_streams(table: str, settings: dict[str, Any]) -> None:
    run(table, {"timeouts": TIMES, "continuation": CONTINUED, **settings})


@pytest.mark.parametrize(
    ("event", "expected", "settings"),
    [
        ("r1 shows a", {}, {}),  # whoever relays the content counts that
        ("r1 garbles a", {Outcome.NO_REPLICA: 1}, {"has_begun": True}),
        ("r1 garbles a", {Outcome.FAILED: 1}, {}),
        ("3s passes", {Outcome.FAILED: 1}, {"timeouts": Timeouts(total_s=3.0)}),
    ],
    ids=["goes on", "nobody is left for the next", "fails", "takes too long"],
)
def test_what_becomes_of_a_broken_stream_is_counted_once(
    event: str, expected: dict[str, int], settings: dict[str, Any]
) -> None:
    has_begun = settings.pop("has_begun", False)
    world = World(2, **{"timeouts": TIMES, "continuation": CONTINUED, **settings})
    for row in ("a arrives continued", "r0 shows a", "r0 resets a"):
        happen(world, row)
    assert world.said[-1] == "continue a to r1"
    if has_begun:
        happen(world, "r1 shows a")
    happen(world, event)
    assert world.metrics.continuations == expected
    for request in [*world.requests]:
        request.leaves()
    world.check_empty()


@pytest.mark.parametrize(
    ("settings", "outcome"),
    [
        ({"replicas": 1}, Outcome.NO_REPLICA),
        ({"retry": NO_RETRY}, Outcome.BUDGET),
        ({"continuation": Continuation(enabled=True, attempts=1)}, Outcome.CONTINUED),
    ],
    ids=["no replica", "no budget", "one continuation is all it may have"],
)
def test_why_a_broken_stream_is_not_continued_is_counted(
    settings: dict[str, Any], outcome: Outcome
) -> None:
    world = World(**{"continuation": CONTINUED, **settings})
    for row in ("a arrives continued", "r0 shows a", "r0 resets a"):
        happen(world, row)
    if outcome is Outcome.CONTINUED:
        assert world.said[-1] == "continue a to r1"
        happen(world, "r1 refuses a")
        assert world.metrics.continuations == {Outcome.FAILED: 1}, "one is all it may have"
    else:
        assert world.metrics.continuations == {outcome: 1}
    assert world.said[-1] == "truncate a: replica_reset"
    world.check_empty()


def test_retries_are_counted_by_their_cause() -> None:
    world = World(4, retry=Retry(backoff_s=0.0, budget=0.0, budget_min=1))
    for row in ("a arrives", "r0 refuses a", "r1 was-stale-for a", "r1 503s a"):
        happen(world, row)
    causes = {Reason.CONNECT_FAILED: 1, Reason.REPLICA_RESET: 1, Reason.REPLICA_BUSY: 1}
    assert world.metrics.retries_by_cause == causes
    assert world.metrics.connections_stale == 1
    happen(world, "b arrives")
    happen(world, "r0 resets b")
    assert world.metrics.retries_by_cause == causes
    assert world.metrics.retry_budget_exhausted == 1
    happen(world, "a leaves")
    world.check_empty()


# -- the queue ------------------------------------------------------------------------------------

PREEMPTS = Queue(
    order="strict", policy="fifo", preemption=Preemption(enabled=True, after_s=0.5, budget=1.0)
)
GATED = Queue(
    order="strict",
    policy="fifo",
    gates=QueueGates(waiting=1, prefill_tokens=0),
    classes=QueueClasses(critical=CriticalClass(waiting=2)),
)
SHORT = Queue(
    order="strict",
    policy="fifo",
    classes=QueueClasses(normal=QueueClass(timeout_s=2.0, starvation_s=1.0, absent_s=1.0)),
)

QUEUES = [
    case(
        "a request waits for room and is granted it",
        """
        a arrives  -> send a to r0
        b arrives  -> queue b
        c arrives  -> queue c
        r0 ends a  -> show a from r0; release a at r0; end a: ok; grant b; send b to r0
        r0 ends b  -> show b from r0; release b at r0; end b: ok; grant c; send c to r0
        r0 ends c  -> show c from r0; release c at r0; end c: ok
        """,
        replicas=1,
    ),
    case(
        "the client leaves while it waits",
        """
        a arrives  -> send a to r0
        b arrives  -> queue b
        b leaves   -> end b: client_gone
        r0 ends a  -> show a from r0; release a at r0; end a: ok
        """,
        replicas=1,
    ),
    case(
        "the client of the request that runs leaves",
        """
        a arrives  -> send a to r0
        b arrives  -> queue b
        a leaves   -> drop a at r0; end a: client_gone; grant b; send b to r0
        b leaves   -> drop b at r0; end b: client_gone
        """,
        replicas=1,
    ),
    case(
        "it has waited for too long",
        """
        a arrives    -> send a to r0
        b arrives    -> queue b
        1.5s passes  -> nothing
        0.5s passes  -> answer b: queue_timeout
        r0 ends a    -> show a from r0; release a at r0; end a: ok
        """,
        replicas=1,
        queue=SHORT,
    ),
    case(
        "a retry goes on at once where there is room",
        """
        a arrives    -> send a to r0
        r0 resets a  -> retry a to r1
        r1 ends a    -> show a from r1; release a at r1; end a: ok
        """,
        replicas=2,
    ),
    case(
        "a retry waits where the other replica is full, and then goes",
        """
        a arrives    -> send a to r0
        b arrives    -> send b to r1
        r0 resets a  -> queue a
        1s passes    -> nothing
        r1 ends b    -> show b from r1; release b at r1; end b: ok; grant a; retry a to r1
        r1 ends a    -> show a from r1; release a at r1; end a: ok
        """,
        replicas=2,
    ),
    case(
        "a retry waits before requests that came later",
        """
        a arrives    -> send a to r0
        b arrives    -> send b to r1
        c arrives    -> queue c
        r0 resets a  -> queue a; grant c; send c to r0
        d arrives    -> queue d
        r1 ends b    -> show b from r1; release b at r1; end b: ok; grant a; retry a to r1
        r0 ends c    -> show c from r0; release c at r0; end c: ok; grant d; send d to r0
        r0 ends d    -> show d from r0; release d at r0; end d: ok
        r1 ends a    -> show a from r1; release a at r1; end a: ok
        """,
        replicas=2,
    ),
    case(
        "the client of a retry that waits leaves",
        """
        a arrives    -> send a to r0
        b arrives    -> send b to r1
        r0 resets a  -> queue a
        a leaves     -> end a: client_gone
        r1 ends b    -> show b from r1; release b at r1; end b: ok
        """,
        replicas=2,
    ),
    case(
        "a 503 waits for another replica",
        """
        a arrives  -> send a to r0
        b arrives  -> send b to r1
        r0 503s a  -> discard a at r0; queue a
        r1 ends b  -> show b from r1; release b at r1; end b: ok; grant a; retry a to r1
        r1 ends a  -> show a from r1; release a at r1; end a: ok
        """,
        replicas=2,
    ),
    case(
        "a retry waits where the other replica is closed to its class, and then goes",
        """
        a arrives    -> send a to r0
        b arrives    -> send b to r1
        r0 resets a  -> queue a
        1s passes    -> nothing
        r1 shows b   -> show b from r1; grant a; retry a to r1
        r1 ends b    -> release b at r1; end b: ok
        r1 ends a    -> show a from r1; release a at r1; end a: ok
        """,
        replicas=2,
        most=None,
        queue=GATED,
    ),
    case(
        "... and goes at once where it is open to its class",
        """
        a arrives critical  -> send a to r0
        b arrives           -> send b to r1
        r0 resets a         -> retry a to r1
        r1 ends b           -> show b from r1; release b at r1; end b: ok
        r1 ends a           -> show a from r1; release a at r1; end a: ok
        """,
        replicas=2,
        most=None,
        queue=GATED,
    ),
    case(
        "a retry of a request that has waited waits for a replica that it has not tried",
        """
        x arrives    -> send x to r0
        y arrives    -> send y to r1
        a arrives    -> queue a
        r0 ends x    -> show x from r0; release x at r0; end x: ok; grant a; send a to r0
        r0 resets a  -> queue a
        1s passes    -> nothing
        r1 ends y    -> show y from r1; release y at r1; end y: ok; grant a; retry a to r1
        r1 ends a    -> show a from r1; release a at r1; end a: ok
        """,
        replicas=2,
    ),
    case(
        "... and goes on at once where one is open",
        """
        x arrives    -> send x to r0
        y arrives    -> send y to r1
        a arrives    -> queue a
        r0 ends x    -> show x from r0; release x at r0; end x: ok; grant a; send a to r0
        r1 ends y    -> show y from r1; release y at r1; end y: ok
        r0 resets a  -> retry a to r1
        z arrives    -> send z to r0
        r1 ends a    -> show a from r1; release a at r1; end a: ok
        r0 ends z    -> show z from r0; release z at r0; end z: ok
        """,
        replicas=2,
    ),
    case(
        "a retry of a request that has waited keeps its place",
        """
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
        """,
        replicas=2,
        most=None,
        queue=GATED,
    ),
    case(
        "a refused connect waits until the replica may be tried again",
        """
        a arrives     -> send a to r0
        r0 refuses a  -> queue a
        0.05s passes  -> nothing
        0.06s passes  -> grant a; retry a to r0
        r0 ends a     -> show a from r0; release a at r0; end a: ok
        """,
        replicas=1,
    ),
    case(
        "refused connects are answered after a while",
        """
        a arrives     -> send a to r0
        r0 refuses a  -> queue a
        0.1s passes   -> grant a; retry a to r0
        r0 refuses a  -> queue a
        0.1s passes   -> nothing
        0.1s passes   -> grant a; retry a to r0
        0.8s passes   -> nothing
        r0 refuses a  -> answer a: connect_failed
        """,
        replicas=1,
        queue=SHORT,
    ),
    case(
        "a connection ends that while",
        """
        a arrives     -> send a to r0
        r0 refuses a  -> queue a
        0.1s passes   -> grant a; retry a to r0
        r0 accepts a  -> nothing
        1.5s passes   -> nothing
        r0 refuses a  -> queue a
        0.2s passes   -> grant a; retry a to r0
        r0 ends a     -> show a from r0; release a at r0; end a: ok
        """,
        replicas=1,
        queue=SHORT,
    ),
    case(
        "no replica is there in time",
        """
        r0 goes-down  -> nothing
        a arrives     -> queue a
        1s passes     -> answer a: no_replica
        """,
        replicas=1,
        queue=SHORT,
    ),
    case(
        "a replica is removed and another one joins",
        """
        a arrives    -> send a to r0
        b arrives    -> queue b
        r0 leaves    -> nothing
        r1 joins     -> grant b; send b to r1
        r0 resets a  -> queue a
        r1 ends b    -> show b from r1; release b at r1; end b: ok; grant a; retry a to r1
        r1 ends a    -> show a from r1; release a at r1; end a: ok
        """,
        replicas=1,
    ),
    case(
        "a pinned request waits for its replica",
        """
        a arrives r0  -> send a to r0
        b arrives r0  -> queue b
        c arrives     -> send c to r1
        r0 ends a     -> show a from r0; release a at r0; end a: ok; grant b; send b to r0
        r0 ends b     -> show b from r0; release b at r0; end b: ok
        r1 ends c     -> show c from r1; release c at r1; end c: ok
        """,
        replicas=2,
    ),
    case(
        "a less urgent request gives way and comes back",
        """
        a arrives batch  -> send a to r0
        b arrives high   -> queue b
        0.25s passes     -> nothing
        0.25s passes     -> drop a at r0; queue a; grant b; send b to r0
        r0 ends b        -> show b from r0; release b at r0; end b: ok; grant a; retry a to r0
        r0 ends a        -> show a from r0; release a at r0; end a: ok
        """,
        replicas=1,
        queue=PREEMPTS,
    ),
    case(
        "a request that gave way comes before later ones of its class",
        """
        a arrives batch  -> send a to r0
        b arrives batch  -> queue b
        a yields         -> drop a at r0; queue a; grant a; retry a to r0
        b leaves         -> end b: client_gone
        r0 ends a        -> show a from r0; release a at r0; end a: ok
        """,
        replicas=1,
        queue=PREEMPTS,
    ),
    case(
        "a request that has shown content does not give way",
        """
        a arrives batch  -> send a to r0
        r0 shows a       -> show a from r0
        a yields         -> nothing
        b arrives high   -> queue b
        2s passes        -> nothing
        r0 ends a        -> release a at r0; end a: ok; grant b; send b to r0
        r0 ends b        -> show b from r0; release b at r0; end b: ok
        """,
        replicas=1,
        queue=PREEMPTS,
    ),
    case(
        "a request that must not be repeated does not give way",
        """
        a arrives batch once  -> send a to r0
        b arrives high        -> queue b
        2s passes             -> nothing
        r0 ends a             -> show a from r0; release a at r0; end a: ok; grant b; send b to r0
        r0 ends b             -> show b from r0; release b at r0; end b: ok
        """,
        replicas=1,
        queue=PREEMPTS,
    ),
    case(
        "a request gives way with its copy",
        """
        a arrives batch  -> send a to r0
        1s passes        -> copy a to r1
        b arrives high   -> queue b
        0.5s passes      -> drop a at r0; drop a at r1; queue a; grant b; grant a; send b to r0; \
retry a to r1
        r0 ends b        -> show b from r0; release b at r0; end b: ok
        9s passes        -> nothing
        r1 ends a        -> show a from r1; release a at r1; end a: ok
        """,
        replicas=2,
        queue=PREEMPTS,
        hedging=HEDGED,
    ),
    case(
        "a request that gives way in the pause before a retry goes once",
        """
        a arrives batch  -> send a to r0
        r0 503s a        -> discard a at r0
        a yields         -> queue a
        0.25s passes     -> grant a; retry a to r1
        1s passes        -> nothing
        r1 ends a        -> show a from r1; release a at r1; end a: ok
        """,
        replicas=2,
        queue=PREEMPTS,
        retry=PAUSES,
    ),
    case(
        "a request that gives way while it waits for a first probe goes once",
        """
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
        """,
        replicas=2,
        queue=PREEMPTS,
        retry=PAUSES,
    ),
    case(
        "a copy passes the queue by, and the request is its replica's from its content on",
        """
        a arrives   -> send a to r0
        1s passes   -> copy a to r1
        b arrives   -> queue b
        r1 shows a  -> drop a at r0; show a from r1; grant b; send b to r0
        r0 ends b   -> show b from r0; release b at r0; end b: ok
        r1 ends a   -> release a at r1; end a: ok
        """,
        replicas=2,
        hedging=HEDGED,
    ),
    case(
        "a light request passes the queue by, and its retry as well",
        """
        a arrives        -> send a to r0
        b arrives        -> queue b
        c arrives light  -> send c to r0
        r1 joins         -> grant b; send b to r1
        r0 resets c      -> retry c to r1
        r1 ends c        -> show c from r1; release c at r1; end c: ok
        r0 ends a        -> show a from r0; release a at r0; end a: ok
        r1 ends b        -> show b from r1; release b at r1; end b: ok
        """,
        replicas=1,
        most=None,
        queue=GATED,
    ),
    case(
        "a key may have one request at replicas",
        """
        a arrives limited  -> send a to r0
        b arrives limited  -> queue b
        c arrives          -> send c to r1
        r0 ends a          -> show a from r0; release a at r0; end a: ok; grant b; send b to r0
        b leaves           -> drop b at r0; end b: client_gone
        d arrives limited  -> send d to r0
        d leaves           -> drop d at r0; end d: client_gone
        r1 ends c          -> show c from r1; release c at r1; end c: ok
        """,
        replicas=2,
    ),
    case(
        "... and a request that waits for another try is not there",
        """
        a arrives limited  -> send a to r0
        r0 refuses a       -> queue a
        0.2s passes        -> grant a; retry a to r0
        b arrives limited  -> queue b
        r0 ends a          -> show a from r0; release a at r0; end a: ok; grant b; send b to r0
        r0 ends b          -> show b from r0; release b at r0; end b: ok
        """,
        replicas=1,
        most=2,
    ),
    case(
        "a request of the largest flow gives way to a newcomer",
        """
        a arrives by-k  -> send a to r0
        b arrives by-k  -> queue b
        c arrives by-k  -> queue c
        d arrives       -> queue d; answer c: queue_evicted
        r0 ends a       -> show a from r0; release a at r0; end a: ok; grant b; send b to r0
        r0 ends b       -> show b from r0; release b at r0; end b: ok; grant d; send d to r0
        r0 ends d       -> show d from r0; release d at r0; end d: ok
        """,
        replicas=1,
        queue=Queue(
            order="strict", policy="fifo", classes=QueueClasses(normal=QueueClass(depth=2))
        ),
    ),
    case(
        "a reload makes room",
        """
        a arrives  -> send a to r0
        b arrives  -> queue b
        r0 grows   -> grant b; send b to r0
        r0 ends a  -> show a from r0; release a at r0; end a: ok
        r0 ends b  -> show b from r0; release b at r0; end b: ok
        """,
        replicas=1,
    ),
]


@pytest.mark.parametrize(("table", "settings"), QUEUES)
def test_queues(table: str, settings: dict[str, Any]) -> None:
    run(table, {"queue": QUEUED, "most": 1, **settings})


def test_a_prefix_is_held_where_content_came_from_and_nowhere_else() -> None:
    world = World(replicas=5, hedging=HEDGED)
    request = world.arrives("a", blocks=(11, 12))

    def holders() -> set[str]:
        return {replica.id for replica in world.fleet.knowledge.held(request.view)}

    assert holders() == {"r0"}, "it is promised at once"
    happen(world, "r0 resets a")
    assert holders() == {"r1"}
    happen(world, "1s passes")
    assert holders() == {"r1", "r2"}
    happen(world, "r2 shows a")
    assert holders() == {"r2"}
    happen(world, "a leaves")
    assert holders() == {"r2"}
    for name, event in (("b", "r0 400s b"), ("c", "c leaves")):
        request = world.arrives(name, blocks=(21, 22))
        assert holders() == {"r0"}
        happen(world, event)
        assert holders() == set()
    world.check_empty()


def test_a_reload_of_the_queue_lets_waiting_requests_go() -> None:
    world = World(1, queue=GATED)
    play(world, "a arrives -> send a to r0")
    play(world, "b arrives -> queue b")
    assert world.queue is not None
    world.said.clear()
    world.queue.adopt(QUEUED)
    world.time.turn()
    assert world.said == ["grant b", "send b to r0"]
    play(world, "a leaves -> drop a at r0; end a: client_gone")
    play(world, "b leaves -> drop b at r0; end b: client_gone")
    world.check_empty()


def test_a_retry_is_its_tickets_at_once() -> None:
    world = World(2, queue=PREEMPTS)
    play(world, "a arrives -> send a to r0")
    ticket = world.of("a").ticket
    assert ticket is not None
    play(world, "r0 resets a -> retry a to r1")
    assert ticket.place is world.replicas[1]
    play(world, "a leaves -> drop a at r1; end a: client_gone")
    world.check_empty()


def test_a_copy_is_not_its_tickets_before_it_shows_content() -> None:
    world = World(2, queue=PREEMPTS, hedging=HEDGED)
    play(world, "a arrives -> send a to r0")
    ticket = world.of("a").ticket
    assert ticket is not None
    play(world, "1s passes -> copy a to r1")
    assert ticket.place is world.replicas[0]
    play(world, "r1 shows a -> drop a at r0; show a from r1")
    assert ticket.place is world.replicas[1]
    play(world, "a leaves -> drop a at r1; end a: client_gone")
    assert ticket.place is None
    world.check_empty()


def test_a_request_is_alone_where_no_other_one_waits() -> None:
    world = World(1)
    for name in "abc":
        world.arrives(name)
        if name == "b":
            for other in "ab":
                happen(world, f"r0 shows {other}")
    attempts = [world.of(name).driver.live[0] for name in "abc"]
    assert [attempt.is_alone for attempt in attempts] == [True, False, True]


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
def test_requests_of_the_largest_flow_give_way_where_memory_is_short(
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


def test_a_continuation_teaches_the_hedger_nothing() -> None:
    """It prefills what it would not have been asked for, and was not announced to the hedger."""
    world = World(2, continuation=CONTINUED, hedging=HEDGED)
    play(world, "a arrives continued -> send a to r0")
    ((_, _, learned),) = world.hedger.plans()
    happen(world, "0.5s passes")
    play(world, "r0 shows a -> show a from r0")
    answers = learned.fit.answers
    assert answers > 0
    play(world, "r0 resets a -> continue a to r1")
    play(world, "r1 shows a -> show a from r1")
    assert learned.fit.answers == answers
    play(world, "r1 ends a -> release a at r1; end a: ok")
    world.check_empty()
