"""The parts of one queue, connected as in the queue, but without the queue that calls them."""

from typing import Any

from policies.queueing.ticket import ENDED, Ticket
from router.admission.counts import QueueCounts
from router.admission.elsewhere import Elsewhere
from router.admission.evictions import QueueEvictions
from router.admission.extra import Extra, Extras
from router.admission.gates.gate_cache import GateCache
from router.admission.headroom import Headroom
from router.admission.rules import Rules
from router.admission.service_rate import ServiceRate
from router.admission.timers import QueueTimers
from router.admission.waiting.choice import Choice
from router.admission.waiting.wait_lists import Orders, WaitLists
from tests.admission.world import Spot, Stand, config
from tests.tickets import make_ticket

PATIENT = {"wait_s": 1e6, "starvation_s": 1e6}


class Parts:
    """All replicas serve every lane, unless `stand.lanes` says otherwise."""

    def __init__(self, *spots: Spot, **fields: Any) -> None:
        """`fields`: settings of the section `queue`."""
        self.rules = Rules(config(**fields))
        self.order = self.rules.order
        self.stand = Stand(spots)
        self.orders = Orders()
        self.counts = QueueCounts()
        self.headroom = Headroom()
        self.gates = GateCache(self.stand, self.rules, self.headroom)
        self.extras = Extras()
        self.choice = Choice(self.rules, self.stand, self.extras, Elsewhere(self.orders.failures))
        self.service_rate = ServiceRate()
        self.wait_lists = WaitLists(
            self.rules,
            self.choice.stride,
            self.extras,
            self.service_rate,
            self.orders,
        )
        self.evictions = QueueEvictions(self.rules, self.wait_lists, self.counts)
        self.timers = QueueTimers(self.rules, self.stand, self.wait_lists, self.gates, self.counts)

    def use(self, extra: Extra) -> None:
        """Add an extra, which gets all calls of these parts."""
        self.extras.all = (*self.extras.all, extra)

    def waits(self, now: float = 0.0, **facts: Any) -> Ticket:
        """A ticket that begins to wait now. Its output is predicted."""
        ticket = make_ticket(**{"arrival": now, "output": 0, **facts})
        ticket.order = self.orders.next()
        self.enters(ticket, now)
        return ticket

    def enters(self, ticket: Ticket, now: float) -> None:
        self.wait_lists.holders.join(ticket)
        self.wait_lists.enter(ticket, now)

    def leaves(self, ticket: Ticket) -> None:
        self.wait_lists.drop(ticket, ENDED)

    def chosen(self, spot: Spot, now: float = 0.0) -> Ticket | None:
        """The ticket that would get a place at a replica; it continues to wait."""
        gate = self.gates.of(spot)
        self.gates.look(gate)
        return self.choice.next_for(gate, self.wait_lists.active, now)

    def served(self, spot: Spot, now: float = 0.0, most: int = 10**6) -> list[Ticket]:
        """The tickets that get places at a replica that is always free, one after the other."""
        found: list[Ticket] = []
        while len(found) < most and (ticket := self.chosen(spot, now)) is not None:
            ticket.class_queue.line.take(ticket, now)
            self.wait_lists.left(ticket, ENDED)
            found.append(ticket)
        return found
