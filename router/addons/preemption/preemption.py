"""Chooses a running request to preempt when a more urgent request waits for its capacity.

The victim is the newest request of the least urgent class that has shown no content event, because
its preemption wastes the least work. Its client notices only a delay, because the request returns
to its old position in the queue. A request that is not streamed shows no content before its end. It
may be preempted only for some seconds after its dispatch, because its decoded tokens are lost. A
request between two attempts holds no capacity, so it is not preempted.

An urgent request may also wait in the engine's own queue, while batch requests hold the engine's
slots. Then the last request that was sent to this replica before it is preempted, at most one for
each urgent request; an engine serves requests in the order of arrival. A stream that has shown
content is not preempted, even if it holds a slot.

No request is preempted at a replica if the routing policy would keep the urgent class away even
after the preemption, because then the freed slot would not be used.

After a preemption at a replica with a full KV cache, only the next poll shows the freed space. So
at one replica no second request is preempted within `_ROUND_S` seconds.

A budget limits preemptions. Every dispatch adds a fraction of one preemption to the budget, which
holds at most `_BURST` preemptions. No request is preempted more often than the configuration
allows.

Must never: stop a request itself; the driver does, and puts it back into the queue.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from policies.queueing.run import Run
from policies.queueing.ticket import CLASSES, Ticket
from router.admission.due import SOON_S, Ticked
from router.admission.extra import Extra
from router.admission.gates.gate_cache import CachedGate
from router.admission.queue_state import QueueState
from router.admission.waiting.class_queue import Lane
from router.core.replica_load import ReplicaLoad
from router.core.urgency import HIGH

_BURST: Final = 10.0
_ROUND_S: Final = 1.0
_LOOKS: Final = 64  # Maximum number of tickets that are examined to find one victim.


class Preemption(Extra):
    """Chooses the requests to preempt for one queue: keeps the candidates and the budget."""

    def __init__(self, queue: QueueState) -> None:
        self._queue = queue
        self._settings = queue.rules.config.queue.preemption
        self._budget = 1.0
        # By priority class: the running requests that may be preempted, in the order of their
        # dispatch.
        self._running: list[dict[Ticket, None]] = [{} for _ in range(CLASSES)]
        # Urgent requests that wait at a replica where batch requests hold slots, in the order of
        # dispatch.
        self._blocked: dict[Ticket, None] = {}
        # By replica: when a request was last preempted there, if that was less than `_ROUND_S`
        # seconds ago.
        self._last: dict[ReplicaLoad, float] = {}
        # Requests chosen as victims that have neither ended nor returned to the queue yet.
        self._asked: dict[Ticket, None] = {}

    # -- events -------------------------------------------------------------------------------

    def adopt(self) -> None:
        self._settings = self._queue.rules.config.queue.preemption
        self._blocked.clear()
        for running in self._running:
            running.clear()
        for ticket in self._queue.runs.tickets:
            self._list(ticket)

    def sent(self, ticket: Ticket, gate: CachedGate, now: float) -> None:
        self._budget = min(_BURST, self._budget + self._settings.budget)
        self._list(ticket)
        if ticket.urgency <= HIGH and gate.facts.batch and gate.facts.is_full():
            self._blocked[ticket] = None
            self._queue.due.by(now + self._settings.after_s)

    def moved(self, ticket: Ticket, now: float) -> None:
        self._list(ticket)

    def _list(self, ticket: Ticket) -> None:
        run, settings = ticket.run, self._settings
        if (
            run is not None
            and ticket.urgency >= settings.gap
            and run.preemptions < settings.times
            and not (run.has_shown or run.is_away or ticket in self._asked)
        ):
            self._running[ticket.urgency][ticket] = None

    def shown(self, ticket: Ticket) -> None:
        self._forget(ticket)

    def failed(self, ticket: Ticket) -> None:
        self.ended(ticket)

    def ended(self, ticket: Ticket) -> None:
        self._forget(ticket)
        self._asked.pop(ticket, None)

    def _forget(self, ticket: Ticket) -> None:
        self._blocked.pop(ticket, None)
        self._running[ticket.urgency].pop(ticket, None)

    # -- time ---------------------------------------------------------------------------------

    def urges(self, ticked: Ticked, now: float) -> None:
        """Choose a request to preempt for each critical or high ticket that waits too long."""
        self._at_engines(ticked, now)
        # Each request that is already being preempted frees capacity for one ticket.
        wanted = len(self._asked)
        for lane in list(self._queue.wait_lists.active.values()):
            wanted = self._in_lane(lane, wanted, ticked, now)

    def _at_engines(self, ticked: Ticked, now: float) -> None:
        """Choose a victim for each urgent request that waits too long for a slot of its engine."""
        after_s = self._settings.after_s
        for ticket in list(self._blocked):
            run = ticket.run
            if run is not None and now < run.sent_at + after_s:
                ticked.next_at = min(ticked.next_at, run.sent_at + after_s)
                return
            del self._blocked[ticket]
            victim = None if run is None else self._victim(ticket.urgency, None, run, now)
            if victim is not None:
                ticked.preempt.append(victim)

    def _in_lane(self, lane: Lane, wanted: int, ticked: Ticked, now: float) -> int:
        """Choose victims for the urgent tickets of a lane. `wanted`: the number of tickets for
        which requests are already being preempted. Returns this number for the next lane."""
        after_s = self._settings.after_s
        for class_queue in lane.class_queues[: HIGH + 1]:
            eldest = None if class_queue is None else class_queue.eldest()
            if class_queue is None or eldest is None:
                continue
            if now < eldest.arrival + after_s:
                ticked.next_at = min(ticked.next_at, eldest.arrival + after_s)
                continue
            missing = class_queue.count - wanted
            wanted = max(0, wanted - class_queue.count)
            for _ in range(missing):
                victim = self._victim(class_queue.urgency, lane.name, None, now)
                if victim is None:  # Tickets of other lanes may use other replicas.
                    ticked.next_at = min(ticked.next_at, now + SOON_S)
                    break
                ticked.preempt.append(victim)
        return wanted

    # -- the victim ---------------------------------------------------------------------------

    def _victim(
        self, urgency: int, lane: str | None, blocked: Run | None, now: float
    ) -> Ticket | None:
        """Return the request to preempt for a ticket of a lane, or for a sent request that is
        blocked at its replica.

        Returns `None` if there is no such request, or if the budget is used up. The victim counts
        as being preempted until it ends or is put back into the queue.
        """
        if self._budget < 1.0:
            return None
        if self._last:
            self._last = {p: at for p, at in self._last.items() if now < at + _ROUND_S}
        for ticket in self._newest(urgency + self._settings.gap):
            run = ticket.run
            if run is None or not self._may(ticket, run, now):
                continue
            if blocked is not None:
                frees = run.place is blocked.place and run.sent_at <= blocked.sent_at
            else:
                frees = lane is not None and self._frees(ticket, run.place, lane, urgency)
            if not frees:
                continue
            self._last[run.place] = now
            self._forget(ticket)
            self._budget -= 1.0
            self._asked[ticket] = None
            return ticket
        return None

    def _newest(self, least: int) -> list[Ticket]:
        """Return the first `_LOOKS` candidates, by class from batch to the class `least`, and in
        each class the one that was sent last first."""
        found: list[Ticket] = []
        for urgency in range(CLASSES - 1, least - 1, -1):
            found += islice(reversed(self._running[urgency]), _LOOKS - len(found))
        return found

    def _may(self, ticket: Ticket, run: Run, now: float) -> bool:
        """Whether a request may be preempted now: not too late, and not too soon after another one
        of the same replica. Several may be preempted at the same time."""
        if not ticket.view.stream and now - run.sent_at > self._settings.whole_s:
            return False
        return self._last.get(run.place, now) == now

    def _frees(self, ticket: Ticket, place: ReplicaLoad, lane: str, urgency: int) -> bool:
        """Whether a ticket of a lane and class could use the slot of a running request."""
        pool = self._queue.pool
        if not pool.serves(place, lane):
            return False
        # The routing policy may keep the urgent class away from the freed slot.
        return not pool.closed_to(place, ticket.urgency) & (1 << urgency)

    # -- for tests of bounded memory ----------------------------------------------------------

    def listed(self) -> int:
        """Return the number of requests that may be preempted."""
        return sum(len(running) for running in self._running)

    def asked(self) -> int:
        """Return the number of requests that are being preempted."""
        return len(self._asked)
