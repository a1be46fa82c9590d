"""One request, its copies, and all possible events, in any order.

The real dispatcher, exchange, driver, attempt I/O, pools and connections run over transports in
memory. The state machine plays the replicas, the client, the timers and the clock. For any order
there is exactly one response with the bytes of one replica, and every lease, timer, connection and
budget is released.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from random import Random
from time import monotonic
from typing import Any, cast

import h11
import pytest
from hypothesis import HealthCheck, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from bench.overhead.memory import Memory
from policies.queueing.ticket import ENDED, SENT
from router.config.model import Config, Hedging, Queue, QueueGates, Replica as ReplicaConfig, Retry
from router.core.lease import Lease
from router.dispatch.chooser import Chooser, Policies
from router.dispatch.context import Context
from router.dispatch.dispatcher import Dispatcher
from router.dispatch.driver.attempt_state import Phase
from router.dispatch.ending import shut
from router.dispatch.event_loop import LoopScheduler
from router.dispatch.hedging.hedger import Hedger
from router.fleet.prefix.lookup import PrefixLookup
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet
from router.intake.keys import Keyring
from router.observe.hedge_counts import HedgeCounts
from router.observe.log.access_log import AccessLog
from router.observe.metrics import Metrics
from router.wire.client import ClientConnection, Front
from router.wire.pool import Address, Pool
from router.wire.replica import ReplicaConnection
from router.wire.sweep import Sweeper
from tests.examples import examples

REPLICAS = 4
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Wire(Memory):
    """A transport in memory that keeps written bytes."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.sent = bytearray()
        self.closed = False
        self.at_end: Callable[[], None] = lambda: None

    def write(self, data: Any) -> None:
        assert not self.closed, "written to after the end"
        self.sent += data

    def writelines(self, data: Iterable[Any]) -> None:
        for piece in data:
            self.write(piece)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.at_end()

    abort = close


class Alarm:
    """A timer that the state machine triggers."""

    def __init__(self, call: Callable[[], None], alarms: list[Alarm]) -> None:
        self.call = call
        self._alarms = alarms
        alarms.append(self)

    def cancel(self) -> None:
        if self in self._alarms:
            self._alarms.remove(self)

    def ring(self) -> None:
        self._alarms.remove(self)
        self.call()


class Loop:
    """The event-loop functions that the data plane uses: connections in memory, manual timers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.alarms: list[Alarm] = []
        self.wires: list[tuple[str, ReplicaConnection, Wire]] = []
        self.refusing: set[str] = set()

    def create_task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self._loop.create_task(work)

    def call_soon(self, call: Callable[..., object], *args: Any) -> asyncio.Handle:
        return self._loop.call_soon(call, *args)

    def call_later(self, delay: float, call: Callable[[], None]) -> Alarm:
        assert delay >= 0.0
        return Alarm(call, self.alarms)

    async def create_connection(
        self, make: Callable[[], ReplicaConnection], host: str, *_: object, **__: object
    ) -> tuple[Wire, ReplicaConnection]:
        if host in self.refusing:
            raise ConnectionRefusedError(111, "refused")
        protocol, wire = make(), Wire()
        protocol.connection_made(wire)
        wire.at_end = lambda: self._loop.call_soon(protocol.connection_lost, None) and None
        self.wires.append((host, protocol, wire))
        return wire, protocol

    @property
    def working(self) -> list[tuple[str, ReplicaConnection, Wire]]:
        """Connections with an attempt on them."""
        return [w for w in self.wires if w[1].owner is not None and not w[2].closed]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(text: str) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":%s}]}\n\n' % text.encode()


class Fire(RuleBasedStateMachine):
    """One request through the real dispatcher."""

    @initialize(
        streamed=st.booleans(),
        hedged=st.booleans(),
        backoff=st.booleans(),
        full=st.sampled_from([None, False, True]),
        refusing=st.sets(st.integers(0, REPLICAS - 1), max_size=2),
        seed=st.integers(0, 5),
    )
    def arrives(
        self,
        streamed: bool,
        hedged: bool,
        backoff: bool,
        full: bool | None,
        refusing: set[int],
        seed: int,
    ) -> None:
        self.streamed = streamed
        self.aio = aio = asyncio.new_event_loop()
        self.loop = loop = Loop(aio)
        loop.refusing = {f"10.0.0.{n}" for n in refusing}
        config = Config(
            replicas=tuple(
                ReplicaConfig(url=f"http://10.0.0.{n}:80", id=f"r{n}") for n in range(REPLICAS)
            ),
            hedging=Hedging(policy="fixed", options={"delay_s": 0.01}, budget=1.0),
            retry=Retry(backoff_s=0.025 if backoff else 0.0),
            queue=Queue(enabled=full is not None, gates=QueueGates(waiting=1, prefill_tokens=0)),
        )
        asyncio.set_event_loop(aio)
        rng = Random(seed)
        self.sweeper = sweeper = Sweeper(aio, self._raise)
        self.metrics = metrics = Metrics()
        knowledge = PrefixLookup(config.prefix)
        self.fleet = fleet = Fleet(
            config.health, sweeper, rng, lambda _: None, lambda *_: None, knowledge=knowledge
        )
        as_loop = cast(asyncio.AbstractEventLoop, loop)
        self.pools = []
        for replica in config.replicas:
            address = Address(f"10.0.0.{replica.id[1:]}", 80)
            pool = Pool(address, config.limits, config.timeouts, sweeper, as_loop)
            self.pools.append(pool)
            fleet.add(Replica(replica, config.health, pool))
        # Other requests fill the replica: with a queue, this request waits until one of them ends.
        self.others = [Lease(r) for r in fleet.replicas.values()] if full else []
        self.counts = HedgeCounts()
        self.hedger = Hedger(config.hedging, fleet, self.counts)
        chooser = Chooser(Policies.of(config.routing), knowledge, metrics, rng)
        scheduler = LoopScheduler(as_loop)
        self.context = context = Context(
            config, fleet, chooser, self.hedger, metrics, scheduler, rng
        )
        self.dispatcher = dispatcher = Dispatcher(
            context, config, sweeper, AccessLog(""), None, Keyring()
        )
        self.client = Wire()
        self.answered = False

        async def connect() -> ClientConnection:
            front = Front(
                dispatcher,
                sweeper,
                config.limits,
                config.timeouts,
                via=b"hedgerow",
                max_clients=10,
                allow_half_close=False,
            )
            connection = ClientConnection(front)
            connection.connection_made(self.client)
            return connection

        self.connection = aio.run_until_complete(connect())
        self.client.at_end = lambda: aio.call_soon(self.connection.connection_lost, None) and None
        body = b'{"messages":[{"role":"user","content":"%b"}],"stream":%b}' % (
            b"word " * 300,
            b"true" if streamed else b"false",
        )
        priority = b"x-priority: high\r\n" if hedged else b""
        self.feed(
            self.connection.data_received,
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n%bcontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (priority, len(body), body),
        )
        self.exchange = next(iter(dispatcher.exchanges), None)
        assert self.exchange is not None
        self.ticket = self.exchange.ticket

    @staticmethod
    def _raise(err: BaseException) -> None:
        raise err

    def feed(self, call: Callable[..., object], *args: object) -> None:
        """Run a call inside the event loop, and everything that follows from it."""

        async def happen() -> None:
            call(*args)
            for _ in range(6):
                await asyncio.sleep(0)

        self.aio.run_until_complete(happen())

    def on_a_replica(self, data: st.DataObject, sent: bytes) -> None:
        _, connection, _ = data.draw(st.sampled_from(self.loop.working), label="replica")
        if not connection.received and not sent.startswith(b"HTTP/"):
            sent = HEAD + sent
        elif connection.received and sent.startswith(b"HTTP/"):
            return  # a response does not begin twice
        self.feed(connection.data_received, sent)

    # -- events of replicas -------------------------------------------------------------------

    working = precondition(lambda self: bool(self.loop.working))

    @working
    @rule(data=st.data())
    def role(self, data: st.DataObject) -> None:
        self.on_a_replica(data, chunk(event('{"role":"assistant","content":""}')))

    @working
    @rule(data=st.data())
    def comment(self, data: st.DataObject) -> None:
        self.on_a_replica(data, chunk(b": waiting\n\n"))

    @working
    @rule(data=st.data())
    def content(self, data: st.DataObject) -> None:
        host, connection, _ = data.draw(st.sampled_from(self.loop.working), label="replica")
        sent = chunk(event('{"content":"from ' + host + '"}'))
        self.feed(connection.data_received, sent if connection.received else HEAD + sent)

    @working
    @rule(data=st.data())
    def stream_ends(self, data: st.DataObject) -> None:
        self.on_a_replica(data, chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    @working
    @rule(data=st.data())
    def error_event(self, data: st.DataObject) -> None:
        self.on_a_replica(data, chunk(b'data: {"error":{"message":"no","code":500}}\n\n'))

    @working
    @rule(data=st.data(), status=st.sampled_from([200, 400, 429, 500, 503]))
    def whole(self, data: st.DataObject, status: int) -> None:
        body = b'{"choices":[]}' if status == 200 else b'{"error":{"message":"no"}}'
        head = b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self.on_a_replica(data, head % (status, len(body)) + body)

    @working
    @rule(data=st.data())
    def dies(self, data: st.DataObject) -> None:
        _, connection, wire = data.draw(st.sampled_from(self.loop.working), label="replica")
        wire.closed = True
        self.feed(connection.connection_lost, ConnectionResetError())

    @working
    @rule(data=st.data())
    def ends(self, data: st.DataObject) -> None:
        _, connection, wire = data.draw(st.sampled_from(self.loop.working), label="replica")
        wire.closed = True
        self.feed(lambda: (connection.eof_received(), connection.connection_lost(None)))

    # -- other events -------------------------------------------------------------------------

    @precondition(lambda self: bool(self.loop.alarms))
    @rule()
    def alarm(self) -> None:
        self.feed(self.loop.alarms[0].ring)

    @rule(late=st.sampled_from([11.0, 11.0, 61.0, 301.0]))
    def time_passes(self, late: float) -> None:
        if self.exchange in self.dispatcher.exchanges:
            self.feed(self.exchange.on_deadline, self.exchange.arrived + late)

    @rule()
    def client_leaves(self) -> None:
        if not self.client.closed:
            self.feed(self.client.close)

    @rule()
    def shuts(self) -> None:
        if self.exchange in self.dispatcher.exchanges:
            self.feed(partial(shut, self.exchange))

    @precondition(lambda self: bool(self.others))
    @rule()
    def room(self) -> None:
        replica = list(self.fleet.replicas.values())[len(self.others) - 1]
        self.others.pop().release()
        self.feed(self.fleet.attempt_ended, replica)

    @precondition(lambda self: self.exchange.ticket is not None)
    @rule()
    def recalled(self) -> None:
        queue, ticket = self.context.queue, self.exchange.ticket
        assert queue is not None
        if ticket is not None:
            self.feed(queue.recall, ticket, monotonic())

    # -- invariants ---------------------------------------------------------------------------

    @invariant()
    def the_ticket_is_where_the_answer_comes_from(self) -> None:
        if not hasattr(self, "aio") or self.ticket is None or self.ticket.state != SENT:
            return
        winner = self.exchange.driver.state.winner
        if winner is not None and winner.phase != Phase.ENDED:
            assert self.exchange.work.replica in (None, self.ticket.place)

    def teardown(self) -> None:
        if not hasattr(self, "aio"):
            return
        self.ends_without_a_trace()
        if self.ticket is not None:
            assert self.ticket.place is None, "the queue keeps a replica"
        driver = self.exchange.driver
        assert driver.state.live == []
        attempts = driver.state.attempts
        assert not any(a.held for a in attempts)
        copies = sum(a.kind == "hedge" for a in attempts)
        assert copies <= 1
        counts, bucket = self.counts, self.hedger._budget
        assert counts.fired == counts.won + counts.lost + counts.failed == copies
        # Every deposit is still in the budget or was spent on copies that reached a replica.
        kept = bucket.level
        hedges = [a for a in attempts if a.kind == "hedge" and a.is_sent]
        paid = sum(a.tokens * a.lateness.copy_price for a in hedges if a.lateness is not None)
        assert kept + paid == pytest.approx(bucket._all, rel=0.1)
        self._check_response()
        self.close()

    def ends_without_a_trace(self) -> None:
        """End the request if necessary; then no resource may be held for the request."""
        if self.exchange in self.dispatcher.exchanges:
            self.client_leaves()
        assert not self.dispatcher.exchanges
        assert self.loop.alarms == []
        assert self.loop.working == [], "an engine works for nobody"
        assert self.exchange.ticket is None
        if self.ticket is not None:
            assert self.ticket.state == ENDED
        queue = self.context.queue
        assert queue is None or queue.pools.waiting == 0
        for lease in self.others:
            lease.release()
        for replica in self.fleet.replicas.values():
            assert (replica.inflight, replica.waiting, replica.load) == (0, 0, 0)
            assert replica.pending_tokens == 0
        budget = self.context.budget
        assert (budget.requests, budget.retries) == (0, 0)

    def close(self) -> None:
        self.sweeper.close()
        for pool in self.pools:
            pool.abort()
        self.feed(lambda: None)
        self.aio.close()
        asyncio.set_event_loop(None)

    def _check_response(self) -> None:
        """At most one response, complete or visibly truncated, with the content of one replica."""
        if not self.client.sent:
            assert self.exchange.reply.status == 0
            return
        ours = h11.Connection(h11.CLIENT)
        ours.send(h11.Request(method="POST", target="/", headers=[("host", "a")]))
        ours.send(h11.EndOfMessage())
        ours.receive_data(bytes(self.client.sent))
        heads, body = 0, b""
        while True:
            happened = ours.next_event()
            if isinstance(happened, h11.Response):
                heads += 1
            elif isinstance(happened, h11.Data):
                body += happened.data
            elif isinstance(happened, h11.EndOfMessage):
                assert ours.trailing_data[0] == b"", "something follows the response"
                break
            elif happened is h11.NEED_DATA or happened is h11.PAUSED:
                break
        assert heads == 1
        assert sum(b"from 10.0.0.%d" % n in body for n in range(REPLICAS)) <= 1


Fire.TestCase.settings = examples(
    250, steps=14, suppressed=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
TestFire = Fire.TestCase
