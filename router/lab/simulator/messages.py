"""The messages between simulated routers, with delay and loss.

Must never: tell a router what `router/share` does not tell it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random

from router.lab.simulator.clock import Clock
from router.lab.simulator.router import SimulatedRouter
from router.lab.simulator.scenario import Channel
from router.share.limits_told import SharedLimits
from router.share.messages import Message
from router.share.others import Others
from router.share.own import Own
from router.share.parts import parts


class Messages:
    """What the routers of one fleet tell each other."""

    def __init__(
        self, clock: Clock, rules: Channel, routers: Sequence[SimulatedRouter], seed: int
    ) -> None:
        self._clock = clock
        self._rules = rules
        self._rng = Random(f"messages {seed}")
        self._others: list[Others] = []
        for router in routers:
            name, queue = f"{router.number}", router.queue
            pools = None if queue is None else queue.pools
            limits = SharedLimits(router.tenants, _nothing if queue is None else queue.wake)
            own, others = parts(name, router.fleet, pools, limits, rules.interval_s)
            router.fleet.knowledge.tell = own.placed
            self._others.append(others)
            clock.at(
                rules.interval_s * self._rng.random(), partial(self._tell, router, own, others)
            )

    def _tell(self, router: SimulatedRouter, own: Own, others: Others, now: float) -> None:
        rules = self._rules
        message = own.tell(router.fleet.replicas, now)
        if message is not None:
            self._clock.at(now + rules.delay_s, partial(self._hear, others, message))
        others.expire(now)
        self._clock.at(now + rules.interval_s, partial(self._tell, router, own, others))

    def _hear(self, sender: Others, message: Message, now: float) -> None:
        for others in self._others:
            # A router hears its own messages, too, as from the channel of the addon.
            if others is sender or self._rng.random() >= self._rules.loss:
                others.hear(message, now)


def _nothing() -> None:
    pass
