"""Several routers that share the replicas of one `World`, and the channel between them.

`world` makes a fleet of one router (a `World`) or of several routers (`Routers`), so one test can
run over both. Each router has its own queue, leases and replica gates. The engines and the clock
are common. Each router sends a message every `INTERVAL_S` by the shipped parts of `router/share`.
Each message is encoded, and arrives at all routers after `DELAY_S`.

The folder of a test that uses `world` needs the fixture `_closes_tables` of `tests/fleet`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop
from typing import Any, Final

import pytest

from policies.queueing.ticket import Ticket
from router.admission.pools import Pools
from router.config.model import Config
from router.core.lease import others_counted
from router.fleet.replica import Replica
from router.share.limits_told import SharedLimits
from router.share.messages import decoded, encoded
from router.share.parts import parts
from tests.admission.world import Spot, World, config
from tests.fleet.helpers import Table
from tests.share.limits_helpers import Keys
from tests.tickets import make_ticket

INTERVAL_S: Final = 0.02
DELAY_S: Final = 0.001

# With one router, and with three routers that share a fleet.
over = pytest.mark.parametrize("routers", [1, 3])

Deal = Callable[[Ticket], int]


def world(
    routers: int, spots: Sequence[Spot], rules: Config | None = None, deal: Deal | None = None
) -> World | Routers:
    """A fleet of one or several routers. `deal`: see `Routers`."""
    return World(spots, rules) if routers == 1 else Routers(spots, rules, routers, deal)


class Side(World):
    """One of several routers."""

    def __init__(self, name: str, engines: Sequence[Spot], rules: Config) -> None:
        """`engines`: the spots that have the engines."""
        super().__init__([_seen(engine) for engine in engines], rules)
        self.pools = Pools(rules, self.pool)
        self.queue = self.pools.queues[0]
        table = Table()
        table.clock = lambda: self.now
        self.fleet = table.fleet
        self.spots = {spot.id: spot for spot in self.pool.spots}
        self.rooms: list[Replica | None] = []
        self.taken: list[Replica] = []
        for spot in self.pool.spots:
            self.queue.freed(spot, self.now)
            table.add(spot.id)
        self.fleet.hooks.room = self.rooms.append
        self.fleet.hooks.taken = self.taken.append
        limits = SharedLimits(Keys((None, None, None), ()), self.rooms.clear)
        self.own, self.others = parts(name, self.fleet, self.pools, limits, INTERVAL_S)
        self.is_alive = True

    def tell(self) -> bytes | None:
        self.others.expire(self.now)
        self.take_over()
        message = self.own.tell(self.spots, self.now)
        return None if message is None else encoded(message)

    def hear(self, data: bytes) -> None:
        message = decoded(data)
        assert message is not None
        self.others.hear(message, self.now)
        self.take_over()

    def take_over(self) -> None:
        """Copy the load that other routers have told, and tell the queue as `QueueDriver` does."""
        for id, replica in self.fleet.replicas.items():
            told = replica.shared_waiting, replica.shared_load, replica.shared_tokens
            others_counted(self.spots[id], *told)
        rooms, taken = self.rooms[:], self.taken[:]
        self.rooms.clear()
        self.taken.clear()
        if not self.queue.waiting:
            rooms += taken
        for room in rooms:
            assert room is not None
            self.free(self.spots[room.id])

    def join(self, first: World) -> None:
        """Use the clock and the records of the first router."""
        self._heap, self._numbers = first._heap, first._numbers
        self.jobs, self.truth, self.ends = first.jobs, first.truth, first.ends
        self.started, self.order, self.first = first.started, first.order, first.first
        self.done, self.expired, self.refused = first.done, first.expired, first.refused
        self.evicted = first.evicted


class Routers:
    """Several routers. A test uses it like a `World`."""

    def __init__(
        self,
        spots: Sequence[Spot],
        rules: Config | None = None,
        routers: int = 3,
        deal: Deal | None = None,
    ) -> None:
        """`deal`: a number for each request; requests with equal numbers come to the same router.
        `None`: each request comes to the next router."""
        self._deal = deal
        self._turn = 0
        self.sides = [Side(f"router-{n}", spots, rules or config()) for n in range(routers)]
        first = self.sides[0]
        for side in self.sides[1:]:
            side.join(first)
        self.now = first.now
        self.jobs, self.truth = first.jobs, first.truth
        self.started, self.order, self.first = first.started, first.order, first.first
        self.done, self.expired, self.refused = first.done, first.expired, first.refused
        for number, side in enumerate(self.sides):
            first.after(INTERVAL_S * number / routers, partial(self._tell, side))

    # -- time -------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Process all events of the next `seconds`."""
        until, heap = self.now + seconds, self.sides[0]._heap
        while heap and heap[0][0] <= until:
            when, _, act = heappop(heap)
            self._reaches(when)
            act()
            for side in self.sides:
                if side.is_alive:
                    side._after_event()
        self._reaches(until)

    def _reaches(self, now: float) -> None:
        self.now = now
        for side in self.sides:
            side.now = now

    def at(self, when: float, act: Callable[[], None]) -> None:
        self.sides[0].at(when, act)

    def _tell(self, side: Side) -> None:
        if side.is_alive:
            data = side.tell()
            if data is not None:
                side.after(DELAY_S, partial(self._hear, data))
            side.after(INTERVAL_S, partial(self._tell, side))

    def _hear(self, data: bytes) -> None:
        for side in self.sides:
            if side.is_alive:
                side.hear(data)

    # -- requests ---------------------------------------------------------------------------------

    def come(self, **facts: Any) -> Ticket:
        ticket = make_ticket(arrival=self.now, **facts)
        number = self._turn if self._deal is None else self._deal(ticket)
        self._turn += 1
        self.sides[number % len(self.sides)].offer(ticket)
        return ticket

    def come_often(self, every_s: float, count: int, **facts: Any) -> None:
        for number in range(1, count + 1):
            self.at(self.now + number * every_s, partial(self._come, facts))

    def _come(self, facts: dict[str, Any]) -> None:
        self.come(**facts)

    def leave(self, ticket: Ticket) -> None:
        (side,) = [side for side in self.sides if side.queue is ticket.queue]
        side.leave(ticket)

    def dies(self, number: int) -> list[Ticket]:
        """A router ends without a last message. Returns its requests."""
        side = self.sides[number]
        lost = side.waiting()
        lost += [ticket for ticket, job in self.jobs.items() if job.world is side]
        for ticket in lost:
            side.leave(ticket)
        side.is_alive = False
        return lost

    # -- what is left -----------------------------------------------------------------------------

    @property
    def depth(self) -> list[int]:
        depths = [side.depth for side in self.sides]
        return [sum(each) for each in zip(*depths, strict=True)]

    def waiting(self) -> list[Ticket]:
        return [ticket for side in self.sides for ticket in side.waiting()]

    def assert_empty(self) -> None:
        for side in self.sides:
            side.assert_empty()


def _seen(engine: Spot) -> Spot:
    """A router's view of a replica."""
    spot = Spot(engine.id, slots=engine.slots, limit=engine.limit, kv_tokens=engine.kv_tokens)
    spot.engine = engine
    return spot
