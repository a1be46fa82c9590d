"""The request driver's actions, event by event: retries, deadlines, broken streams.

The tables are explained in `driver_tables.py`. Copies and the queue have their own test files.
"""

from typing import Any

import pytest

from router.config.model import (
    Classes,
    ClassTimeouts,
    Health,
    Hedging,
    HighClass,
    Retry,
    Timeouts,
)
from router.core.errors import Reason
from router.dispatch.driver.reports import refusal_shown
from router.dispatch.driver.retries import went_without_priority
from router.fleet.error_answers import kind_of
from tests.dispatch.driven import Driven, World
from tests.dispatch.driver.driver_tables import (
    HEDGED,
    NO_RETRY,
    QUEUED,
    TIMES,
    happen,
    play,
    run,
    stories,
)

# -- errors that another replica may contradict ----------------------------------------------------

COMPARED = stories(
    """
    another replica answers
        a arrives         -> send a to r0
        r0 says-401-to a  -> put a aside: replica_refused of r0; retry a to r1
        r1 ends a         -> show a from r1; release a at r1; end a: ok
    another replica gives the same error, and the client gets the first one
        a arrives         -> send a to r0
        r0 says-401-to a  -> put a aside: replica_refused of r0; retry a to r1
        r1 says-401-to a  -> put a aside: replica_refused of r1; tell a: replica_refused of r0
    another replica gives another error, and the request reaches no third one
        a arrives         -> send a to r0
        r0 says-401-to a  -> put a aside: replica_refused of r0; retry a to r1
        r1 says-500-to a  -> put a aside: server_error of r1; tell a: replica_refused of r0
    another replica loses the request, and the client gets the error
        a arrives         -> send a to r0
        r0 says-401-to a  -> put a aside: replica_refused of r0; retry a to r1
        r1 resets a       -> tell a: replica_refused of r0
    another replica is unreachable, and the client gets the error at once [2 replicas, a queue]
        a arrives         -> send a to r0
        r0 says-401-to a  -> put a aside: replica_refused of r0; retry a to r1
        r1 refuses a      -> tell a: replica_refused of r0
    another replica goes down, and the client gets the error
        a arrives         -> send a to r0
        r0 says-401-to a  -> put a aside: replica_refused of r0; retry a to r1
        r1 goes-down      -> nothing
        60s passes        -> drop a at r1; tell a: replica_refused of r0
    the client leaves during the comparison
        a arrives         -> send a to r0
        r0 says-401-to a  -> put a aside: replica_refused of r0; retry a to r1
        a leaves          -> drop a at r1; end a: client_gone
    the first 400 is the client's
        a arrives         -> send a to r0
        r0 says-400-to a  -> release a at r0; end a: replica_refused
    a request that crashed one replica and failed at another reaches no third one [pauses]
        a arrives         -> send a to r0
        r0 resets a       -> nothing
        0.3s passes       -> retry a to r1
        r1 says-500-to a  -> release a at r1; end a: server_error
    a request that may have been stored is not repeated after a 500
        a arrives once    -> send a to r0
        r0 says-500-to a  -> release a at r0; end a: server_error
    a request that may be stored is repeated after a 401, which stores nothing
        a arrives once    -> send a to r0
        r0 says-401-to a  -> put a aside: replica_refused of r0; retry a to r1
        r1 ends a         -> show a from r1; release a at r1; end a: ok
    without a budget a 500 is the client's, and a 401 is repeated [no budget]
        a arrives         -> send a to r0
        r0 says-500-to a  -> put a aside: server_error of r0; tell a: server_error of r0
        b arrives         -> send b to r0
        r0 says-401-to b  -> put b aside: replica_refused of r0; retry b to r1
        r1 ends b         -> show b from r1; release b at r1; end b: ok
    a request whose body is gone is not repeated
        a arrives         -> send a to r0
        a forgets         -> nothing
        r0 says-401-to a  -> release a at r0; end a: replica_refused
    """,
    {"a queue": {"queue": QUEUED}},
)


@pytest.mark.parametrize(("table", "settings"), COMPARED)
def test_errors_are_compared(table: str, settings: dict[str, Any]) -> None:
    run(table, settings)


def test_an_error_that_two_replicas_give_is_confirmed_at_both() -> None:
    world = World(2)
    kind = kind_of(401)
    errors = [replica.errors for replica in world.replicas]
    patience = [each._patience[kind] for each in errors]
    for row in ("a arrives", "r0 says-401-to a", "r1 says-401-to a"):
        happen(world, row)
    for each, before in zip(errors, patience, strict=True):
        assert each._row[kind] == 0.0
        assert each._patience[kind] > before


# -- one attempt after another --------------------------------------------------------------------

RETRIES = stories(
    """
    all is well
        a arrives     -> send a to r0
        r0 accepts a  -> nothing
        r0 shows a    -> show a from r0
        r0 shows a    -> nothing
        r0 ends a     -> release a at r0; end a: ok
    a refused connect is tried elsewhere
        a arrives     -> send a to r0
        r0 refuses a  -> retry a to r1
        r1 ends a     -> show a from r1; release a at r1; end a: ok
    a refused connect costs no budget and is not one of the attempts [4 replicas, no budget]
        a arrives     -> send a to r0
        r0 refuses a  -> retry a to r1
        r1 refuses a  -> retry a to r2
        r2 refuses a  -> retry a to r3
        r3 refuses a  -> answer a: connect_failed
    a replica that refuses before the call returns
        r0 refuses-all  -> nothing
        r1 refuses-all  -> nothing
        a arrives       -> send a to r0; retry a to r1; retry a to r2
        r2 ends a       -> show a from r2; release a at r2; end a: ok
    a reset before content is tried elsewhere, once
        a arrives    -> send a to r0
        r0 resets a  -> retry a to r1
        r1 resets a  -> answer a: replica_reset
    a reset after a refused connect counts as the first [4 replicas]
        a arrives     -> send a to r0
        r0 refuses a  -> retry a to r1
        r1 resets a   -> retry a to r2
        r2 resets a   -> answer a: replica_reset
    a reset that may not be repeated is answered
        a arrives once  -> send a to r0
        r0 resets a     -> answer a: replica_reset
    a reset of a request that is not kept is answered
        a arrives    -> send a to r0
        a forgets    -> nothing
        r0 resets a  -> answer a: replica_reset
    a reset while the router closes is answered
        a arrives        -> send a to r0
        the-router closes -> nothing
        r0 resets a      -> answer a: replica_reset
    a reset of a pinned request is answered
        a arrives r1  -> send a to r1
        r1 resets a   -> answer a: replica_reset
    a stale connection is tried again at the same replica
        a arrives           -> send a to r0
        r0 was-stale-for a  -> retry a to r0 on a new connection
        r0 resets a         -> retry a to r1
        r1 resets a         -> answer a: replica_reset
    a process that died with the request counts as one that lost it
        a arrives           -> send a to r0
        r0 was-stale-for a  -> retry a to r0 on a new connection
        r0 refuses a        -> retry a to r1
        r1 resets a         -> answer a: replica_reset
    ... and the second one that loses it is the last
        a arrives           -> send a to r0
        r0 resets a         -> retry a to r1
        r1 was-stale-for a  -> retry a to r1 on a new connection
        r1 refuses a        -> answer a: replica_reset
    a pinned request may have had a stale connection
        a arrives r1        -> send a to r1
        r1 was-stale-for a  -> retry a to r1 on a new connection
        r1 was-stale-for a  -> answer a: replica_reset
    a stale connection to a replica that was removed is tried elsewhere
        a arrives           -> send a to r0
        r0 leaves           -> nothing
        r0 was-stale-for a  -> retry a to r1
        r1 ends a           -> show a from r1; release a at r1; end a: ok
    what is no response is answered
        a arrives     -> send a to r0
        r0 garbles a  -> answer a: bad_response
    a 400 is passed on
        a arrives  -> send a to r0
        r0 400s a  -> release a at r0; end a: replica_refused
    a 500 is passed on
        a arrives  -> send a to r0
        r0 500s a  -> release a at r0; end a: server_error
    a 503 is tried elsewhere, and the last one allowed is passed on [4 replicas]
        a arrives  -> send a to r0
        r0 503s a  -> discard a at r0; retry a to r1
        r1 503s a  -> discard a at r1; retry a to r2
        r2 503s a  -> release a at r2; end a: replica_busy
    a refused connect is not one of the attempts that 503s use up [5 replicas]
        a arrives     -> send a to r0
        r0 503s a     -> discard a at r0; retry a to r1
        r1 refuses a  -> retry a to r2
        r2 503s a     -> discard a at r2; retry a to r3
        r3 503s a     -> release a at r3; end a: replica_busy
    a 503 is passed on where there is no other replica [1 replica]
        a arrives  -> send a to r0
        r0 503s a  -> release a at r0; end a: replica_busy
    a 503 is passed on where the request is not kept
        a arrives  -> send a to r0
        a forgets  -> nothing
        r0 503s a  -> release a at r0; end a: replica_busy
    a stream that begins with an error is tried elsewhere, once
        a arrives                   -> send a to r0
        r0 errs-in-the-stream-of a  -> discard a at r0; retry a to r1
        r1 errs-in-the-stream-of a  -> release a at r1; end a: stream_error
    a stream that begins with an error and may not be repeated is passed on
        a arrives once              -> send a to r0
        r0 errs-in-the-stream-of a  -> release a at r0; end a: stream_error
    a replica that knows no priority is asked again without [no budget]
        a arrives                  -> send a to r0
        r0 knows-no-priority-of a  -> release a at r0; retry a to r0
        r0 ends a                  -> show a from r0; release a at r0; end a: ok
    no budget: a reset is answered [no budget]
        a arrives    -> send a to r0
        r0 resets a  -> answer a: replica_reset
    no budget: a 503 is passed on when no replica has capacity [2 replicas, no budget]
        a arrives  -> send a to r0
        b arrives  -> send b to r0
        r0 503s a  -> discard a at r0; retry a to r1
        r1 503s a  -> release a at r1; end a: replica_busy
        r0 503s b  -> release b at r0; end b: replica_busy
    no budget: a replica that is down costs none [no budget]
        a arrives     -> send a to r0
        r0 goes-down  -> nothing
        r0 resets a   -> retry a to r1
        r1 ends a     -> show a from r1; release a at r1; end a: ok
    the budget is a request's until the request ends [a budget of 1]
        a arrives    -> send a to r0
        b arrives    -> send b to r0
        r0 resets a  -> retry a to r1
        r0 resets b  -> answer b: replica_reset
        r1 503s a    -> discard a at r1; retry a to r2
        r2 ends a    -> show a from r2; release a at r2; end a: ok
        c arrives    -> send c to r0
        r0 resets c  -> retry c to r2
        r2 ends c    -> show c from r2; release c at r2; end c: ok
    a retry on the budget comes after a pause [pauses]
        a arrives      -> send a to r0
        r0 503s a      -> discard a at r0
        0.25s passes   -> retry a to r1
        r1 resets a    -> nothing
        0.25s passes   -> retry a to r2
        r2 ends a      -> show a from r2; release a at r2; end a: ok
    the client leaves in the pause [pauses]
        a arrives  -> send a to r0
        r0 503s a  -> discard a at r0
        a leaves   -> end a: client_gone
        1s passes  -> nothing
    the router closes in the pause [pauses]
        a arrives          -> send a to r0
        r0 503s a          -> discard a at r0
        the-router closes  -> nothing
        0.25s passes       -> answer a: replica_busy
    the other replica leaves in the pause [2 replicas, pauses]
        a arrives     -> send a to r0
        r0 503s a     -> discard a at r0
        r1 leaves     -> nothing
        0.25s passes  -> answer a: replica_busy
    ... and one that has just joined takes the request after its first probe [2 replicas, pauses]
        a arrives         -> send a to r0
        r0 503s a         -> discard a at r0
        r1 leaves         -> nothing
        r2 joins-untried  -> nothing
        0.25s passes      -> nothing
        r2 proves-good    -> retry a to r2
        2s passes         -> nothing
        r2 ends a         -> show a from r2; release a at r2; end a: ok
    ... or is not awaited for longer than two seconds [2 replicas, pauses]
        a arrives         -> send a to r0
        r0 503s a         -> discard a at r0
        r1 leaves         -> nothing
        r2 joins-untried  -> nothing
        0.25s passes      -> nothing
        1.5s passes       -> nothing
        0.5s passes       -> answer a: replica_busy
        r2 proves-good    -> nothing
    ... or is awaited until the client leaves [2 replicas, pauses]
        a arrives         -> send a to r0
        r0 503s a         -> discard a at r0
        r1 leaves         -> nothing
        r2 joins-untried  -> nothing
        0.25s passes      -> nothing
        a leaves          -> end a: client_gone
        r2 proves-good    -> nothing
        2s passes         -> nothing
    a refused connect at the last replica waits for a first probe, too [1 replica]
        a arrives         -> send a to r0
        r1 joins-untried  -> nothing
        r0 refuses a      -> nothing
        r1 proves-good    -> retry a to r1
        r1 ends a         -> show a from r1; release a at r1; end a: ok
    the other replica is full [2 replicas, 1 each]
        a arrives    -> send a to r0
        b arrives    -> send b to r1
        r0 resets a  -> answer a: replica_reset
        r1 ends b    -> show b from r1; release b at r1; end b: ok
    the other replica is full, but has room after the pause [2 replicas, 1 each, pauses]
        a arrives     -> send a to r0
        b arrives     -> send b to r1
        r0 resets a   -> nothing
        r1 ends b     -> show b from r1; release b at r1; end b: ok
        0.25s passes  -> retry a to r1
        r1 ends a     -> show a from r1; release a at r1; end a: ok
    the client leaves while connecting
        a arrives  -> send a to r0
        a leaves   -> drop a at r0; end a: client_gone
    the client leaves while streaming
        a arrives   -> send a to r0
        r0 shows a  -> show a from r0
        a leaves    -> drop a at r0; end a: client_gone
    a replica that is removed finishes what it has
        a arrives   -> send a to r0
        r0 leaves   -> nothing
        b arrives   -> send b to r1
        r0 shows a  -> show a from r0
        r0 ends a   -> release a at r0; end a: ok
        r1 ends b   -> show b from r1; release b at r1; end b: ok
    a replica that was removed fails
        a arrives    -> send a to r0
        r0 leaves    -> nothing
        r0 resets a  -> retry a to r1
        r1 leaves    -> nothing
        r1 503s a    -> discard a at r1; retry a to r2
        r2 ends a    -> show a from r2; release a at r2; end a: ok
    another replica with the same ID is another replica [1 replica]
        a arrives    -> send a to r0
        r0 leaves    -> nothing
        r0 joins     -> nothing
        r0 resets a  -> retry a to r0
        r0 ends a    -> show a from r0; release a at r0; end a: ok
    """,
    {"a budget of 1": {"retry": Retry(budget=0.0, budget_min=1, backoff_s=0.0)}},
)


@pytest.mark.parametrize(("table", "settings"), RETRIES)
def test_retries(table: str, settings: dict[str, Any]) -> None:
    run(table, settings)


def test_not_every_replica_of_a_dead_fleet_is_tried() -> None:
    world = World(replicas=12, retry=NO_RETRY)
    world.refusing = {f"r{number}" for number in range(12)}
    world.arrives("a")
    assert len(world.said) == 11
    assert world.said[0] == "send a to r0"
    assert world.said[-1] == "answer a: connect_failed"
    world.check_empty()


# -- time -----------------------------------------------------------------------------------------

WORDS = {
    "hurried": {"classes": Classes(high=HighClass(timeouts=ClassTimeouts(connect_s=0.5)))},
    "copies of high at once": {
        "hedging": Hedging(policy="fixed", options={"delay_s": 0.0}, budget=1.0)
    },
    "queue": {"queue": QUEUED},
    "3 s in total": {"timeouts": Timeouts(total_s=3.0)},
    "3.01 s in total": {"timeouts": Timeouts(total_s=3.01)},
}

DEADLINES = stories(
    """
    the first content of a stream is late
        a arrives     -> send a to r0
        r0 accepts a  -> nothing
        3.5s passes   -> nothing
        0.5s passes   -> drop a at r0; answer a: ttft_timeout
    a whole answer has more time
        a arrives whole  -> send a to r0
        7.5s passes      -> nothing
        0.5s passes      -> drop a at r0; answer a: whole_timeout
    a retry has its own time
        a arrives     -> send a to r0
        3.5s passes   -> nothing
        r0 refuses a  -> retry a to r1
        3.5s passes   -> nothing
        0.5s passes   -> drop a at r1; answer a: ttft_timeout
    a copy has its own time [copies]
        a arrives    -> send a to r0
        1s passes    -> copy a to r1
        3s passes    -> drop a at r0
        0.5s passes  -> nothing
        0.5s passes  -> drop a at r1; answer a: ttft_timeout
    a copy may answer after the time of the first attempt [copies]
        a arrives    -> send a to r0
        1s passes    -> copy a to r1
        3s passes    -> drop a at r0
        0.5s passes  -> nothing
        r1 ends a    -> show a from r1; release a at r1; end a: ok
    content ends the time to the first content
        a arrives    -> send a to r0
        3.5s passes  -> nothing
        r0 shows a   -> show a from r0
        1.5s passes  -> nothing
        r0 shows a   -> nothing
        1.5s passes  -> nothing
        0.5s passes  -> drop a at r0; truncate a: token_gap_timeout
    a class may have less time to connect [hurried]
        a arrives high  -> send a to r0
        b arrives       -> send b to r0
        0.5s passes     -> drop a at r0; retry a to r1
        r1 accepts a    -> nothing
        0.5s passes     -> nothing
        r1 ends a       -> show a from r1; release a at r1; end a: ok
        r0 ends b       -> show b from r0; release b at r0; end b: ok
    two attempts are late to connect in one moment [hurried, copies of high at once]
        a arrives high  -> send a to r0; copy a to r1
        0.5s passes     -> drop a at r0; drop a at r1; retry a to r2
        0.5s passes     -> drop a at r2; answer a: connect_timeout
    a request takes too long: while its replica is silent [3 s in total]
        a arrives  -> send a to r0
        3s passes  -> drop a at r0; answer a: total_timeout
    ... while two are [3 s in total, copies]
        a arrives  -> send a to r0
        1s passes  -> copy a to r1
        2s passes  -> drop a at r0; drop a at r1; answer a: total_timeout
    ... while it streams [3 s in total]
        a arrives  -> send a to r0
        2s passes  -> nothing
        r0 shows a -> show a from r0
        1s passes  -> drop a at r0; truncate a: total_timeout
    ... in the pause before a retry [3.01 s in total, pauses]
        a arrives    -> send a to r0
        3s passes    -> nothing
        r0 503s a    -> discard a at r0
        0.01s passes -> answer a: total_timeout
        1s passes    -> nothing
    ... in the queue [1 replica, 1 each, queue, 3 s in total]
        a arrives  -> send a to r0
        1s passes  -> nothing
        b arrives  -> queue b
        2s passes  -> drop a at r0; answer a: total_timeout; grant b; send b to r0
        1s passes  -> drop b at r0; answer b: total_timeout
    """,
    WORDS,
)


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


@pytest.mark.parametrize(("attempts", "said"), [(2, "drop a at r0; retry a to r1"), (1, "nothing")])
def test_a_request_leaves_a_stalled_replica_within_the_limit_of_attempts(
    attempts: int, said: str
) -> None:
    world = World(
        2, health=Health(suspect_min_s=2.0), retry=Retry(attempts=attempts, backoff_s=0.0)
    )
    play(world, "a arrives -> send a to r0")
    play(world, "r0 accepts a -> nothing")
    play(world, "r0 goes-down -> nothing")
    play(world, f"60s passes -> {said}")
    world.of("a").leaves()
    world.check_empty()


def test_no_first_token_is_overdue_while_the_client_reads_nothing() -> None:
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
    health, deadlines = world.replicas[0].health, world.of("b").deadlines
    deadlines.paused(world.time.at, 60.0)
    play(world, "9s passes -> nothing")
    assert not health.is_suspect(world.time.at)
    deadlines.resumed(world.time.at)
    play(world, "1.5s passes -> nothing")
    assert not health.is_suspect(world.time.at)
    play(world, "0.5s passes -> nothing")
    assert health.is_suspect(world.time.at), "it was read for long enough"
    play(world, "b leaves -> drop b at r0; end b: client_gone")
    world.check_empty()


def test_a_wait_while_the_client_pauses_is_not_learned() -> None:
    """The content may have arrived long before the router read it."""
    world = World(hedging=HEDGED)
    replica = world.replicas[0]
    world.arrives("a", streamed=True, hedged=False)
    world.of("a").deadlines.paused(world.time.at, 60.0)
    world.time.passes(30.0)
    world.of("a").deadlines.resumed(world.time.at)
    world.of("a").whole(*world.of("a").driver.state.live)
    world.arrives("b", streamed=True, hedged=False)
    world.of("b").deadlines.paused(world.time.at, 60.0)
    world.time.passes(30.0)
    world.of("b").leaves()
    assert replica.ttft_s is None
    ((_, _, ttfts),) = world.hedger.times.entries()
    assert ttfts.answers == 0 and ttfts._ratios._counts == [0] * len(ttfts._ratios._counts)
    world.arrives("c", streamed=True, hedged=False)
    world.time.passes(1.0)
    world.of("c").whole(*world.of("c").driver.state.live)
    assert replica.ttft_s == 1.0 and ttfts.answers == 1
    world.check_empty()


def test_no_first_content_is_awaited_while_the_client_reads_nothing() -> None:
    world = World(timeouts=TIMES, hedging=HEDGED)
    play(world, "a arrives -> send a to r0")
    play(world, "1s passes -> copy a to r1")
    deadlines = world.of("a").deadlines
    deadlines.paused(world.time.at, 60.0)
    deadlines.resumed(world.time.at)
    assert [a.first_due - a.began for a in deadlines.state.live] == [4.0, 4.0], "that is later"
    deadlines.paused(world.time.at, 60.0)
    play(world, "9s passes -> nothing")
    deadlines.resumed(world.time.at)
    play(world, "1.5s passes -> nothing")
    play(world, "0.5s passes -> drop a at r0; drop a at r1; answer a: ttft_timeout")
    world.check_empty()


# -- the rest of a broken stream ------------------------------------------------------------------

BREAKS = stories(
    """
    a stream breaks and is truncated
        a arrives    -> send a to r0
        r0 shows a   -> show a from r0
        r0 resets a  -> truncate a: replica_reset
    a stream breaks and another replica goes on
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        r0 resets a          -> continue a to r1
        r1 shows a           -> show a from r1
        r1 ends a            -> release a at r1; end a: ok
    the next replica fails, and no third one is asked [2 replicas]
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        r0 resets a          -> continue a to r1
        r1 refuses a         -> truncate a: replica_reset
    the router closes
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        the-router closes    -> nothing
        r0 resets a          -> truncate a: replica_reset
    """
)


@pytest.mark.parametrize(("table", "settings"), BREAKS)
def test_broken_streams(table: str, settings: dict[str, Any]) -> None:
    run(table, {"timeouts": TIMES, **settings})


def test_retries_are_counted_by_their_cause() -> None:
    world = World(4, retry=Retry(backoff_s=0.0, budget=0.0, budget_min=1))
    rows = ("a arrives", "r0 refuses a", "r1 was-stale-for a", "r1 resets a", "r2 503s a")
    for row in rows:
        happen(world, row)
    causes = {Reason.CONNECT_FAILED: 1, Reason.REPLICA_RESET: 2, Reason.REPLICA_BUSY: 1}
    assert world.metrics.retries_by_cause == causes
    assert world.metrics.connections_stale == 1
    happen(world, "b arrives")
    happen(world, "r0 resets b")
    assert world.metrics.retries_by_cause == causes
    assert world.metrics.retry_budget_exhausted == 1
    happen(world, "a leaves")
    world.check_empty()


def test_a_request_that_waits_again_in_the_queue_is_counted_as_a_retry() -> None:
    world = World(1, queue=QUEUED)
    play(world, "a arrives -> send a to r0")
    play(world, "r0 refuses a -> queue a")
    assert world.of("a").deadlines.waits_since >= 0.0
    assert world.metrics.retries_by_cause == {Reason.CONNECT_FAILED: 1}


@pytest.mark.parametrize(
    ("body", "is_suspect"), [(b"the same", True), (b"another", False)], ids=["same", "another"]
)
def test_a_body_in_flight_at_two_deaths_is_suspect(
    monkeypatch: pytest.MonkeyPatch, body: bytes, is_suspect: bool
) -> None:
    bodies = {"a": b"the same", "b": body}
    monkeypatch.setattr(Driven, "digest", lambda request: bodies[request.name])
    world = World(3)
    world.fleet.suspects.adopt(60.0)
    request = world.arrives("b")
    (attempt,) = request.driver.state.live
    for row in ("a arrives", "r0 accepts a", "r0 resets a", "r1 accepts a", "r1 resets a"):
        happen(world, row)
    for replica in world.replicas[:2]:
        world.fleet.died(replica)
    assert not world.fleet.suspects.is_empty
    assert request.driver.is_suspect(world.time.at) is is_suspect
    assert request.driver.barred(attempt) == (Reason.SUSPECT_REQUEST if is_suspect else None)


def test_the_loss_of_a_request_at_two_replicas_is_answered_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The deaths of the engines are noticed meanwhile, and a repetition is refused."""
    monkeypatch.setattr(Driven, "digest", lambda request: b"a body")
    world = World(2, most=1, queue=QUEUED)
    world.fleet.suspects.adopt(60.0)
    for row in ("b arrives", "c arrives", "a arrives", "r0 ends b", "r1 ends c"):
        happen(world, row)
    ticket = world.of("a").ticket
    assert ticket is not None and ticket.run is not None
    play(world, "r0 accepts a -> nothing")
    play(world, "r0 resets a -> retry a to r1")
    play(world, "r1 accepts a -> nothing")
    play(world, "r1 resets a -> nothing")
    assert ticket.run.is_away, "it holds no capacity"
    play(world, "0.09s passes -> nothing")
    play(world, "0.02s passes -> answer a: replica_reset")
    world.check_empty()


@pytest.mark.parametrize("starts_at", [0.0, 1000.0])
def test_no_status_is_sent_early_while_no_replica_was_reached(starts_at: float) -> None:
    world = World(1, queue=QUEUED, starts_at=starts_at)
    driver = world.arrives("a").driver
    assert driver.may_commit_early(False)
    play(world, "r0 refuses a -> queue a")
    assert not driver.may_commit_early(False)


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


def test_a_request_is_alone_where_no_other_one_waits() -> None:
    world = World(1)
    for name in "abc":
        world.arrives(name)
        if name == "b":
            for other in "ab":
                happen(world, f"r0 shows {other}")
    attempts = [world.of(name).driver.state.live[0] for name in "abc"]
    assert [attempt.is_alone for attempt in attempts] == [True, False, True]


@pytest.mark.parametrize(("works", "failures"), [(False, 1), (True, 0)], ids=["hangs", "works"])
def test_a_timeout_is_blamed_on_a_replica_that_shows_no_work(works: bool, failures: int) -> None:
    world = World(1, timeouts=TIMES)
    play(world, "a arrives -> send a to r0")
    play(world, "3.9s passes -> nothing")
    if works:
        world.replicas[0].progress.at = world.time.at
    play(world, "0.1s passes -> drop a at r0; answer a: ttft_timeout")
    assert world.replicas[0].health.failures == failures
    world.check_empty()


def test_after_an_error_has_begun_no_first_token_is_overdue() -> None:
    """The client may read the body of the error for longer than a first token may take."""
    world = World(1)
    replica = world.replicas[0]
    play(world, "a arrives -> send a to r0")
    happen(world, "0.5s passes")  # The usual time to the first token is learned from this one.
    play(world, "r0 ends a -> show a from r0; release a at r0; end a: ok")
    request = world.arrives("b")
    (attempt,) = request.driver.state.live
    overdue_s = attempt.overdue_due - world.time.at
    assert (
        overdue_s
        == replica.overdue_after_s(replica.pending_tokens)
        < request.deadlines.times.token_gap_s
    )
    request.connects(attempt)
    assert request.driver.won(attempt, world.time.at)
    request.work.shown(replica, world.time.at)
    refusal_shown(request, world.context, attempt, world.time.at)
    world.time.passes(overdue_s)
    assert not attempt.is_overdue
    assert not replica.health.is_suspect(world.time.at)
    request.leaves()
    world.check_empty()


def test_that_a_replica_rejects_priorities_is_noted_once() -> None:
    """A later attempt of the same request must not repeat the note."""
    world = World(1, retry=NO_RETRY)
    play(world, "a arrives -> send a to r0")
    play(world, "r0 knows-no-priority-of a -> release a at r0; retry a to r0")
    driver, replica = world.of("a").driver, world.replicas[0]
    assert (driver.priority_rejected_by, replica.errors.refuses_priority) == (replica, False)
    went_without_priority(driver, replica)
    assert (driver.priority_rejected_by, replica.errors.refuses_priority) == (None, True)
    assert world.metrics.priority_refused == 1
    play(world, "a leaves -> drop a at r0; end a: client_gone")
    world.check_empty()


def test_the_hedger_does_not_learn_from_the_rest_of_a_stream() -> None:
    """Its prefill differs from the request's, and the hedger does not know it."""
    world = World(2, hedging=HEDGED)
    play(world, "a arrives continued -> send a to r0")
    ((_, _, learned),) = world.hedger.times.entries()
    happen(world, "0.5s passes")
    play(world, "r0 shows a -> show a from r0")
    answers = learned.answers
    assert answers > 0
    play(world, "r0 resets a -> continue a to r1")
    play(world, "r1 shows a -> show a from r1")
    assert learned.answers == answers
    play(world, "r1 ends a -> release a at r1; end a: ok")
    world.check_empty()
