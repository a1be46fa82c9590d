"""Carries the messages of `router/share` through a publish/subscribe channel of Redis or Valkey.

One task publishes, at most once per `share.interval`; one task reads. Neither is awaited by a
request. A server that is slow, frozen or away delays messages only: the next one has all that is
true by then. After `LOST_S` without a message, the other routers' loads are forgotten here, and
this router's loads there.

The server counts as reached while the router hears its own messages, because only they prove both
directions. A server may send anything: the bytes of one answer are bounded (`parser.py`), and
reading takes at most half of the time.

Must never: delay a request, store anything at the server, or log its password or its texts, which
may repeat the password.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import uuid4

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from router.addons.share.parser import BoundedParser
from router.config.model import Sharing
from router.core.clock import monotonic
from router.dispatch.addon import Addon, Host
from router.observe.events import log_event
from router.observe.families.family import Family, Source, counter, gauge
from router.share.limits_told import SharedLimits
from router.share.messages import VERSION, decoded, encoded
from router.share.parts import parts

ANSWER_S: Final = 1.0  # seconds until a server that does not answer counts as lost
# Seconds after which an own message that does not come back shows that the channel is silent, or
# that what comes is old.
SILENT_S: Final = 2.5
PAUSE_S: Final = 0.5  # between two attempts to connect
# Seconds without a failure until the server counts as reached again. More than `PAUSE_S`, so that a
# connection that fails again and again is one event; less than the second between two own messages,
# so that the first one counts. After another loss within `CALM_S` it is four times as long.
STEADY_S: Final = 0.8
CALM_S: Final = 60.0
TURN_S: Final = 0.005  # of reading messages, before the event loop has as much time for the rest
STOP_S: Final = 0.1  # between two cancellations of a task that has lost one
EXPIRE_S: Final = 0.25  # between two looks for silent routers


class StoreAddon(Addon):
    """The messages of one router."""

    def __init__(self, host: Host, rules: Sharing) -> None:
        self._rules = rules
        self._host = host
        self._fleet = host.fleet
        self._host_failed = host.failed
        name = uuid4().hex
        pools = None if host.queue is None else host.queue.pools
        self.limits = SharedLimits(host.dispatcher.tenants, self._wake)
        self._own, self.others = parts(name, host.fleet, pools, self.limits, rules.interval_s)
        self._channel = f"{rules.fleet}:{VERSION}:told"
        self._tasks: list[asyncio.Task[None]] = []
        self.sent = self.heard = self.ignored = self.failures = 0
        # Whether own messages come back from the server; None: not yet known.
        self.is_reached: bool | None = None
        self._failed_at = self._found_at = float("-inf")
        self._steady_s = STEADY_S
        # An own message that has to come back: its number, and when it was sent.
        self._awaited: tuple[int, float] | None = None
        self.families = (Source(FAMILIES, lambda: self),)

    @property
    def running(self) -> int:
        return sum(not task.done() for task in self._tasks)

    async def start(self, *, waits: bool = False) -> None:
        self._fleet.knowledge.tell = self._own.placed
        connected = (self._always(work) for work in (self._publish, self._read))
        self._tasks = [asyncio.ensure_future(work) for work in (*connected, self._expire())]

    async def stop(self) -> None:
        self._fleet.knowledge.tell = None
        self._host.dispatcher.tenants.used = None
        while self.running:
            for task in self._tasks:
                task.cancel()
            # `wait_for` of Python 3.11, which the package redis uses, can lose a cancellation.
            await asyncio.wait(self._tasks, timeout=STOP_S)

    async def _always(self, work: Callable[[Any], Awaitable[None]]) -> None:
        """Do this with a connection, and with a new one whenever it fails."""
        while True:
            client: Any = None
            try:
                client = connection(self._rules.url)
                await work(client)
            except Exception as err:  # A lying server must not end the task.
                self._lost(type(err).__name__)
            finally:
                await _closed(client)
            await asyncio.sleep(PAUSE_S)

    async def _expire(self) -> None:
        """Forget silent routers, also while the other tasks wait for the server."""
        while True:
            try:
                self.others.expire(monotonic())
            except Exception as err:  # The queue is called if there is room at a replica.
                self._host_failed(err)
            await asyncio.sleep(EXPIRE_S)

    async def _publish(self, client: Any) -> None:
        own, fleet = self._own, self._fleet
        interval_s = self._rules.interval_s
        while True:
            now = monotonic()
            message = own.tell(fleet.replicas, now)
            if message is not None:
                if self._awaited is None:
                    self._awaited = message.number, now
                await client.publish(self._channel, encoded(message))
                self.sent += 1
            await asyncio.sleep(interval_s)

    async def _read(self, client: Any) -> None:
        async with client.pubsub(ignore_subscribe_messages=True) as channel:
            await channel.subscribe(self._channel)
            self._awaited = None
            turn_at = monotonic()
            while True:
                found = await channel.get_message(timeout=ANSWER_S)
                now = monotonic()
                if self._is_silent(now):
                    raise TimeoutError("own messages do not come back in time")
                if found is None:  # Nothing came, or the answer to the subscription.
                    continue
                self._hear(found["data"], now)
                heard_at = monotonic()
                if heard_at - turn_at > TURN_S:
                    await asyncio.sleep(max(TURN_S, heard_at - now))
                    turn_at = monotonic()

    def _is_silent(self, now: float) -> bool:
        return self._awaited is not None and now - self._awaited[1] > SILENT_S

    def _hear(self, data: Any, now: float) -> None:
        message = decoded(data) if isinstance(data, bytes) else None
        if message is None:
            self.ignored += 1
            return
        self.heard += 1
        if self.others.hear(message, now):
            self._own.joined(self.others.count, self._held)
        awaited = self._awaited
        if message.router == self._own.router and awaited and message.number >= awaited[0]:
            self._awaited = None
            self._found(now)

    def _held(self, name: str, blocks: tuple[int, ...]) -> int:
        """How many leading blocks of a prompt a replica still holds."""
        replica = self._fleet.replicas.get(name)
        return (
            0 if replica is None else self._fleet.knowledge.prefixes.match(blocks).get(replica, 0)
        )

    def _wake(self) -> None:
        queue = self._host.queue
        if queue is not None:
            queue.wake()

    def _lost(self, problem: str) -> None:
        now = monotonic()
        if self.is_reached:
            is_soon = now - self._found_at < CALM_S
            self._steady_s = min(4 * self._steady_s, CALM_S) if is_soon else STEADY_S
        if self.is_reached is not False:
            log_event(logging.WARNING, "other routers are not reached", key=None, problem=problem)
        self.is_reached = False
        self.failures += 1
        self._failed_at = now
        self._awaited = None

    def _found(self, now: float) -> None:
        if self.is_reached or now - self._failed_at < self._steady_s:
            return
        if self.is_reached is False:
            log_event(logging.INFO, "other routers are reached again", key=None)
            self._found_at = now
        self.is_reached = True


def connection(url: str) -> Any:
    """A client that tries once, for a limited time. Raises ValueError."""
    return redis.asyncio.from_url(
        url,
        socket_timeout=ANSWER_S,
        socket_connect_timeout=ANSWER_S,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        parser_class=BoundedParser,
    )


async def _closed(client: Any) -> None:
    try:
        if client is not None:
            await client.aclose()
    except Exception:  # The connection is lost anyway.
        pass


FAMILIES: Final[tuple[Family[StoreAddon], ...]] = (
    gauge(
        "share_connected",
        "Whether the messages of this router come back from the server that carries them.",
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
