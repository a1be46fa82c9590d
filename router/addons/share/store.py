"""Carries the messages of `router/share` through a publish/subscribe channel of Redis or Valkey.

One task publishes, at most once per `share.interval`; one task reads. Neither is awaited by a
request. A server that is slow, frozen or away delays messages only: the next one has all that is
true by then. After `LOST_S` without a message, the other routers' loads are forgotten here, and
this router's loads there.

Must never: delay a request, store anything at the server, or log its password.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import uuid4

import redis.asyncio
from redis.exceptions import RedisError

from router.config.model import Sharing
from router.core.clock import monotonic
from router.dispatch.addon import Addon, Host
from router.observe.events import log_event
from router.observe.families.family import Family, Source, counter, gauge
from router.share.limits_told import SharedLimits
from router.share.messages import VERSION, decoded, encoded
from router.share.others import Others
from router.share.own import Own

ANSWER_S: Final = 1.0  # seconds until a server that does not answer counts as lost
# Seconds after which a silent channel counts as lost: the own messages come, too.
SILENT_S: Final = 2.5
PAUSE_S: Final = 0.5  # between two attempts to connect
TURN_S: Final = 0.005  # of reading messages, before the event loop does something else


class StoreAddon(Addon):
    """The messages of one router."""

    def __init__(self, host: Host, rules: Sharing) -> None:
        self._rules = rules
        self._host = host
        self._fleet = host.fleet
        name = uuid4().hex
        self.limits = SharedLimits(name, host.dispatcher.tenants, self._wake)
        self._own = Own(name, self.limits)
        self.others = Others(name, host.fleet, self.limits)
        self._channel = f"{rules.fleet}:{VERSION}:told"
        self._tasks: list[asyncio.Task[None]] = []
        self.sent = self.heard = self.ignored = self.failures = 0
        self.is_reached: bool | None = None  # Whether the server answers; None: not yet known.
        self.families = (Source(FAMILIES, lambda: self),)

    @property
    def running(self) -> int:
        return sum(not task.done() for task in self._tasks)

    async def start(self, *, waits: bool = False) -> None:
        self._fleet.knowledge.tell = self._own.placed
        self._tasks = [
            asyncio.ensure_future(self._always(work)) for work in (self._publish, self._read)
        ]

    async def stop(self) -> None:
        self._fleet.knowledge.tell = None
        self._host.dispatcher.tenants.used = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _always(self, work: Callable[[Any], Awaitable[None]]) -> None:
        """Do this with a connection, and with a new one whenever it fails."""
        while True:
            client = redis.asyncio.from_url(
                self._rules.url, socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S
            )
            try:
                await work(client)
            except (RedisError, OSError, TimeoutError) as err:
                self._lost(type(err).__name__)
            except Exception as err:  # A lying server must not end the task.
                self._lost(repr(err))
            finally:
                await _closed(client)
            await asyncio.sleep(PAUSE_S)

    async def _publish(self, client: Any) -> None:
        own, others, fleet = self._own, self.others, self._fleet
        interval_s = self._rules.interval_s
        while True:
            now = monotonic()
            others.expire(now)
            message = own.tell(fleet.replicas, now)
            if message is not None:
                await client.publish(self._channel, encoded(message))
                self.sent += 1
                self._found()
            await asyncio.sleep(interval_s)

    async def _read(self, client: Any) -> None:
        async with client.pubsub(ignore_subscribe_messages=True) as channel:
            await channel.subscribe(self._channel)
            heard_at = turn_at = monotonic()
            while True:
                found = await channel.get_message(timeout=ANSWER_S)
                if found is None:  # Nothing came, or the answer to the subscription.
                    if monotonic() - heard_at > SILENT_S:
                        raise TimeoutError("the channel is silent")
                    continue
                self._hear(found["data"])
                heard_at = monotonic()
                if heard_at - turn_at > TURN_S:
                    await asyncio.sleep(0)
                    turn_at = monotonic()

    def _hear(self, data: Any) -> None:
        message = decoded(data) if isinstance(data, bytes) else None
        if message is None:
            self.ignored += 1
            return
        self.heard += 1
        self.others.hear(message, monotonic())

    def _wake(self) -> None:
        queue = self._host.queue
        if queue is not None:
            queue.wake()

    def _lost(self, problem: str) -> None:
        self.failures += 1
        if self.is_reached is not False:
            log_event(logging.WARNING, "other routers are not reached", key=None, problem=problem)
        self.is_reached = False

    def _found(self) -> None:
        if self.is_reached is False:
            log_event(logging.INFO, "other routers are reached again", key=None)
        self.is_reached = True


async def _closed(client: Any) -> None:
    try:
        await client.aclose()
    except (RedisError, OSError):
        pass


FAMILIES: Final[tuple[Family[StoreAddon], ...]] = (
    gauge(
        "share_connected",
        "Whether the server that carries messages to other routers answers.",
        lambda addon: float(addon.is_reached is True),
    ),
    gauge(
        "share_routers",
        "Other routers of the fleet from which a message came in the last seconds.",
        lambda addon: float(addon.others.count),
    ),
    gauge(
        "share_limit_parts",
        "Equal parts of each key's limits of which the router uses one; 1: the others are heard.",
        lambda addon: float(addon.limits.parts),
    ),
    counter("share_sent", "Messages sent to other routers.", lambda addon: float(addon.sent)),
    counter(
        "share_heard",
        "Messages read from the channel, the router's own ones included.",
        lambda addon: float(addon.heard),
    ),
    counter(
        "share_ignored",
        "Messages that no router of this version has sent, or that are too large.",
        lambda addon: float(addon.ignored),
    ),
    counter(
        "share_failures",
        "Connections to the server that were lost or refused.",
        lambda addon: float(addon.failures),
    ),
)
