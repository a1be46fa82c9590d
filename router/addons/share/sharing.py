"""What both ways to carry the messages of `router/share` have in common.

Own messages come back from the channel, because only they prove both directions. The channel counts
as reached while they do.

Must never: delay a request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import Final
from uuid import uuid4

from router.config.model import Sharing as Rules
from router.core.clock import monotonic
from router.dispatch.addon import Addon, Host
from router.observe.events import log_event
from router.observe.families.family import Family, Source, counter, gauge
from router.share.limits_told import SharedLimits
from router.share.messages import decoded, encoded
from router.share.parts import parts

# Seconds after which an own message that does not come back shows that the channel is silent, or
# that what comes is old.
SILENT_S: Final = 2.5
# Seconds without a failure until the channel counts as reached again. More than the pause between
# two attempts to connect, so that a connection that fails again and again is one event; less than
# the second between two own messages, so that the first one counts. After another loss within
# `CALM_S` it is four times as long.
STEADY_S: Final = 0.8
CALM_S: Final = 60.0
STOP_S: Final = 0.1  # between two cancellations of a task that has lost one
EXPIRE_S: Final = 0.25  # between two looks for silent routers


class Sharing(Addon):
    """The messages of one router. A subclass carries them."""

    def __init__(self, host: Host, rules: Rules) -> None:
        self._rules = rules
        self._host = host
        self._fleet = host.fleet
        name = uuid4().hex
        pools = None if host.queue is None else host.queue.pools
        self.limits = SharedLimits(host.dispatcher.tenants, self._wake)
        self._own, self.others = parts(name, host.fleet, pools, self.limits, rules.interval_s)
        self._tasks: list[asyncio.Task[None]] = []
        self.sent = self.heard = self.ignored = self.failures = 0
        # Whether own messages come back; None: not yet known.
        self.is_reached: bool | None = None
        self._failed_at = self._found_at = float("-inf")
        self._steady_s = STEADY_S
        # An own message that has to come back: its number, and when it was sent.
        self._awaited: tuple[int, float] | None = None
        self.families = (Source(FAMILIES, lambda: self),)

    def work(self) -> Sequence[Awaitable[None]]:
        """Return what carries the messages, until it is cancelled."""
        raise NotImplementedError

    @property
    def running(self) -> int:
        return sum(not task.done() for task in self._tasks)

    async def start(self, *, waits: bool = False) -> None:
        self._fleet.knowledge.tell = self._own.placed
        self._tasks = [asyncio.ensure_future(work) for work in (*self.work(), self._expire())]

    async def stop(self) -> None:
        self._fleet.knowledge.tell = None
        self._host.dispatcher.tenants.used = None
        while self.running:
            for task in self._tasks:
                task.cancel()
            # `wait_for` of Python 3.11, which the package redis uses, can lose a cancellation.
            await asyncio.wait(self._tasks, timeout=STOP_S)

    async def _expire(self) -> None:
        """Forget silent routers, also while the channel does not work."""
        while True:
            try:
                self.others.expire(monotonic())
            except Exception as err:  # The queue is called if there is room at a replica.
                self._host.failed(err)
            await asyncio.sleep(EXPIRE_S)

    def next_message(self, now: float) -> bytes | None:
        """Return what is to be told now; None: nothing."""
        message = self._own.tell(self._fleet.replicas, now)
        if message is None:
            return None
        if self._awaited is None:
            self._awaited = message.number, now
        self.sent += 1
        return encoded(message)

    def is_silent(self, now: float) -> bool:
        return self._awaited is not None and now - self._awaited[1] > SILENT_S

    def began(self) -> None:
        """Await no own message from before now, because the channel is new."""
        self._awaited = None

    def hear(self, data: object, now: float) -> None:
        """Take over a message from the channel."""
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

    def lost(self, problem: str) -> None:
        """Note that the channel does not work. `problem`: a text without secrets."""
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


FAMILIES: Final[tuple[Family[Sharing], ...]] = (
    gauge(
        "share_connected",
        "Whether the messages of this router come back from what carries them.",
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
