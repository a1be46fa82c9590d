"""Runs the real router between transports that exist only in memory.

Dispatcher, queue, routing, hedging, access log and connections are those of the program. Instead of
a socket write, a function is called. Must never measure.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, cast

import policies.routing  # noqa: F401  (registers the policies)
from router.config.model import Config, Replica as ReplicaConfig
from router.dispatch.chooser import Chooser, Policies
from router.dispatch.context import Context
from router.dispatch.dispatcher import Dispatcher
from router.dispatch.event_loop import LoopScheduler
from router.dispatch.hedging.hedger import Hedger
from router.fleet.prefix.lookup import PrefixLookup
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet
from router.intake.keys import Keyring
from router.lab.overhead import shapes
from router.observe.hedge_counts import HedgeCounts
from router.observe.log.access_log import AccessLog
from router.observe.metrics import Metrics
from router.wire.client import ClientConnection, Front, Handler
from router.wire.pool import Address, Pool
from router.wire.sweep import Sweeper

_TURNS: Final = 100  # a connection in memory is opened within this many turns of the event loop
_ANSWER: Final = shapes.json_answer(shapes.CHAT_BODY)


class Memory(asyncio.Transport):
    """A transport without a socket. It calls a function at each write."""

    def __init__(
        self, written: Callable[[], None], protocol: asyncio.BaseProtocol | None = None
    ) -> None:
        super().__init__()
        self._written = written
        self._protocol = protocol
        self._closing = False

    def write(self, data: Any) -> None:
        self._written()

    def writelines(self, data: Iterable[Any]) -> None:
        self._written()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 40000) if name == "peername" else default

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._closing

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        self._closing = True

    def abort(self) -> None:
        self._closing = True


class MemoryLoop:
    """The functions of an event loop that a connection pool uses. Connections are in memory."""

    def __init__(self, written: Callable[[asyncio.Protocol], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._written = written

    def create_task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self._loop.create_task(work)

    def call_soon(self, call: Callable[..., object], *args: Any) -> asyncio.Handle:
        return self._loop.call_soon(call, *args)

    async def create_connection(
        self, make: Callable[[], asyncio.Protocol], *_: object, **__: object
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        protocol = make()
        transport = Memory(lambda: self._written(protocol), protocol)
        protocol.connection_made(transport)
        return transport, protocol


class Router:
    """The real router with client connections and two replicas, all in memory."""

    def __init__(
        self,
        folder: Path,
        clients: int = 1,
        wrap: Callable[[Handler], Handler] | None = None,
        written: Callable[[], None] | None = None,
        max_inflight: int | None = None,
        **settings: Any,
    ) -> None:
        """`wrap` replaces the request handler. `written` is called at each write to a replica.

        `max_inflight` is the maximum number of requests in progress at one replica. `settings` are
        sections of the configuration.
        """
        loop = asyncio.get_running_loop()
        config = Config(
            replicas=tuple(
                ReplicaConfig(url=f"http://10.0.0.{n}:8000", id=f"r{n}", max_inflight=max_inflight)
                for n in (1, 2)
            ),
            **settings,
        )
        rng = Random(1)
        self._on_write = written
        # Connections to replicas whose answer is outstanding, in the order of the requests.
        self._asked: deque[asyncio.Protocol] = deque()
        self._answered = 0  # number of the client that received the last write
        sweeper = Sweeper(loop, self._failed)
        knowledge = PrefixLookup(config.prefix)
        fleet = Fleet(
            config.health,
            sweeper,
            rng,
            lambda ids: None,
            lambda what, who: None,
            knowledge=knowledge,
        )
        memory = cast(asyncio.AbstractEventLoop, MemoryLoop(self._written))
        for replica in config.replicas:
            address = Address(replica.id, 8000)
            pool = Pool(address, config.limits, config.timeouts, sweeper, memory)
            fleet.add(Replica(replica, config.health, pool))
        self._log = AccessLog(str(folder / "access.log"))
        metrics = Metrics()
        chooser = Chooser(Policies.of(config.routing), knowledge, metrics, rng)
        hedger = Hedger(config.hedging, fleet, HedgeCounts())
        context = Context(config, fleet, chooser, hedger, metrics, LoopScheduler(loop), rng)
        self.dispatcher = Dispatcher(context, config, sweeper, self._log, None, Keyring())
        handler = cast(Handler, self.dispatcher)
        front = Front(
            handler if wrap is None else wrap(handler),
            sweeper,
            config.limits,
            config.timeouts,
            via=b"hedgerow",
            max_clients=clients + 10,
            allow_half_close=False,
        )
        self._clients = [ClientConnection(front) for _ in range(clients)]
        for number, client in enumerate(self._clients):
            client.connection_made(Memory(partial(self._answer_seen, number), client))

    def _failed(self, err: BaseException) -> None:
        raise err

    def _written(self, protocol: asyncio.Protocol) -> None:
        if self._on_write is not None:
            self._on_write()
        if protocol not in self._asked:  # a request may be written in two pieces
            self._asked.append(protocol)

    def _answer_seen(self, client: int) -> None:
        self._answered = client

    @property
    def at_replicas(self) -> int:
        return len(self._asked)

    def send(self, request: bytes, client: int = 0) -> None:
        """Let a whole request arrive from a client."""
        self._clients[client].data_received(request)

    async def answer(self) -> int:
        """Let the replica with the oldest request answer. Returns the number of the client that got
        the answer.
        """
        self._asked.popleft().data_received(_ANSWER)
        await asyncio.sleep(0)  # some writes are combined until the end of the event loop's turn
        return self._answered

    def is_idle(self, client: int) -> bool:
        return self._clients[client].exchange is None

    async def begin(self, request: bytes) -> asyncio.Protocol:
        """Send a request of the first client to a replica. Returns the connection on which the
        replica answers.
        """
        self._clients[0].data_received(request)
        for _ in range(_TURNS):
            if self._asked:
                return self._asked.popleft()
            await asyncio.sleep(0)
        raise RuntimeError("a request did not reach a replica")

    async def one(self, request: bytes) -> None:
        """Run one request of the first client, from its arrival to the end of its answer."""
        self._clients[0].data_received(request)
        turns = 0
        while not self._asked:  # loops only while a connection is being opened
            turns += 1
            if turns > _TURNS:
                raise RuntimeError("a request did not reach a replica")
            await asyncio.sleep(0)
        self._asked.popleft().data_received(_ANSWER)
        if self._clients[0].exchange is not None:
            raise RuntimeError("an answer did not end its request")

    def close(self) -> None:
        for client in self._clients:
            client.connection_lost(None)
        self._log.close()
