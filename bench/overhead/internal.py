"""The router's own part of a request, as Bifrost counts it: parsed to upstream bytes written.

Drives the real dispatcher, fleet, pool and connections over in-memory transports and times, for
each request, the check of its head plus everything from "a whole request is here" to the first
write towards the replica. Left out, as in the figure it is compared with: sockets (a write goes
nowhere here), reading HTTP, decoding JSON (timed alone on the same body, and subtracted), and the
whole way back. What clients feel is in the table's other lines; this one is for comparing like
with like.

Runs as a process of its own (`python -m bench.overhead.internal`), so that it can be pinned.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Any, cast

import uvloop

import policies.routing  # noqa: F401  (registers the policies)
from bench.overhead import shapes
from bench.overhead.processes import Orderly
from router.config.model import Config
from router.config.model import Replica as ReplicaConfig
from router.dispatch.chooser import Chooser, Policies
from router.dispatch.dispatcher import Dispatcher
from router.dispatch.hedger import Hedger
from router.fleet.knowledge import Knowledge
from router.fleet.replica import Replica
from router.fleet.table import Fleet
from router.intake.body import read_fields
from router.observe.access_log import AccessLog
from router.observe.hedge_counts import HedgeCounts
from router.observe.metrics import Metrics
from router.wire.client import ClientConnection, Front, Handler
from router.wire.heads import RequestHead
from router.wire.pool import Address, Pool
from router.wire.sweep import Sweeper

BLOCK = 1000  # requests; the figure is the median of the blocks' means
_ANSWER = shapes.json_answer(shapes.CHAT_BODY)
_NOTE = (
    "request parsed to upstream bytes written; sockets, HTTP parsing and JSON decoding excluded, "
    "as in the figure Bifrost publishes; median of block means"
)


@dataclass(frozen=True, slots=True)
class Inside:
    """The figure in µs, and what decoding the JSON cost besides; None: it could not be taken."""

    us: float | None
    decode_us: float | None
    note: str


class Timed(Handler):
    """The real handler with a clock around the two calls that precede the upstream write."""

    def __init__(self, inner: Handler) -> None:
        self.began = 0.0
        self.spent = 0.0  # s, of the request under way
        self._inner = inner

    def check_head(self, *args: Any) -> None:
        began = perf_counter()
        self._inner.check_head(*args)
        self.spent = perf_counter() - began

    def start(self, *args: Any) -> None:
        self.began = perf_counter()
        self._inner.start(*args)

    def hand_over(self, *args: Any) -> None:
        raise NotImplementedError

    def relieve(self, *args: Any) -> bool:
        raise NotImplementedError

    def refused(self, client: object, head: object, err: BaseException) -> str:
        raise err

    def crashed(self, err: BaseException) -> None:
        raise err


class Memory(asyncio.Transport):
    """A transport that goes nowhere, and tells when it is written to."""

    def __init__(self, written: Callable[[], None]) -> None:
        super().__init__()
        self._written = written
        self._closing = False

    def write(self, data: Any) -> None:
        self._written()

    def writelines(self, data: Iterable[Any]) -> None:
        self._written()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 40000) if name == "peername" else default

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
    """What a connection pool needs of an event loop; its connections are in memory."""

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
        transport = Memory(lambda: self._written(protocol))
        protocol.connection_made(transport)
        return transport, protocol


class Bench:
    """One client connection through the real router to two replicas, all in memory."""

    def __init__(self, folder: Path) -> None:
        loop = asyncio.get_running_loop()
        config = Config(
            replicas=tuple(ReplicaConfig(url=f"http://10.0.0.{n}:8000", id=f"r{n}") for n in (1, 2))
        )
        rng = Random(1)
        self._ended = 0.0
        self._asked: list[asyncio.Protocol] = []  # the connection that was just written to
        self._sweeper = Sweeper(loop, self._failed)
        knowledge = Knowledge(config.prefix)
        fleet = Fleet(
            config.health,
            self._sweeper,
            rng,
            lambda ids: None,
            lambda what, who: None,
            knowledge=knowledge,
        )
        self._pools: list[Pool] = []
        memory = cast(asyncio.AbstractEventLoop, MemoryLoop(self._written))
        for replica in config.replicas:
            address = Address(replica.id, 8000)
            pool = Pool(address, config.limits, config.timeouts, self._sweeper, memory)
            self._pools.append(pool)
            fleet.add(Replica(replica, config.health, pool))
        self._log = AccessLog(str(folder / "access.log"))
        metrics = Metrics()
        policies = Policies.of(config.routing)
        chooser = Chooser(policies, config.routing.sample, knowledge, metrics, rng)
        self._dispatcher = Dispatcher(
            config,
            fleet,
            chooser,
            self._sweeper,
            metrics,
            self._log,
            None,
            (),
            Hedger(config.hedging, fleet, HedgeCounts()),
            loop,
            rng,
        )
        self._timed = Timed(self._dispatcher)
        front = Front(
            cast(Handler, self._timed),
            self._sweeper,
            config.limits,
            config.timeouts,
            via=b"hedgerow",
            max_clients=10,
            allow_half_close=False,
        )
        self._client = ClientConnection(front)
        self._client.connection_made(Memory(lambda: None))
        self.answered = 0

    def _failed(self, err: BaseException) -> None:
        raise err

    def _written(self, protocol: asyncio.Protocol) -> None:
        self._ended = perf_counter()
        self._asked.append(protocol)

    async def one(self, request: bytes) -> float:
        """Seconds of the router's own for one request."""
        self._asked.clear()
        self._client.data_received(request)
        while not self._asked:  # only while a connection is being opened
            await asyncio.sleep(0)
        spent = self._timed.spent + self._ended - self._timed.began
        self._asked[0].data_received(_ANSWER)
        if self._client.exchange is not None:
            raise RuntimeError("an answer did not end its request")
        self.answered += 1
        return spent

    def decode(self, body: bytes) -> float:
        """Seconds the decoding of one body takes, which `one` includes."""
        head = RequestHead()
        head.method = b"POST"
        head.target = b"/v1/chat/completions"
        self._dispatcher.check_head(head)
        route = head.route[0]
        pieces = [body]
        began = perf_counter()
        for _ in range(BLOCK):
            read_fields(route, pieces, len(body), b"application/json", None)
        return (perf_counter() - began) / BLOCK

    def close(self) -> None:
        self._client.connection_lost(None)
        for pool in self._pools:
            pool.abort()
        self._sweeper.close()
        self._log.close()


async def take(blocks: int) -> Inside:
    """The figure over `blocks` blocks of requests, after two to warm up."""
    with tempfile.TemporaryDirectory(prefix="hedgerow-bench-") as folder:
        bench = Bench(Path(folder))
        try:
            prompt = shapes.Prompt("127.0.0.1:8080")
            body = prompt.next().partition(b"\r\n\r\n")[2]
            means: list[float] = []
            decodes: list[float] = []
            gc.freeze()
            for block in range(blocks + 2):
                total = 0.0
                for _ in range(BLOCK):
                    total += await bench.one(prompt.next())
                await asyncio.sleep(0)  # the access log's timer, the sweeper
                if block > 1:
                    means.append(total / BLOCK * 1e6)
                    decodes.append(bench.decode(body) * 1e6)
            decode = median(decodes)
            return Inside(median(means) - decode, decode, _NOTE)
        finally:
            bench.close()


def measure(cpus: Iterable[int] = (), blocks: int = 20) -> Inside:
    """Runs it in a process on `cpus`; a failure becomes the note."""
    try:
        with Orderly("bench.overhead.internal", str(blocks), cpus=cpus) as process:
            return Inside(**process.read())
    except RuntimeError as error:
        return Inside(None, None, str(error))


def main() -> None:
    inside = uvloop.run(take(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
    print(json.dumps(asdict(inside)), flush=True)


if __name__ == "__main__":
    main()
