"""The request driver's actions, event by event, when two attempts of a request race."""

from typing import Any

import pytest

from router.config.model import (
    Hedging,
)
from tests.dispatch.driven import TOKENS, World
from tests.dispatch.driver.driver_tables import (
    HEDGED,
    happen,
    play,
    run,
    stories,
)
from tests.dispatch.hedging.world import work_much

# -- copies ---------------------------------------------------------------------------------------

AT_ONCE = Hedging(policy="fixed", options={"delay_s": 0.0}, classes=("normal",), budget=1.0)

HEDGES = stories(
    """
    the copy is first
        a arrives     -> send a to r0
        r0 accepts a  -> nothing
        0.5s passes   -> nothing
        0.5s passes   -> copy a to r1
        r1 accepts a  -> nothing
        r1 shows a    -> drop a at r0; show a from r1
        r1 ends a     -> release a at r1; end a: ok
    the first attempt is first
        a arrives   -> send a to r0
        1s passes   -> copy a to r1
        r0 shows a  -> drop a at r1; show a from r0
        r0 ends a   -> release a at r0; end a: ok
    an answer in time needs no copy
        a arrives   -> send a to r0
        r0 shows a  -> show a from r0
        1s passes   -> nothing
        r0 ends a   -> release a at r0; end a: ok
    a copy may go at once [copies at once]
        a arrives  -> send a to r0; copy a to r1
        r1 ends a  -> drop a at r0; show a from r1; release a at r1; end a: ok
    a retry that hangs gets a copy
        a arrives     -> send a to r0
        0.75s passes  -> nothing
        r0 refuses a  -> retry a to r1
        0.75s passes  -> nothing
        0.25s passes  -> copy a to r2
        r2 ends a     -> drop a at r1; show a from r2; release a at r2; end a: ok
    a copy goes where no attempt has failed [2 replicas]
        a arrives     -> send a to r0
        r0 refuses a  -> retry a to r1
        9s passes     -> nothing
        r1 ends a     -> show a from r1; release a at r1; end a: ok
    one copy is enough [5 replicas]
        a arrives     -> send a to r0
        1s passes     -> copy a to r1
        r1 refuses a  -> nothing
        2s passes     -> nothing
        r0 resets a   -> retry a to r2
        2s passes     -> nothing
        r2 ends a     -> show a from r2; release a at r2; end a: ok
    the first attempt fails and its copy goes on
        a arrives    -> send a to r0
        1s passes    -> copy a to r1
        r0 resets a  -> nothing
        9s passes    -> nothing
        r1 ends a    -> show a from r1; release a at r1; end a: ok
    both are lost: there is no third
        a arrives    -> send a to r0
        1s passes    -> copy a to r1
        r0 resets a  -> nothing
        r1 resets a  -> answer a: replica_reset
    both fail: the first attempt's failure is told [2 replicas]
        a arrives     -> send a to r0
        1s passes     -> copy a to r1
        r0 garbles a  -> nothing
        r1 refuses a  -> answer a: bad_response
    both fail, and the first one reached no replica: the copy's failure is told
        a arrives     -> send a to r0
        1s passes     -> copy a to r1
        r0 refuses a  -> nothing
        r1 garbles a  -> answer a: bad_response
    a copy that refuses at once [copies at once]
        r1 refuses-all  -> nothing
        a arrives       -> send a to r0; copy a to r1
        r0 ends a       -> show a from r0; release a at r0; end a: ok
    a first attempt that refuses at once has its copy as the retry has it
        r0 refuses-all  -> nothing
        a arrives       -> send a to r0; retry a to r1
        0.5s passes     -> nothing
        0.5s passes     -> copy a to r2
        r2 ends a       -> drop a at r1; show a from r2; release a at r2; end a: ok
    no alarm is set for a request that ended while it was sent [2 replicas]
        r0 refuses-all  -> nothing
        r1 refuses-all  -> nothing
        a arrives       -> send a to r0; retry a to r1; answer a: connect_failed
    a 503 is kept while the copy lives, and forgotten when the copy answers
        a arrives  -> send a to r0
        1s passes  -> copy a to r1
        r0 503s a  -> put a aside: replica_busy of r0
        r1 ends a  -> show a from r1; release a at r1; end a: ok
    a 503 is told when the copy fails
        a arrives    -> send a to r0
        1s passes    -> copy a to r1
        r0 503s a    -> put a aside: replica_busy of r0
        r1 resets a  -> tell a: replica_busy of r0
    a 400 of the copy is kept while the first attempt lives
        a arrives    -> send a to r0
        1s passes    -> copy a to r1
        r1 400s a    -> put a aside: replica_refused of r1
        r0 resets a  -> tell a: replica_refused of r1
    of two errors the first attempt's is told
        a arrives  -> send a to r0
        1s passes  -> copy a to r1
        r1 400s a  -> put a aside: replica_refused of r1
        r0 500s a  -> put a aside: server_error of r0; tell a: server_error of r0
    ... whichever came first
        a arrives  -> send a to r0
        1s passes  -> copy a to r1
        r0 400s a  -> put a aside: replica_refused of r0
        r1 500s a  -> put a aside: server_error of r1; tell a: replica_refused of r0
    two 503s are no answer while a third replica may have room
        a arrives  -> send a to r0
        1s passes  -> copy a to r1
        r0 503s a  -> put a aside: replica_busy of r0
        r1 503s a  -> discard a at r1; retry a to r2
        r2 ends a  -> show a from r2; release a at r2; end a: ok
    ... and the first one is told when the third replica fails
        a arrives    -> send a to r0
        1s passes    -> copy a to r1
        r0 503s a    -> put a aside: replica_busy of r0
        r1 503s a    -> discard a at r1; retry a to r2
        r2 resets a  -> tell a: replica_busy of r0
    ... or has left before it was asked [pauses]
        a arrives     -> send a to r0
        1s passes     -> copy a to r1
        r0 503s a     -> put a aside: replica_busy of r0
        r1 503s a     -> discard a at r1
        r2 leaves     -> nothing
        0.25s passes  -> tell a: replica_busy of r0
    a refusal is the answer, even if the copy's replica has no room
        a arrives  -> send a to r0
        1s passes  -> copy a to r1
        r0 400s a  -> put a aside: replica_refused of r0
        r1 503s a  -> put a aside: replica_busy of r1; tell a: replica_refused of r0
    the client leaves while two race
        a arrives  -> send a to r0
        1s passes  -> copy a to r1
        a leaves   -> drop a at r0; drop a at r1; end a: client_gone
    the client leaves before the copy
        a arrives  -> send a to r0
        a leaves   -> drop a at r0; end a: client_gone
        1s passes  -> nothing
    a copy goes on although its replica is removed
        a arrives   -> send a to r0
        1s passes   -> copy a to r1
        r1 leaves   -> nothing
        r1 shows a  -> drop a at r0; show a from r1
        r1 ends a   -> release a at r1; end a: ok
    no copy goes to a replica that is down or has left [4 replicas]
        a arrives     -> send a to r0
        r1 leaves     -> nothing
        r2 goes-down  -> nothing
        1s passes     -> copy a to r3
        r3 ends a     -> drop a at r0; show a from r3; release a at r3; end a: ok
    a copy waits until a replica is free of waiting requests [2 replicas]
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
    no copy of a request that must not be hedged
        a arrives single  -> send a to r0
        9s passes         -> nothing
        r0 ends a         -> show a from r0; release a at r0; end a: ok
    no copy of a request that is not kept
        a arrives  -> send a to r0
        a forgets  -> nothing
        9s passes  -> nothing
        r0 ends a  -> show a from r0; release a at r0; end a: ok
    no copy of a pinned request
        a arrives r1  -> send a to r1
        9s passes     -> nothing
        r1 ends a     -> show a from r1; release a at r1; end a: ok
    no copy while the router closes
        a arrives          -> send a to r0
        the-router closes  -> nothing
        9s passes          -> nothing
        r0 ends a          -> show a from r0; release a at r0; end a: ok
    a second stream has a copy although a priority was told in vain [1 replica]
        a arrives                  -> send a to r0
        r0 knows-no-priority-of a  -> release a at r0; retry a to r0
        1s passes                  -> nothing
        r0 ends a                  -> show a from r0; release a at r0; end a: ok
    no priority: a replica is not asked again while two race
        a arrives                  -> send a to r0
        1s passes                  -> copy a to r1
        r0 knows-no-priority-of a  -> put a aside: replica_refused of r0
        r1 ends a                  -> show a from r1; release a at r1; end a: ok
    """,
    {"copies at once": {"hedging": AT_ONCE}},
)


@pytest.mark.parametrize(("table", "settings"), HEDGES)
def test_hedges(table: str, settings: dict[str, Any]) -> None:
    run(table, {"hedging": HEDGED, **settings})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("see_work_of", "nothing"),
        ("attach", "drop a at r1"),
        ("open", "copy a to r1; drop a at r1"),
    ],
)
def test_a_copy_that_cannot_be_sent_does_not_end_its_request(call: str, said: str) -> None:
    world = World(3, hedging=HEDGED)
    found: list[Exception] = []
    world.context.log_defect = found.append
    world.broken = call
    play(world, f"a arrives -> send a to r0\n1s passes -> {said}")
    play(world, "9s passes -> nothing\nr0 ends a -> show a from r0; release a at r0; end a: ok")
    assert [str(err) for err in found] == [call]
    world.check_empty()


def test_a_replica_whose_copy_was_not_sent_may_get_the_retry() -> None:
    world = World(2, hedging=HEDGED)
    world.context.log_defect = lambda _: None
    world.broken = "attach"
    play(world, "a arrives -> send a to r0\n1s passes -> drop a at r1")
    play(world, "r0 resets a -> retry a to r1")
    play(world, "r1 ends a -> show a from r1; release a at r1; end a: ok")
    world.check_empty()


def test_a_copy_that_was_not_sent_is_not_why_its_request_fails() -> None:
    world = World(2, hedging=HEDGED)
    world.context.log_defect = lambda _: None
    world.broken = "attach"
    play(world, "a arrives -> send a to r0\n1s passes -> drop a at r1")
    world.goes_down("r1")
    play(world, "r0 refuses a -> answer a: connect_failed")
    world.check_empty()


@pytest.mark.parametrize("had_connection", [False, True])
@pytest.mark.parametrize("ends", ["r0 shows a", "a leaves", "r1 refuses a"])
def test_a_copy_that_never_had_a_connection_is_refunded(had_connection: bool, ends: str) -> None:
    world = World(hedging=HEDGED)
    for replica in world.replicas:
        work_much(world.hedger, replica, world.time.now())
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
