"""Holds the parts of one queue, and provides the numbers that reports and metrics read.

`Queue` is derived from it. The other parts hold the parts that they call, and never the queue.

Must never: add, send or end a ticket.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from policies.allowed import Allowed, read_lane
from policies.queueing.ticket import CLASSES, INFINITY, WAITING, Ticket
from router.admission.counts import QueueCounts
from router.admission.due import Due
from router.admission.elsewhere import Elsewhere
from router.admission.evictions import QueueEvictions
from router.admission.extra import Extras
from router.admission.forecasts import Forecasts
from router.admission.gates.gate_cache import GateCache
from router.admission.headroom import Headroom
from router.admission.pool import Pool
from router.admission.rules import Rules
from router.admission.runs import Runs
from router.admission.service_rate import ServiceRate
from router.admission.timers import QueueTimers
from router.admission.waiting.choice import NOBODY, Choice
from router.admission.waiting.wait_lists import Orders, WaitLists
from router.config.model import Config
from router.core.errors import Reason
from router.core.replica_load import ReplicaLoad
from router.core.ttft_estimate import TtftEstimates
from router.core.urgency import HIGH

_NOBODY: Final[tuple[ReplicaLoad, ...]] = ()


class QueueState:
    """The parts of one queue: its waiting tickets, gates, timers and counters."""

    __slots__ = (
        "_choice",
        "_extras",
        "_forecasts",
        "_known",
        "_orders",
        "_service_rate",
        "_timers",
        "counts",
        "due",
        "elsewhere",
        "evictions",
        "gates",
        "headroom",
        "pool",
        "rules",
        "runs",
        "stride",
        "wait_lists",
        "yielding",
    )

    def __init__(
        self,
        config: Config,
        pool: Pool,
        *,
        orders: Orders | None = None,
        estimates: TtftEstimates | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """Create a queue from `config.queue` and `config.classes`.

        `orders`: shared by all queues between which tickets may move. `estimates`: what the router
        has learned about the errors of predicted times to first token; `None`: tickets get no
        estimate. Raises PolicyConfigError, and ConfigError if the addon of an extra is missing.
        """
        self.counts = counts = QueueCounts()
        self.due = due = Due()
        self.pool = pool
        self._orders = Orders() if orders is None else orders
        self._known = 0  # The number of replicas that was last passed to the order policy.
        self._service_rate = ServiceRate()
        self.rules = rules = Rules(config)
        self.headroom = Headroom()
        self.gates = gates = GateCache(pool, rules, self.headroom)
        self._extras = extras = Extras()
        if elsewhere is None:
            elsewhere = Elsewhere(self._orders.failures)
        self.elsewhere = elsewhere
        self._choice = Choice(rules, pool, extras, self.elsewhere)
        self.stride = self._choice.stride
        self.yielding = self._choice.yielding
        self.wait_lists = wait_lists = WaitLists(
            rules, self.stride, extras, self._service_rate, self._orders
        )
        self._forecasts = Forecasts(
            rules, pool, wait_lists, self.stride, self._service_rate, counts, estimates
        )
        self._timers = QueueTimers(rules, pool, wait_lists, gates, counts)
        self.evictions = QueueEvictions(rules, wait_lists, counts)
        self.runs = Runs(
            rules,
            gates,
            self.headroom,
            extras,
            wait_lists,
            counts,
            due,
            self._orders.failures,
        )
        extras.adopt(config, self)

    @property
    def next_at(self) -> float:
        """The latest time at which `tick` must be called next; infinity: no ticket waits."""
        return self.due.at

    @property
    def config(self) -> Config:
        return self.rules.config

    @property
    def is_fair(self) -> bool:
        """Whether the order policy shares capacity between flows.

        If it does, further requests of a user need no lower priority.
        """
        return self.rules.order.is_fair

    def absent_s(self, urgency: int) -> float:
        """Return how many seconds requests of a class wait for a fit replica if there is none."""
        return self.rules.classes[urgency].absent_s

    @property
    def waiting(self) -> int:
        """The number of waiting tickets."""
        return self.wait_lists.count

    @property
    def depth(self) -> list[int]:
        """The number of waiting tickets, by class."""
        return [self.wait_lists.holders.depth(urgency) for urgency in range(CLASSES)]

    @property
    def eligible(self) -> list[int]:
        """The number of waiting tickets that their API key's limit does not block, by class."""
        return list(self.wait_lists.eligible_of)

    def eligible_before(self, urgency: int, allowed: Allowed | None) -> int:
        """Return the number of eligible tickets that compete with a request of the same class.

        `allowed`: the regions to which the request may be sent; `None`: all regions. The tickets
        that compete may use all regions, or the same regions as the request.
        """
        found = 0
        for lane in self.wait_lists.active.values():
            class_queue = lane.class_queues[urgency]
            if class_queue is not None and class_queue.count:
                own = read_lane(lane.name)[1]
                if own is None or (allowed is not None and own.lane == allowed.lane):
                    found += class_queue.count
        return found

    @property
    def body_bytes(self) -> int:
        """The bytes of the bodies of all waiting requests."""
        return self.wait_lists.holders.held

    # -- what may be sent, or answered, now ----------------------------------------------------

    def passes(self, place: ReplicaLoad, urgency: int, now: float) -> bool:
        """Whether a request of a class may go to `place` without a ticket.

        If the result is true, the driver takes a lease on `place` and calls `passed` when the
        request ends. If the result is false, the driver calls `offer` with a ticket. Call this only
        while `is_passable` is true. A request of a class with a maximum share of slots needs a
        ticket, because its requests are counted.
        """
        if self.rules.classes[urgency].slots < 1.0 or not self.gates.admits(place, urgency):
            return False
        self.counts.passed[urgency] += 1
        return True

    @property
    def is_passable(self) -> bool:
        """Whether `passes` may be called.

        `passes` may not be called if a ticket is ready to be sent, or if an extra must count every
        request, or if requests wait at other routers.
        """
        return self.wait_lists.eligible == 0 and not self._extras.all and not self.elsewhere.waits

    def open_to(
        self, lane: str, urgency: int, places: Sequence[ReplicaLoad]
    ) -> Sequence[ReplicaLoad]:
        """Return the replicas among `places` to which a retry may be sent at once.

        The gates of these replicas are open to the class of the retry, and no urgent request waits
        for a slot there. The result is empty if a ticket of this class and lane waits.
        """
        if self.wait_lists.has(lane, urgency):
            return _NOBODY
        return self._open_of(places, urgency)

    def refused_late(self, urgency: int, *, was_passed: bool) -> None:
        """Count a request that the driver refuses instead of sending it at once.

        `was_passed`: whether `passes` has already counted the request as sent.
        """
        self.counts.dropped[Reason.TTFT_UNREACHABLE][urgency] += 1
        if was_passed:
            self.counts.passed[urgency] -= 1

    def allows_early_status(self, ticket: Ticket) -> bool:
        """Whether the client may be sent an early 200 now, before its request has been served.

        A waiting request with an early status is not evicted any more. The answer is False while a
        time limit may end the wait, or while no replica is fit, because then the right status may
        be 429, 503 or 408. Such a status can be sent only if no status was sent before.
        """
        is_limited = (
            ticket.deadline < INFINITY or self.rules.classes[ticket.urgency].wait_s < INFINITY
        )
        if ticket.state == WAITING:
            has_place = bool(self.pool.eligible(ticket.lane))
            return has_place and not is_limited and self.wait_lists.allows_early_status(ticket)
        if is_limited:
            # The request must not wait again, because a time limit could end its wait.
            self.runs.shown(ticket)
        ticket.has_early_status = True  # The flag is used if the ticket is put back into the queue.
        return True

    def _open_of(self, places: Sequence[ReplicaLoad], urgency: int) -> Sequence[ReplicaLoad]:
        """Return the replicas of `places` that take a request of the class now.

        While a critical or high request waits for a free slot of a replica, the replica takes no
        less urgent request if it has no free slot.
        """
        found = self.gates.open_of(places, urgency)
        if urgency > HIGH and self.wait_lists.urgent_waits():
            return [place for place in found if not self._is_kept_for_urgent(place)]
        return found

    def _is_kept_for_urgent(self, place: ReplicaLoad) -> bool:
        gate = self.gates.of(place)
        return self._choice.is_kept_for_urgent(gate, self.wait_lists.active, NOBODY)
