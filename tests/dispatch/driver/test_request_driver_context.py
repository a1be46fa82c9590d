"""A request that is too long for a replica's context goes to replicas with a longer context.

Replica r0 has a context of 1,000 tokens, r1 one of 4,000, and so on in turn. A `long` request may
generate 2,000 tokens. The tables are explained in `driver_tables.py`.
"""

from typing import Any

import pytest

from router.config.load import parse
from router.config.model import Classes, ClassSettings, Queue
from router.fleet.context import ContextLengths
from router.fleet.names import NamedModel, Names
from tests.dispatch.driven import Driven, World
from tests.dispatch.driver.driver_tables import run, stories

LENGTHS = (1000, 4000)
QUEUES = pytest.mark.parametrize("queue", [Queue(enabled=False), Queue()], ids=["none", "queue"])
WORDS = {
    "all long": {"lengths": (4000,)},
    "brief": {"classes": Classes(normal=ClassSettings(absent_s=5.0))},
    "one unknown": {"lengths": (1000, None)},
    "queue": {"queue": Queue()},
    "two regions": {"lengths": (1000, 4000, 4000, 1000), "regions": ("eu", "us")},
}

STORIES = stories(
    """
    a copy [4 replicas, copies]
        q arrives long  -> send q to r1
        1s passes       -> copy q to r3
        q leaves        -> drop q at r1; drop q at r3; end q: client_gone
    a copy uses the lengths of now [3 replicas, all long, copies]
        q arrives long            -> send q to r0
        r1 has-a-context-of 1000  -> nothing
        1s passes                 -> copy q to r2
        q leaves                  -> drop q at r0; drop q at r2; end q: client_gone
    a retry uses the lengths of now [3 replicas, all long]
        q arrives long            -> send q to r0
        r1 has-a-context-of 1000  -> nothing
        r0 resets q               -> retry q to r2
        q leaves                  -> drop q at r2; end q: client_gone
    it waits until a longer replica is free, and delays no other [queue, 1 each]
        first arrives long   -> send first to r1
        second arrives long  -> queue second
        short arrives        -> send short to r0
        r0 ends short        -> show short from r0; release short at r0; end short: ok
        r1 ends first        -> show first from r1; release first at r1; end first: ok; \
grant second; send second to r1
        r1 ends second       -> show second from r1; release second at r1; end second: ok
    it waits for a longer replica that is down [queue, brief]
        100s passes     -> nothing
        r1 goes-down    -> nothing
        q arrives long  -> queue q
        1s passes       -> nothing
        5s passes       -> answer q: no_replica
    without a queue it is refused while the longer replica is down
        r1 goes-down    -> nothing
        q arrives long  -> answer q: no_replica
    a waiting request gets the limit of a fleet that changed [all long, queue, 1 each]
        first arrives long        -> send first to r0
        second arrives long       -> send second to r1
        third arrives long        -> queue third
        r0 has-a-context-of 1000  -> nothing
        r0 ends first             -> show first from r0; release first at r0; end first: ok
        r1 ends second            -> show second from r1; release second at r1; \
end second: ok; grant third; send third to r1
        r1 ends third             -> show third from r1; release third at r1; end third: ok
    a pinned request goes where it must [queue]
        q arrives long r0  -> send q to r0
        q leaves           -> drop q at r0; end q: client_gone
    """,
    WORDS,
)
WITH_ANY_QUEUE = stories(
    """
    the first attempt, the retry and the last error [4 replicas]
        q arrives long  -> send q to r1
        r1 resets q     -> retry q to r3
        r3 resets q     -> answer q: replica_reset
        short arrives   -> send short to r0
        short leaves    -> drop short at r0; end short: client_gone
    if no context is long enough an engine answers
        q arrives too-long  -> send q to r0
        q leaves            -> drop q at r0; end q: client_gone
    an unknown context may be long enough [one unknown]
        q arrives too-long  -> send q to r1
        q leaves            -> drop q at r1; end q: client_gone
    the regions and the context both apply [4 replicas, two regions]
        q arrives long eu  -> send q to r2
        q may-use us       -> nothing
        r2 resets q        -> retry q to r1
        q leaves           -> drop q at r1; end q: client_gone
    """,
    WORDS,
)


@pytest.mark.parametrize(("table", "settings"), STORIES)
def test_contexts(table: str, settings: dict[str, Any]) -> None:
    run(table, {"replicas": 2, "lengths": LENGTHS, **settings})


@pytest.mark.parametrize(("table", "settings"), WITH_ANY_QUEUE)
@QUEUES
def test_contexts_with_any_queue(table: str, settings: dict[str, Any], queue: Queue) -> None:
    run(table, {"replicas": 2, "lengths": LENGTHS, "queue": queue, **settings})


def long(world: World, name: str = "q", **fields: Any) -> Driven:
    return world.arrives(name, output_limit=2000, **fields)


def sent(world: World) -> list[str]:
    """The requests that were sent or refused."""
    return [line for line in world.said if line.startswith(("send ", "answer "))]


def named(**route: Any) -> NamedModel | None:
    return Names(parse("", {"models": {"m": route}}, serves=False)).find("m")


def test_a_new_replica_frees_requests_that_wait() -> None:
    world = World(2, lengths=LENGTHS, queue=Queue(), most=1)
    long(world, "first")
    long(world, "second")
    world.lengths = (8000,)
    world.joins("r2")
    world.time.turn()
    assert world.said[-1] == "send second to r2"


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
    r0.listed.lengths, r1.listed.lengths = (
        ContextLengths({"c": 8000}, 1000),
        ContextLengths({}, 4000),
    )
    world.fleet.rebuild()
    long(world, "again", named=named(fallbacks=["c"]))
    assert world.said[-1] == "fallback again to r0"
    assert world.of("again").view.allowed is None
