"""A subscriber between a real publisher and an index, with checks that it releases everything."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import zmq

from router.addons.kv_events.index import ExactIndex
from router.addons.kv_events.reader import Pump, Subscriber
from router.addons.kv_events.stream import Counters
from router.fleet.engines.common.publishers import Source
from tests.addons.kv_events.app.publisher import Publisher
from tests.addons.kv_events.events import prompt

PATIENCE_S = 20.0


async def until(condition: Callable[[], Any]) -> None:
    """Wait for a condition; it changes in ZMQ's threads, which do not wake the loop."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.002)


class Hearing:
    """One subscriber (replica "r") to one publisher."""

    def __init__(self, publisher: Publisher, **options: Any) -> None:
        self.publisher = publisher
        self.index = ExactIndex()
        self.counters = Counters()
        self.errors: list[BaseException] = []
        self.context = zmq.Context()
        loop = asyncio.get_running_loop()
        self.pump = Pump(loop, self.index, self.errors.append)
        self.subscriber = Subscriber(
            zmq,
            self.context,
            loop,
            self.pump,
            self.index,
            "r",
            Source(publisher.endpoint, publisher.replay_endpoint),
            self.counters,
            **options,
        )

    def held(self, *ids: int) -> int:
        return self.index.match(prompt(*ids)).get("r", 0)

    async def ready(self) -> None:
        """Wait until both sides are connected and the first replay is over."""
        await self.publisher.subscribed.wait()
        await until(lambda: self.subscriber.is_connected)
        await until(lambda: not self.subscriber.is_busy)

    async def close(self) -> None:
        self.subscriber.stop()
        self.subscriber.stop()  # a second stop has no effect
        await until(lambda: len(self.index) == 0)
        self.pump.stop()
        sockets = list(self.context._sockets)
        self.context.destroy(linger=0)
        assert not [socket for socket in sockets if not socket.closed]
        assert "r" not in self.index
        assert not self.errors


@asynccontextmanager
async def hearing(publisher: Publisher, **options: Any) -> AsyncIterator[Hearing]:
    heard = Hearing(publisher, **options)
    try:
        await heard.ready()
        yield heard
        await heard.close()
    finally:
        heard.subscriber.stop()
        heard.pump.stop()
        heard.context.destroy(linger=0)
        publisher.close()
