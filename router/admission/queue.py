"""The queue of one model pool. The package's docstring lists its guarantees and its calls.

Must never: do I/O, read a clock, or call back into its driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from policies.queueing.base import OrderPolicy
from policies.queueing.ticket import CLASSES, INFINITY, NEW, WAITING, Ticket
from router.admission.dispatches import LOOK_S
from router.admission.outcomes import Outcomes
from router.admission.timers import Ticked
from router.config.model import Config
from router.core.replica_load import ReplicaLoad

_AGAIN_S: Final = 1.0  # Delay in seconds of the next tick after a tick that raised an exception.


class Queue(Outcomes):
    """Holds the waiting tickets of one model pool and grants them places at replicas."""

    __slots__ = ()

    # -- time -----------------------------------------------------------------------------------

    def rebuilt(self, now: float) -> None:
        """Note that the set of fit replicas has changed. The driver calls `tick` next."""
        if self._wait_lists.count:
            self.next_at = min(self.next_at, now)
        for ticket in list(self._wait_lists.picky):
            self._ease(ticket)
            if not ticket.excluded:
                del self._wait_lists.picky[ticket]

    def tick(self, now: float) -> Ticked:
        """Do the periodic work (`timers.py`).

        The driver calls `tick` at `next_at` or earlier; any other call of the queue may move
        `next_at` to an earlier time.
        """
        ticked = Ticked()
        self.next_at = INFINITY
        if self._wait_lists.count:
            try:
                self._tick(ticked, now)
            except Exception as err:
                ticked.error = err
                self.next_at = now + _AGAIN_S
        return ticked

    def _tick(self, ticked: Ticked, now: float) -> None:
        wait_lists, timers = self._wait_lists, self._timers
        self.headroom.look(now)
        if self._rules.reservations:
            self._weigh(now)
        timers.age(ticked, now)
        if wait_lists.short:
            wait_lists.refill(now)
        for gate in self._gates.by_place.values():
            if gate.is_shut:
                gate.is_shut = now < gate.shut_until
                if gate.is_shut:
                    ticked.next_at = min(ticked.next_at, gate.shut_until)
            self._gates.look(gate)
        self._gates.look_if_replanned()
        if len(self._gates.by_place) != self._known:
            self._known = len(self._gates.by_place)
            try:
                self._rules.order.sized(self._known)
            except Exception as err:
                self._orders.failures.add("sized", err)
        self._dirty = False
        self._fill_all(ticked.granted, now)
        if wait_lists.count:
            if self._rules.reservations:
                ticked.next_at = min(ticked.next_at, now + LOOK_S)
            timers.urge(ticked, now)
            # A grant may have set an earlier time.
            self.next_at = min(self.next_at, ticked.next_at)

    # -- the fleet, and reloads -----------------------------------------------------------------

    def gone(self, place: ReplicaLoad) -> None:
        """Forget a replica that has left the fleet.

        Requests that were sent to it are settled as usual.
        """
        self._gates.forget(place)
        self._dirty = True

    def give_place(self, place: ReplicaLoad, to: Queue) -> None:
        """Move a replica to another queue, with what is known about its connections and its limit.

        The driver then hands over the requests that were sent to the replica (`hand_over`).
        """
        gate = self._gates.forget(place)
        self._dirty = True
        if gate is not None:
            to._gates.receive(gate)
            if gate.is_shut:
                to.next_at = min(to.next_at, gate.shut_until)

    def parted(self, queues: Mapping[str, Queue], default: Queue) -> list[Ticket]:
        """Remove and return the tickets whose model now belongs to another queue.

        `default`: the queue of models that no replica serves.
        """
        found = [t for t in self._wait_lists.tickets() if queues.get(t.model, default) is not self]
        for ticket in found:
            self._wait_lists.drop(ticket, NEW)
            if ticket.forecast is not None:
                ticket.forecast.is_waiting = False
        return found

    def set_lane(self, ticket: Ticket, lane: str, now: float) -> None:
        """Change the lane of a ticket, because its request may use other replicas than before.

        A waiting ticket keeps its place in the order of arrival.
        """
        if ticket.state != WAITING:
            ticket.lane = lane
            return
        self._wait_lists.drop(ticket, NEW)
        ticket.lane = lane
        self._wait(ticket, now)

    def adopt(self, config: Config, made: OrderPolicy | None = None) -> None:
        """Apply another configuration. Waiting tickets keep their order of arrival.

        The driver calls `tick` next. `made`: see `Rules.adopt`. Raises PolicyConfigError, and then
        changes nothing.
        """
        rules = self._rules
        was_reserved = rules.reservations
        is_other = rules.adopt(config, made)
        self._gates.look_at_all()
        if rules.reservations != was_reserved:
            self._recount()
        self._preemption.adopt(self._running)
        self._turns.outdate()
        self._wait_lists.holders.adopt(rules.bytes)
        if is_other:
            self._known = 0
            for ticket in self._running:
                # The new policy has charged none of these, and its unit may be another one.
                assert ticket.run is not None
                ticket.run.is_charged = False
            self._wait_lists.reline()

    def _recount(self) -> None:
        """Count the tokens of all requests again, because reservations were switched on or off."""
        is_on = self._rules.reservations
        used, waiting = [0] * CLASSES, [0] * CLASSES
        for gate in self._gates.by_place.values():
            gate.used = 0
        for ticket in self._running if is_on else ():
            self._predict(ticket)
            used[ticket.urgency] += ticket.reserved
            at = self._gates.by_place.get(ticket.place)
            if at is not None:
                at.used += ticket.reserved
        for ticket in self._wait_lists.tickets() if is_on else ():
            if ticket.blocked_in is None:
                waiting[ticket.urgency] += ticket.reserved
        self._reservations.recount(used, waiting)
        self._reservations.capacity = self._gates.capacity()
        self._weighed_at = -INFINITY
        self._dirty = True
