"""Holds the parts of one queue, and provides the numbers that reports and metrics read.

The queue is one object, whose class is written in layers: `QueueState`, `Arrivals`, `Dispatches`,
`Outcomes`, `Queue`. Each class in this list is derived from the class before it, and calls only its
own and inherited methods. So compiled code reaches every field and method directly.

Must never: add, send or end a ticket.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from policies.allowed import Allowed, read_lane
from policies.queueing.flow_identity import FlowIdentity
from policies.queueing.ticket import CLASSES, INFINITY, Ticket
from router.admission.counts import QueueCounts
from router.admission.gates.gate_cache import GateCache
from router.admission.headroom import Headroom
from router.admission.output_lengths import OutputPredictor
from router.admission.pool import Pool
from router.admission.preemption import Preemption
from router.admission.rules import Rules
from router.admission.service_rate import ServiceRate
from router.admission.timers import Expired, QueueTimers
from router.admission.turn_model import TurnModel
from router.admission.wait_forecast import WaitForecaster
from router.admission.wait_progress import WaitProgress
from router.admission.waiting.choice import Choice
from router.admission.waiting.reservations import Reservations
from router.admission.waiting.wait_lists import Orders, WaitLists
from router.config.model import Config
from router.core.replica_load import ReplicaLoad
from router.core.ttft_estimate import TtftEstimates
from router.core.urgency import CRITICAL, HIGH

# The largest predicted output of one request, in tokens. A request is charged its prediction until
# it ends, so a client must not be able to choose the prediction. In `cost`, this output counts as
# much as a prompt of 131,072 tokens, which is the context length of many models.
MOST_PREDICTED: Final = 65_536


class QueueState:
    """The parts of one queue: its waiting tickets, gates, timers and counters."""

    __slots__ = (
        "_choice",
        "_dirty",
        "_estimates",
        "_forecaster",
        "_gates",
        "_known",
        "_orders",
        "_outputs",
        "_pool",
        "_preemption",
        "_progress",
        "_reservations",
        "_rules",
        "_running",
        "_service_rate",
        "_timers",
        "_turns",
        "_wait_lists",
        "_weighed_at",
        "counts",
        "evicted",
        "headroom",
        "next_at",
    )

    def __init__(
        self,
        config: Config,
        pool: Pool,
        *,
        orders: Orders | None = None,
        estimates: TtftEstimates | None = None,
    ) -> None:
        """Create a queue from `config.queue` and `config.classes`.

        `orders`: shared by all queues between which tickets may move. `estimates`: what the router
        has learned about the errors of predicted times to first token; `None`: tickets get no
        estimate. Raises PolicyConfigError.
        """
        self.counts = QueueCounts()
        # Latest time at which `tick` must be called next; infinity: no ticket waits.
        self.next_at = INFINITY
        # Tickets that were evicted. The driver reads them after `offer` and answers their clients.
        self.evicted: list[Expired] = []
        self._pool = pool
        self._orders = Orders() if orders is None else orders
        self._weighed_at = -INFINITY
        self._known = 0  # The number of replicas that was last passed to the order policy.
        # Reservations or replicas have changed, so any replica may accept one more request.
        self._dirty = False
        # The tickets that were sent and have not ended, in the order of dispatch. Those of another
        # queue are in the order in which they were taken over. A reload may have to count their
        # tokens again.
        self._running: dict[Ticket, None] = {}
        self._outputs = OutputPredictor()
        self._service_rate = ServiceRate()
        self._forecaster = WaitForecaster()
        self._progress = WaitProgress()
        self._estimates = estimates
        self._rules = Rules(config)
        self.headroom = Headroom()
        self._gates = GateCache(pool, self._rules, self.headroom)
        self._reservations = Reservations(self._rules)
        self._preemption = Preemption(self._rules)
        self._choice = Choice(self._rules, pool, self._reservations)
        self._turns = TurnModel(self._rules, self._choice.stride)
        self._wait_lists = WaitLists(
            self._rules,
            self._choice.stride,
            self._reservations,
            self._service_rate,
            self._orders,
        )
        self._timers = QueueTimers(
            self._rules,
            pool,
            self._wait_lists,
            self._gates,
            self._preemption,
            self.counts,
        )

    @property
    def config(self) -> Config:
        return self._rules.config

    @property
    def is_fair(self) -> bool:
        """Whether the order policy shares capacity between flows.

        If it does, further requests of a user need no lower priority.
        """
        return self._rules.order.is_fair

    def absent_s(self, urgency: int) -> float:
        """Return how many seconds requests of a class wait for a fit replica if there is none."""
        return self._rules.classes[urgency].absent_s

    @property
    def waiting(self) -> int:
        """The number of waiting tickets."""
        return self._wait_lists.count

    @property
    def depth(self) -> list[int]:
        """The number of waiting tickets, by class."""
        return [self._wait_lists.holders.depth(urgency) for urgency in range(CLASSES)]

    @property
    def eligible(self) -> list[int]:
        """The number of waiting tickets that their API key's limit does not block, by class."""
        return list(self._wait_lists.eligible_of)

    def eligible_before(self, urgency: int, allowed: Allowed | None) -> int:
        """Return the number of eligible tickets that compete with a request of the same class.

        `allowed`: the regions to which the request may be sent; `None`: all regions. The tickets
        that compete may use all regions, or the same regions as the request.
        """
        found = 0
        for lane in self._wait_lists.active.values():
            class_queue = lane.class_queues[urgency]
            if class_queue is not None and class_queue.count:
                own = read_lane(lane.name)[1]
                if own is None or (allowed is not None and own.lane == allowed.lane):
                    found += class_queue.count
        return found

    @property
    def body_bytes(self) -> int:
        """The bytes of the bodies of all waiting requests."""
        return self._wait_lists.holders.held

    # -- read by all layers ---------------------------------------------------------------------

    def expected_output(self, flow: FlowIdentity) -> int:
        """Return the expected output tokens of one choice of the flow's next answer."""
        return self._outputs.predict(flow)

    def _predict(self, ticket: Ticket) -> None:
        view = ticket.view
        if not view.decodes:
            view.output_tokens = 0
        elif view.output_tokens < 0:
            output = self.expected_output(ticket.flow)
            limit = view.output_limit
            if 0 <= limit < output:
                output = limit
            view.output_tokens = min(output * view.choices, MOST_PREDICTED)

    def _urgent_waits(self) -> bool:
        """Whether a critical or high request waits that the limit of its API key does not block."""
        eligible = self._wait_lists.eligible_of
        return eligible[CRITICAL] + eligible[HIGH] > 0

    def _open_of(self, places: Sequence[ReplicaLoad], urgency: int) -> Sequence[ReplicaLoad]:
        """Return the replicas of `places` that take a request of the class now.

        While a critical or high request waits for a free slot of a replica, the replica takes no
        less urgent request if it has no free slot.
        """
        found = self._gates.open_of(places, urgency)
        if urgency > HIGH and self._urgent_waits():
            return [place for place in found if not self._is_kept_for_urgent(place)]
        return found

    def _is_kept_for_urgent(self, place: ReplicaLoad) -> bool:
        """Whether a critical or high request waits for the next free slot of this replica.

        An urgent request that is limited to other regions may not be sent to the replica, so it
        does not keep other requests away from the replica.
        """
        if not self._gates.of(place).needs_slot():
            return False
        for lane in self._wait_lists.active.values():
            for class_queue in lane.class_queues[: HIGH + 1]:
                if (
                    class_queue is not None
                    and class_queue.count
                    and self._pool.serves(place, lane.name)
                ):
                    return True
        return False

    # -- for reports, metrics and tests ---------------------------------------------------------

    def places(self) -> list[ReplicaLoad]:
        """Return the replicas for which this queue has a gate."""
        return list(self._gates.by_place)

    def running(self) -> list[Ticket]:
        """Return the tickets that were sent and have not ended."""
        return list(self._running)

    def waiting_of(self, models: Container[str]) -> int:
        """Return the number of tickets that wait for these models."""
        return sum(1 for ticket in self._wait_lists.tickets() if ticket.model in models)

    def flows(self) -> dict[tuple[str, str], int]:
        """Return the number of waiting tickets, by account and member."""
        return self._wait_lists.holders.by_flow()

    def ages_s(self, now: float) -> list[float]:
        """Return the seconds that each class's oldest ticket has waited; 0: no ticket waits."""
        return self._wait_lists.ages_s(now)

    def tickets(self) -> list[Ticket]:
        """Return all waiting tickets, in no particular order."""
        return self._wait_lists.tickets()

    def held_tokens(self, urgency: int) -> float:
        """Return the tokens that are reserved for the class now, in addition to those it uses."""
        return self._reservations.held(urgency)

    def used_tokens(self, urgency: int) -> int:
        return self._reservations.used[urgency]

    def is_open(self, place: ReplicaLoad, urgency: int) -> bool:
        """Whether a replica may take one more request of the class."""
        return bool(self._gates.of(place).mask & (1 << urgency))

    def why_closed(self, place: ReplicaLoad, urgency: int) -> str:
        """Return why a replica takes no more requests of the class; "": it takes one.

        `connect` means a failed connection (`GateCache.shut`). `gate.OBSTACLES` lists the other
        texts.
        """
        return self._gates.why_closed(place, urgency)
