"""Requests end in the simulator as they end in the proxy.

Each scenario runs twice: in the proxy between real sockets, and in the simulator. Every request
must have the same reason, the same replica and the same attempts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, NamedTuple

import pytest

from router.config.model import (
    BatchClass,
    Classes,
    Health,
    Hedging,
    Preemption,
    Queue,
    QueueGates,
)
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import Fault
from router.lab.simulator.simulation import simulate
from router.lab.simulator.traffic import Arrival
from tests.addons.needed import needs
from tests.harness.behaviours import (
    chat_either,
    hang,
    json_ok,
    sse_tokens,
    stream_then_hang,
    stream_then_rst,
    until_closed,
)
from tests.harness.messages import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    chat,
    chunk,
    json_response,
    role,
    token,
)
from tests.harness.queueing import of_each
from tests.harness.replica import Behaviour, ReplicaConnection, eventually, rest
from tests.harness.running import Line, Router, running, scenario
from tests.lab.simulator.worlds import Kept, Script, world


class End(NamedTuple):
    """How a request ended."""

    reason: str
    replica: str  # whose answer the client got, or else of the last attempt
    attempts: int
    has_waited: bool  # in the queue
    is_hedged: bool
    copy_won: bool


def logged(line: Line) -> End:
    """The end of a request in the proxy, from its access log."""
    tried = line["tried"]
    return End(
        line["reason"],
        line.get("replica") or (tried[-1][0] if tried else ""),
        len(tried),
        line.get("queue_ms") is not None or not tried,
        any(kind == "hedge" for _, kind, _, _ in tried),
        [kind for _, kind, reason, _ in tried if reason == "ok"] == ["hedge"],
    )


def simulated(outcome: Outcome) -> End:
    return End(
        outcome.reason.value,
        outcome.replica,
        outcome.attempts,
        outcome.queued_s > 0.0 or not outcome.attempts,
        outcome.hedged,
        outcome.hedge_won,
    )


async def refuses(connection: ReplicaConnection) -> None:
    while await connection.recv_request():
        await connection.send(json_response({"error": {"message": "no"}}, 400))


def reset_at_once(*events: bytes) -> Behaviour:
    go = asyncio.Event()
    go.set()
    return stream_then_rst(go, *events)


def dies(at: float, replica: int = 0) -> Fault:
    return Fault(at=at, replica=replica, kind="kill", until=1000.0)


def hangs(at: float) -> Fault:
    return Fault(at=at, replica=0, kind="freeze", until=1000.0)


# In the simulator the first prefill ends at 0.111 s, and the second token comes 20 ms later.
PREFILLING, DECODING = 0.05, 0.115
SUSPICIOUS: dict[str, Any] = {"suspect_min_s": 0.1, "suspect_factor": 1.0}


@dataclass(frozen=True, kw_only=True)
class Story:
    # The proxy's two replicas; None: a replica that can no longer be reached.
    replicas: Callable[[], tuple[Behaviour | None, Behaviour | None]]
    faults: tuple[Fault, ...] = ()
    arrivals: tuple[Arrival, ...] = (Arrival(0, 0.01, 100, 3),)
    timeouts: dict[str, float] = field(default_factory=dict)
    hedging: Hedging = field(default_factory=Hedging)
    queue: Queue = field(default_factory=lambda: Queue(enabled=False))
    classes: Classes = field(default_factory=Classes)
    health: dict[str, Any] = field(default_factory=lambda: SUSPICIOUS)
    together: bool = False  # each request is sent when the router has the previous one


# -- two copies -----------------------------------------------------------------------------------

# In the simulator the first token of the long prompt comes at 0.421 s.
URGENT = Arrival(0, 0.01, 400, 3, priority="high")
HEDGED = Hedging(policy="fixed", options={"delay_s": 0.15}, budget=1.0)
OFF = Hedging(policy="off")
Pair = tuple[Behaviour | None, Behaviour | None]


async def streams(connection: ReplicaConnection) -> None:
    tokens = [chunk(token(f"t{number}")) for number in range(3)]
    await connection.send(SSE_HEAD, chunk(role()), *tokens, chunk(DONE), LAST_CHUNK)
    await until_closed(connection)


STORIES = {
    "three in turn": Story(
        replicas=lambda: (chat_either, chat_either),
        arrivals=(
            Arrival(0, 0.0, 100, 1),
            Arrival(1, 1.0, 100, 3, stream=False),
            Arrival(2, 2.0, 100, 1),
        ),
    ),
    "refused": Story(
        replicas=lambda: (refuses, refuses),
        arrivals=(Arrival(0, 0.0, 100_000, 3),),
    ),
    "not to be reached, then elsewhere": Story(
        replicas=lambda: (None, sse_tokens(3)), faults=(dies(0.0),)
    ),
    "lost before content, then elsewhere": Story(
        replicas=lambda: (reset_at_once(role()), sse_tokens(3)), faults=(dies(PREFILLING),)
    ),
    "lost after content": Story(
        replicas=lambda: (reset_at_once(role(), token("a")), sse_tokens(3)),
        faults=(dies(DECODING + 0.01),),
    ),
    "no first token": Story(
        replicas=lambda: (hang, sse_tokens(3)),
        faults=(hangs(PREFILLING),),
        timeouts={"first_token_s": 0.3},
    ),
    "no second token": Story(
        replicas=lambda: (stream_then_hang(role(), token("a")), sse_tokens(3)),
        faults=(hangs(DECODING + 0.01),),
        timeouts={"token_gap_s": 0.3},
    ),
    "a copy is first": Story(
        replicas=lambda: (hang, sse_tokens(3)),
        faults=(hangs(PREFILLING),),
        arrivals=(URGENT,),
        hedging=HEDGED,
    ),
    "its client leaves in the middle": Story(
        replicas=lambda: (stream_then_hang(role(), token("a")), sse_tokens(3)),
        faults=(hangs(DECODING + 0.01),),
        arrivals=(Arrival(0, 0.01, 100, 3, leaves_s=0.3),),
    ),
}


# -- the queue ------------------------------------------------------------------------------------

ONE_WAITS = QueueGates(waiting=1, prefill_tokens=0)
PAUSE_S = 0.05  # seconds between the action of one replica and the next action of another
Part = Callable[[ReplicaConnection], Awaitable[None]]


def in_turn(*parts: Part) -> Behaviour:
    """A replica with one action per connection, in this order."""
    left = iter(parts)

    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await next(left)(connection)

    return behave


class Cue:
    """An event for which other replicas wait."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def give(self) -> None:
        await rest(PAUSE_S)  # until then, the bytes sent before are read
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()


async def begin(connection: ReplicaConnection) -> None:
    await connection.send(SSE_HEAD, chunk(role()), chunk(token("t0")))


async def end(connection: ReplicaConnection) -> None:
    tokens = [chunk(token(f"t{number}")) for number in range(1, 3)]
    await connection.send(*tokens, chunk(DONE), LAST_CHUNK)


def next_at_a_first_token(after_s: float = 0.3) -> Pair:
    """The first request gets its first token when all others have arrived. The request that waits
    for this token is sent to the same replica, and gets its own first token before the first
    request ends.
    """
    shown, ended = Cue(), Cue()

    async def first(connection: ReplicaConnection) -> None:
        await asyncio.sleep(after_s)
        await begin(connection)
        await shown.wait()
        await end(connection)
        await ended.give()
        await until_closed(connection)

    async def waited(connection: ReplicaConnection) -> None:
        await begin(connection)
        await shown.give()
        await ended.wait()
        await end(connection)
        await last.give()
        await until_closed(connection)

    async def other(connection: ReplicaConnection) -> None:
        await last.wait()
        await streams(connection)

    last = Cue()
    return in_turn(first, waited), in_turn(other)


def one_gives_way() -> Pair:
    """The second replica's request is preempted for an urgent one. It continues at the first
    replica, once the request of that replica has begun.
    """
    urgent_came, back, answered, shown = Cue(), Cue(), Cue(), Cue()

    async def first(connection: ReplicaConnection) -> None:
        await urgent_came.wait()
        await begin(connection)
        await shown.wait()
        await end(connection)
        await ended.give()
        await until_closed(connection)

    async def again(connection: ReplicaConnection) -> None:
        await back.give()
        await answered.wait()
        await begin(connection)
        await shown.give()
        await ended.wait()
        await end(connection)
        await until_closed(connection)

    async def urgent(connection: ReplicaConnection) -> None:
        await urgent_came.give()
        await back.wait()
        await begin(connection)
        await end(connection)
        await answered.give()
        await until_closed(connection)

    ended = Cue()
    return in_turn(first, again), in_turn(until_closed, urgent)


def queued(**rules: Any) -> Queue:
    return Queue(**{"enabled": True, "policy": "fifo", "gates": ONE_WAITS, **rules})


# Pauses between connections that fail are not the same on both clocks.
NO_PAUSES = of_each(absent_s=0.0)

# The first request gets its first token at 0.122 s, or later if its prompt is longer.
QUEUE_STORIES = {
    "one waits for a first token": Story(
        replicas=next_at_a_first_token,
        arrivals=(
            Arrival(0, 0.01, 100, 4),
            Arrival(1, 0.02, 300, 3),
            Arrival(2, 0.03, 100, 3),
        ),
        queue=queued(),
        health={},
        together=True,
    ),
    "one gives way": Story(
        replicas=one_gives_way,
        arrivals=(
            Arrival(0, 0.01, 800, 4, priority="batch"),
            Arrival(1, 0.02, 800, 3, priority="batch"),
            Arrival(2, 0.03, 100, 3, priority="high"),
        ),
        queue=queued(policy="strict", preemption=Preemption(enabled=True, after_s=0.1, budget=1.0)),
        classes=Classes(batch=BatchClass(prefill_tokens=0)),  # one batch request at a time
        health={},
        hedging=OFF,  # the hedger's calls would depend on the time of the content
        together=True,
    ),
}
ALL = {
    **STORIES,
    **{
        f"{name}, with a queue": replace(STORIES[name], queue=queued(), classes=NO_PAUSES)
        for name in STORIES
    },
    **QUEUE_STORIES,
}
MARKS = {"one gives way": needs("preemption")}


def _have_come(router: Router, count: int) -> bool:
    """Whether `count` requests are in the router, or have been answered."""
    return len(router.app.parts.dispatcher.exchanges) + len(router.lines()) >= count


async def ask(router: Router, arrival: Arrival) -> None:
    headers = [f"x-priority: {arrival.priority}"] if arrival.priority else []
    data = chat(*headers, stream=arrival.stream)
    if arrival.leaves_s == inf:
        await router.ask(data)
        return
    client = await router.client()
    await client.send(data)
    await asyncio.sleep(arrival.leaves_s)
    client.close()


async def ask_all(router: Router, arrivals: Sequence[Arrival], together: bool) -> None:
    asking: list[asyncio.Task[Any]] = []
    for count, arrival in enumerate(arrivals, 1):
        asked = ask(router, arrival)
        if together:
            asking.append(asyncio.ensure_future(asked))
            await eventually(partial(_have_come, router, count), f"{count} requests")
        else:
            await asked
            await router.log(count)
    await asyncio.gather(*asking)
    await router.log(len(arrivals))


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in ALL])
@scenario
async def test_both_tell_the_same_story(name: str) -> None:
    story = ALL[name]
    made = story.replicas()
    async with running(
        *(behave or json_ok for behave in made),
        timeouts=story.timeouts,
        health=story.health,
        hedging=story.hedging,
        queue=story.queue,
        classes=story.classes,
        policy="round_robin",
        quiet_control_plane="polls and probes would change which replica gets a request",
    ) as router:
        for behave, replica in zip(made, router.replicas, strict=True):
            if behave is None:
                await replica.stop_listening()
        await ask_all(router, story.arrivals, story.together)
        by_proxy = [logged(line) for line in await router.log(len(story.arrivals))]
    fleet = world(
        replicas=2,
        health=Health(**story.health),
        faults=story.faults,
        hedging=story.hedging,
        queue=story.queue,
        classes=story.classes,
        **story.timeouts,
    )
    kept = Kept()
    simulate(fleet, Script(story.arrivals), kept)
    by_simulator = [simulated(outcome) for outcome in kept.outcomes]
    assert sorted(by_simulator) == sorted(by_proxy)
    hedges = story.hedging.policy == "fixed"
    assert any(end.is_hedged for end in by_proxy) == hedges
