"""Decides in which queue a request waits. Replicas that share models share one queue.

Two models share a queue if one replica serves both, or if both share a queue with a third model.
Otherwise each model has its own queue, and a full queue does not affect the other model. When the
fleet changes, pools may be joined or split. A waiting ticket then moves with its model and keeps
its order of arrival. A running request moves with its replica, so the queue that may send requests
to the replica counts all requests there. If the replica leaves the fleet, its running requests stay
in the queue that has sent them.

Must never: use facts of a replica other than its models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from policies.queueing.contract import OrderPolicy, PolicyConfigError, make_order
from policies.queueing.flow_identity import FlowIdentity
from policies.queueing.foreign import Failures
from policies.queueing.ticket import INFINITY, SENT, Ticket
from router.admission.counts import QueueCounts
from router.admission.due import Ticked
from router.admission.elsewhere import Elsewhere
from router.admission.extra import load_extras
from router.admission.pool import Pool
from router.admission.queue import Queue
from router.admission.waiting.wait_lists import Orders
from router.config.model import Config
from router.core.replica_load import ReplicaLoad
from router.core.ttft_estimate import TtftEstimates

ANY = ""  # The model of requests that name no model.


def pools_of(served: Iterable[Iterable[str] | None]) -> dict[str, int]:
    """Return the pool number of each model.

    `served`: the models of each replica. If the models of a replica are `None` (unknown), it may
    serve any model, which joins all pools. Pools are numbered from 0 in the order of the replicas.
    `ANY` is in the pool of a replica that may serve any model; if there is none, in the first pool.
    """
    above: dict[str, str] = {}
    joins_all = False
    for models in served:
        if models is None:
            joins_all = True
            continue
        first: str | None = None
        for model in models:
            above.setdefault(model, model)
            if first is None:
                first = model
            else:
                above[_top(above, model)] = _top(above, first)
    above[ANY] = ANY
    if joins_all:
        for model in list(above):
            above[_top(above, model)] = ANY
    numbers: dict[str, int] = {}
    found: dict[str, int] = {}
    for model in above:
        if model != ANY:
            found[model] = numbers.setdefault(_top(above, model), len(numbers))
    found[ANY] = 0
    return found


def _top(above: dict[str, str], model: str) -> str:
    while above[model] != model:
        model = above[model]
    return model


class Pools:
    """All queues of a router.

    Its methods are those of a single queue; see the package's docstring. The driver calls the queue
    of a ticket (`Ticket.queue`) itself for what concerns no other queue.
    """

    __slots__ = (
        "_by_model",
        "_by_place",
        "_config",
        "_estimates",
        "_orders",
        "_pool",
        "elsewhere",
        "named",
        "past",
        "queues",
    )

    def __init__(self, config: Config, pool: Pool, estimates: TtftEstimates | None = None) -> None:
        """`pool`: the replicas of the whole fleet. `estimates`: see `Queue`. Raises
        PolicyConfigError."""
        self._estimates = estimates
        self._config = config
        self._pool = pool
        self.past = QueueCounts()  # The counts of removed queues.
        self._orders = Orders()
        self.elsewhere = Elsewhere(self._orders.failures)
        self._by_model: dict[str, Queue] = {}
        self._by_place: dict[ReplicaLoad, Queue] = {}
        # Never empty: unknown models use the first one.
        self.queues: list[Queue] = [self._new(config)]
        # Each queue with one of the models that it serves, the first by name.
        self.named: list[tuple[str, Queue]] = [(ANY, self.queues[0])]

    def _new(self, config: Config) -> Queue:
        return Queue(
            config,
            self._pool,
            orders=self._orders,
            estimates=self._estimates,
            elsewhere=self.elsewhere,
        )

    def _new_in_any_case(self) -> Queue:
        """Create a queue after a change of the fleet; this must not fail.

        If the order policy cannot be created, the queue is ordered by arrival until the next
        reload.
        """
        try:
            return self._new(self._config)
        except PolicyConfigError as err:
            self._orders.failures.add("a new queue", err)
            by_arrival = replace(self._config.queue, policy="fifo", options={})
            return self._new(replace(self._config, queue=by_arrival))

    def of(self, model: str) -> Queue:
        """Return the queue of a model; for an unknown model, the first queue."""
        return self._by_model.get(model, self.queues[0])

    def regroup(self, served: Mapping[ReplicaLoad, Iterable[str] | None], now: float) -> None:
        """Join and split pools after a change of the fleet.

        `served`: all replicas, healthy or not, with their models.
        """
        numbers = pools_of(served.values())
        before = self.queues
        kept = self._kept(numbers)
        self.queues = [self._new_in_any_case() if queue is None else queue for queue in kept]
        for queue in before:
            if queue not in self.queues:
                self.past.add(queue.counts)
        self._by_model = {model: self.queues[number] for model, number in numbers.items()}
        first = {self.of(model): model for model in sorted(self._by_model, reverse=True)}
        self.named = [(model, queue) for queue, model in first.items()]
        self._by_place = {
            place: self.of(next(iter(models), ANY) if models is not None else ANY)
            for place, models in served.items()
        }
        for queue in before:
            for ticket in queue.parted(self._by_model, self.queues[0]):
                self.of(ticket.model).receive(ticket, now)
            self._part(queue, now)

    def _kept(self, numbers: Mapping[str, int]) -> list[Queue | None]:
        """Return the present queue of each pool: that in which most requests for its models wait.

        `numbers`: the pool number of each model. `None`: the pool needs a new queue.
        """
        count = max(numbers.values()) + 1
        found: list[Queue | None] = [None] * count
        weight: list[tuple[int, int, int]] = []
        for index, queue in enumerate(self.queues):
            waiting = [0] * count
            for ticket in queue.wait_lists.tickets():
                number = numbers.get(ticket.model)
                if number is not None:
                    waiting[number] += 1
            weight += [(-waiting[number], index, number) for number in range(count)]
        taken: set[int] = set()
        for _, index, number in sorted(weight):
            if found[number] is None and index not in taken:
                found[number] = self.queues[index]
                taken.add(index)
        return found

    def _part(self, queue: Queue, now: float) -> None:
        """Move the replicas that belong to other queues now, and the requests sent to them."""
        has_moved = False
        for place in list(queue.gates.by_place):
            other = self._by_place.get(place)
            if other is None:
                queue.gone(place)
            elif other is not queue:
                queue.give_place(place, other)
                has_moved = True
        if has_moved:
            for ticket in list(queue.runs.tickets):
                self._follow(ticket, ticket.place, now)

    def _follow(self, ticket: Ticket, place: ReplicaLoad, now: float) -> Queue:
        """Let the queue of a replica count a sent request. Returns the queue that counts it."""
        queue: Queue = ticket.queue
        other = self._by_place.get(place)
        if other is None or other is queue:
            return queue
        queue.runs.hand_over(ticket, other.runs, now)
        ticket.queue = other
        return other

    # -- calls that are passed to a queue -----------------------------------------------------

    def offer(self, ticket: Ticket, now: float) -> Sequence[ReplicaLoad]:
        return self.of(ticket.model).offer(ticket, now)

    def freed(self, place: ReplicaLoad, now: float) -> list[Ticket]:
        queue = self._by_place.get(place)
        return [] if queue is None else queue.freed(place, now)

    @property
    def failures(self) -> Failures:
        """The failures of the order policies."""
        return self._orders.failures

    @property
    def is_woken(self) -> bool:
        """Whether the driver must call `woken` at the end of this turn of the event loop."""
        return self._orders.is_woken

    def woken(self, now: float) -> tuple[Ticket, Sequence[ReplicaLoad]] | None:
        for queue in self.queues:
            found = queue.woken(now)
            if found is not None:
                return found
        self._orders.is_woken = False
        return None

    def passed(
        self,
        place: ReplicaLoad,
        flow: FlowIdentity,
        tokens: int,
        output: int,
        sent_at: float,
        now: float,
        end: int,
    ) -> None:
        queue = self._by_place.get(place)
        if queue is not None:
            queue.runs.passed(place, flow, tokens, output, sent_at, now, end)

    def unreached(self, place: ReplicaLoad, now: float) -> None:
        """Note that a connection to a healthy replica failed."""
        queue = self._by_place.get(place)
        if queue is not None:
            queue.unreached(place, now)

    def rebuilt(self, now: float) -> None:
        """Note that the set of healthy replicas has changed."""
        for queue in self.queues:
            queue.rebuilt(now)

    def shown(self, ticket: Ticket, place: ReplicaLoad, now: float, prefill_s: float = 0.0) -> None:
        """Note that the first content of a request came.

        `place`: the replica that sent the content. If this replica served a second copy of the
        request, the ticket moves to this replica, and nothing is learned from the time of the first
        content. `prefill_s`: see `Runs.first_content`.
        """
        if ticket.state == SENT:
            if ticket.place is place:
                queue: Queue = ticket.queue
                queue.runs.first_content(ticket, now, prefill_s)
            else:
                queue = self._follow(ticket, place, now)
                queue.runs.moved(ticket, place, now)
                queue.runs.shown(ticket)

    def stays(self, ticket: Ticket) -> None:
        """Note that a request cannot be sent a second time, so it must not be preempted."""
        queue: Queue = ticket.queue
        queue.runs.shown(ticket)

    def moved(self, ticket: Ticket, place: ReplicaLoad, now: float) -> None:
        if ticket.state == SENT:
            self._follow(ticket, place, now).runs.moved(ticket, place, now)

    def next_order(self) -> int:
        """Return the sequence number, in order of arrival, for a request that arrives now."""
        return self._orders.next()

    def requeue(self, ticket: Ticket, now: float, *, is_preempted: bool = False) -> bool:
        """Put a request back into the queue to which its model belongs now; see `Queue.requeue`."""
        queue: Queue = ticket.queue
        return queue.requeue(ticket, now, self.of(ticket.model), is_preempted=is_preempted)

    def open_to(
        self, model: str, lane: str, urgency: int, places: Sequence[ReplicaLoad]
    ) -> Sequence[ReplicaLoad]:
        return self.of(model).open_to(lane, urgency, places)

    def allows_early_status(self, ticket: Ticket) -> bool:
        queue: Queue = ticket.queue
        return queue.allows_early_status(ticket)

    def tick(self, now: float) -> Ticked:
        """Call `tick` of all queues, and join the results, except `Ticked.next_at`."""
        found = Ticked()
        for queue in self.queues:
            if queue.waiting:
                ticked = queue.tick(now)
                found.expired += ticked.expired
                found.granted += ticked.granted
                found.preempt += ticked.preempt
                found.polls += ticked.polls
                if ticked.error is not None:
                    found.error = ticked.error
        return found

    @property
    def next_at(self) -> float:
        """Return the latest time for the next `tick`; infinity: no request waits."""
        found = INFINITY
        for queue in self.queues:
            if queue.waiting:  # If a queue is empty, its `next_at` is outdated.
                found = min(found, queue.next_at)
        return found

    @property
    def waiting(self) -> int:
        found = 0
        for queue in self.queues:
            found += queue.waiting
        return found

    def orders(self, config: Config) -> list[OrderPolicy]:
        """Create an order policy of `config` for each queue, and import the extras that `config`
        needs. Raises PolicyConfigError, and ConfigError if the addon of an extra is missing."""
        load_extras(config)
        return [make_order(config.queue.policy, config.queue.options) for _ in self.queues]

    def adopt(self, config: Config, orders: Sequence[OrderPolicy] | None = None) -> None:
        """Apply another configuration.

        `orders`: the result of calling `orders` for the same configuration in this turn of the
        event loop. Without it, `orders` is called here. If that fails, `adopt` raises its error and
        changes nothing.
        """
        made = self.orders(config) if orders is None else orders
        for queue, order in zip(self.queues, made, strict=True):
            queue.adopt(config, order)
        self._config = config
