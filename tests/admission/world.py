"""A small fleet on a virtual clock, and a driver that uses the queue like the proxy does.

A replica has a FIFO, slots, a prefill of one request at a time, and a decode phase whose time
depends on its tokens. Waiting requests at a replica are counted by the real leases. The driver
follows the queue's contract and checks the invariants after every event.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import Any

import msgspec

from policies.facts import RequestView
from policies.queueing.ticket import ENDED, NEW, WAITING, Ticket
from router.admission.pool import Pool
from router.admission.queue import Queue
from router.admission.runs import CANCELLED
from router.admission.timers import Expired
from router.config.model import Config
from router.config.model.setting_types import in_file
from router.core.errors import RouterError
from router.core.lease import Lease, poll_begins, poll_counted, poll_failed
from router.core.replica_load import ReplicaLoad
from router.core.ttft_estimate import TtftEstimates
from router.fleet.learned_capacity import LearnedCapacity
from router.lab.emulator.statistics import Gauges, LaggingGauges
from tests.tickets import looked_up, make_ticket


def config(**fields: Any) -> Config:
    """A configuration: `classes` is its section, the other fields are those of the queue.

    Class batch is not sent in bulk unless its `prefill_tokens` are stated.
    """
    queue = _in_file(fields)
    classes = queue.pop("classes", {})
    classes["batch"] = {"prefill_tokens": 0, **classes.get("batch", {})}
    return msgspec.convert({"queue": queue, "classes": classes}, Config)


def _in_file(fields: Any) -> Any:
    if not isinstance(fields, dict):
        return fields
    return {
        in_file(key): value if key == "options" else _in_file(value)
        for key, value in fields.items()
    }


def every_class(**rules: Any) -> dict[str, Any]:
    """The section `classes` with the same rules for each."""
    return dict.fromkeys(("critical", "high", "normal", "low", "batch"), rules)


class Spot(ReplicaLoad):
    """A replica: the attributes that the queue sees, and an engine behind it."""

    def __init__(
        self,
        name: str,
        *,
        slots: int | None = 64,
        prefill_rate: float = 10_000.0,
        tpot_s: float = 0.02,
        limit: int = 10**9,
        engine_slots: int | None = None,
        lag_s: float = 0.0,
        together: bool = False,
        kv_tokens: int | None = None,
    ) -> None:
        """`slots`: number reported to the queue. `lag_s`: age of a poll's figures.

        `together`: prefills run in parallel.
        """
        super().__init__(name)
        self.gauges = LaggingGauges(lag_s)
        self.together = together
        self.limit = limit
        self.slots = slots
        self.kv_tokens = kv_tokens
        # The spot that has the engine; another one if several routers have a spot of this replica.
        self.engine = self
        self.learned = LearnedCapacity()
        self.engine_slots = engine_slots or slots or 64
        self.prefill_rate = prefill_rate
        self.engine_tpot_s = tpot_s
        self.running = 0
        self.fifo: deque[Job] = deque()
        self.prefills = False
        self.held: dict[object, int] = {}

    def __repr__(self) -> str:
        return self.id


class Job:
    """One ticket at a replica."""

    def __init__(self, world: World, ticket: Ticket, spot: Spot, lease: Lease) -> None:
        self.world = world  # The router that has sent it.
        self.ticket = ticket
        self.spot = spot
        self.lease = lease
        self.gone = False
        self.runs = False


class Stand(Pool):
    """The pool: the spots that serve each lane."""

    def __init__(self, spots: Sequence[Spot]) -> None:
        self.spots = list(spots)
        self.lanes: dict[str, list[Spot]] = {}
        self.blind: set[Spot] = set()
        self.clock: Callable[[], float] = float
        self._gone_at: dict[str, float] = {}  # time at which a lane was first seen without a spot

    def eligible(self, lane: str) -> Sequence[ReplicaLoad]:
        return self.lanes.get(lane, self.spots)

    def refusal(self, lane: str) -> RouterError | None:
        return None

    def absent_since(self, lane: str) -> float:
        if self.eligible(lane):
            self._gone_at.pop(lane, None)
            return inf
        return self._gone_at.setdefault(lane, self.clock())

    def serves(self, place: ReplicaLoad, lane: str) -> bool:
        return place in self.eligible(lane)

    def held(self, view: RequestView) -> Mapping[ReplicaLoad, int]:
        return looked_up(view)

    def slots(self, place: ReplicaLoad) -> float | None:
        assert isinstance(place, Spot)
        return place.learned.slots if place.slots is None else place.slots

    def guess(self, place: ReplicaLoad) -> float:
        assert isinstance(place, Spot)
        return place.learned.guess

    def is_blind(self, place: ReplicaLoad) -> bool:
        return place in self.blind


class World:
    """The clock, a queue, and the events."""

    def __init__(
        self,
        spots: Sequence[Spot],
        rules: Config | None = None,
        *,
        tick_s: float | None = None,
        estimates: TtftEstimates | None = None,
    ) -> None:
        """`tick_s`: tick at this interval instead of when the queue requests it."""
        self.now = 1000.0
        self.pool = Stand(spots)
        self.pool.clock = lambda: self.now
        self.queue = Queue(rules or config(), self.pool, estimates=estimates)
        self.jobs: dict[Ticket, Job] = {}
        self.started: dict[Ticket, float] = {}  # time at which each was first sent
        self.order: list[Ticket] = []  # the order in which they were sent
        self.truth: dict[Ticket, int] = {}  # output tokens, if different from the prediction
        self.first: dict[Ticket, float] = {}  # time of the first content
        self.done: dict[Ticket, float] = {}
        self.expired: dict[Ticket, RouterError] = {}
        self.refused: list[tuple[Ticket, RouterError]] = []
        self.evicted: list[tuple[Ticket, RouterError]] = []
        self.polls = 0
        self.most_waiting: dict[Spot, int] = {}
        self.ends: dict[Ticket, int] = {}  # how often each ticket has ended
        self.on_sent: Callable[[Ticket, Spot], None] = _ignore
        self.on_polled: Callable[[Spot], None] = _ignore_poll  # early polls, requested by the queue
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._tick_s = tick_s
        self._tick_at = float("inf")
        for spot in spots:
            self.queue.freed(spot, self.now)
        if tick_s is not None:
            self.after(tick_s, self._tick_always)

    # -- time ---------------------------------------------------------------------------------

    def at(self, when: float, act: Callable[[], None]) -> None:
        heappush(self._heap, (when, next(self._numbers), act))

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        self.at(self.now + seconds, act)

    def run(self, seconds: float) -> None:
        """Process all events of the next `seconds`."""
        until = self.now + seconds
        while self._heap and self._heap[0][0] <= until:
            when, _, act = heappop(self._heap)
            assert when >= self.now
            self.now = when
            act()
            self._after_event()
        self.now = until

    def _after_event(self) -> None:
        queue = self.queue
        while found := queue.woken(self.now):
            ticket, places = found
            spot = min(places, key=lambda place: place.load)
            queue.grant(ticket, spot, self.now)
            self._send([ticket])
        assert sum(queue.depth) == queue.waiting
        for spot in self.pool.spots:
            self.most_waiting[spot] = max(self.most_waiting.get(spot, 0), spot.waiting)
        if self._tick_s is None and queue.next_at < self._tick_at:
            self._tick_at = max(queue.next_at, self.now)
            self.at(self._tick_at, self._tick_due)

    def _tick_due(self) -> None:
        if self._tick_at <= self.now:
            self._tick_at = float("inf")
            self.tick()

    def _tick_always(self) -> None:
        self.tick()
        self.after(self._tick_s or 1.0, self._tick_always)

    def tick(self) -> list[Expired]:
        ticked = self.queue.tick(self.now)
        for over in ticked.expired:
            assert over.ticket.state == ENDED
            self._ended(over.ticket)
            self.expired[over.ticket] = over.error
        self._send(ticked.granted)
        for victim in ticked.preempt:
            self._put_back(victim, is_preempted=True)
        for place in ticked.polls:
            self.polls += 1
            assert isinstance(place, Spot)
            self.on_polled(place)
            self.poll(place)
        return ticked.expired

    # -- requests -----------------------------------------------------------------------------

    def come(self, **facts: Any) -> Ticket:
        """A request arrives now."""
        ticket = make_ticket(arrival=self.now, **facts)
        self.offer(ticket)
        return ticket

    def offer(self, ticket: Ticket) -> None:
        try:
            places = self.queue.offer(ticket, self.now)
        except RouterError as err:
            assert ticket.state == ENDED
            self._ended(ticket)
            self.refused.append((ticket, err))
            assert not self.queue.evictions.evicted
            return
        if places:
            assert ticket.state == NEW
            spot = min(places, key=lambda place: place.load)
            assert isinstance(spot, Spot)
            job = self._lease(ticket, spot)
            self.queue.sent(ticket, spot, self.now)
            self._dispatch(job)
        else:
            assert ticket.state == WAITING
        evicted, self.queue.evictions.evicted = self.queue.evictions.evicted, []
        for gone in evicted:
            assert gone.ticket.state == ENDED
            self._ended(gone.ticket)
            self.evicted.append((gone.ticket, gone.error))
        self._after_event()

    def come_often(self, every_s: float, count: int, **facts: Any) -> None:
        """`count` requests at this interval, the first after one interval."""
        for number in range(1, count + 1):
            self.at(self.now + number * every_s, partial(self._come, facts))

    def _come(self, facts: dict[str, Any]) -> None:
        self.come(**facts)

    def leave(self, ticket: Ticket) -> None:
        """The client disconnects, wherever its request is."""
        if self.queue.leave(ticket):
            self._ended(ticket)
        elif (job := self.jobs.get(ticket)) is not None:
            self._stop(job)
            self.queue.runs.settle(ticket, -1, 0, self.now, CANCELLED)
            self._ended(ticket)
            self.free(job.spot)
        self._after_event()

    def _lease(self, ticket: Ticket, spot: Spot) -> Job:
        lease = Lease(spot, ticket.view.prompt_tokens, ticket.view.stream)
        job = Job(self, ticket, spot, lease)
        self.jobs[ticket] = job
        return job

    def _send(self, granted: list[Ticket]) -> None:
        jobs = [self._lease(ticket, ticket.place) for ticket in granted]
        for job in jobs:
            self._dispatch(job)

    def free(self, spot: Spot) -> None:
        self._send(self.queue.freed(spot, self.now))

    def _dispatch(self, job: Job) -> None:
        ticket = job.ticket
        assert job.spot in self.pool.eligible(ticket.lane)
        assert job.spot not in ticket.excluded
        self.started.setdefault(ticket, self.now)
        self.order.append(ticket)
        self.on_sent(ticket, job.spot)
        job.spot.engine.fifo.append(job)
        self._serve(job.spot.engine)

    def _put_back(self, ticket: Ticket, *, is_preempted: bool = False) -> None:
        job = self.jobs[ticket]
        self._stop(job)
        assert self.queue.requeue(ticket, self.now, is_preempted=is_preempted)
        self.free(job.spot)

    # -- the engine ---------------------------------------------------------------------------

    def _serve(self, spot: Spot) -> None:
        while spot.fifo and spot.fifo[0].gone:
            spot.fifo.popleft()
        if spot.prefills or not spot.fifo or spot.running >= spot.engine_slots:
            self.gauged(spot)
            return
        job = spot.fifo.popleft()
        job.runs = True
        spot.running += 1
        spot.prefills = not spot.together
        if spot.together:
            self._serve(spot)
        self.after(
            0.001 + job.ticket.view.prompt_tokens / spot.prefill_rate,
            partial(job.world._prefilled, job),
        )

    def _prefilled(self, job: Job) -> None:
        spot, engine, ticket = job.spot, job.spot.engine, job.ticket
        engine.prefills = False
        self._serve(engine)
        if job.gone:
            return
        output = self.truth.get(ticket, max(ticket.view.output_tokens, 1))
        self.after(output * engine.engine_tpot_s, partial(self._finished, job, output))
        if ticket.view.stream:
            self.first.setdefault(ticket, self.now)
            job.lease.begun()
            self.queue.runs.first_content(ticket, self.now)
            self.free(spot)

    def _finished(self, job: Job, output: int) -> None:
        if job.gone:
            return
        self.first.setdefault(job.ticket, self.now)
        self._stop(job)
        self.queue.runs.settle(job.ticket, job.ticket.view.prompt_tokens, output, self.now)
        self._ended(job.ticket)
        self.done[job.ticket] = self.now
        self.free(job.spot)

    def _stop(self, job: Job) -> None:
        """Remove the job from its replica."""
        job.gone = True
        job.lease.release()
        del self.jobs[job.ticket]
        engine = job.spot.engine
        if job.runs:
            engine.running -= 1
        self._serve(engine)

    def _ended(self, ticket: Ticket) -> None:
        self.ends[ticket] = self.ends.get(ticket, 0) + 1

    # -- polls --------------------------------------------------------------------------------

    def poll(self, spot: Spot) -> None:
        number = poll_begins(spot, self.now)
        running, waiting, _ = self.gauged(spot)
        poll_counted(spot, number, running, waiting, self.now)
        spot.learned.observed(running, waiting, tokens=spot.pending_tokens)
        self.free(spot)

    def gauged(self, spot: Spot) -> Gauges:
        """The current values of its metrics page."""
        engine = spot.engine
        waiting = sum(1 for job in engine.fifo if not job.gone)
        return engine.gauges.read(Gauges(engine.running, waiting, 0.0), self.now)

    def blinded(self, spot: Spot) -> None:
        """From now on, polls of this replica fail."""
        self.pool.blind.add(spot)
        poll_failed(spot)
        self.free(spot)

    def poll_every(self, seconds: float) -> None:
        for spot in self.pool.spots:
            self.poll(spot)
        self.after(seconds, partial(self.poll_every, seconds))

    # -- what is left -------------------------------------------------------------------------

    @property
    def depth(self) -> list[int]:
        """The number of waiting requests, by class."""
        return [*self.queue.depth]

    def waiting(self) -> list[Ticket]:
        return [*self.queue.wait_lists.tickets()]

    def assert_empty(self, *, fails: bool = False) -> None:
        """Nothing waits, nothing runs, and every ticket ended exactly once. `fails`: the order
        policy has failed; without it, no call of the policy may fail."""
        assert (self.queue._orders.failures.count > 0) is fails
        assert self.queue.waiting == 0 and self.queue.body_bytes == 0
        assert self.queue.wait_lists.holders.by_flow() == {}
        assert not self.jobs
        for spot in self.pool.spots:
            assert (spot.inflight, spot.pending_tokens) == (0, 0)
        assert set(self.ends.values()) <= {1}


def _ignore(ticket: Ticket, spot: Spot) -> None:
    pass


def _ignore_poll(spot: Spot) -> None:
    pass


def holds(spots: Mapping[Any, int]) -> Callable[[], Mapping[Any, int]]:
    """The result of a ticket's `look`."""
    return lambda: spots
