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

Must never: stop a request itself; it only returns the victim.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from policies.queueing.run import Run
from policies.queueing.ticket import CLASSES, SENT, Ticket
from router.admission.pool import Pool
from router.admission.rules import Rules
from router.core.replica_load import ReplicaLoad
from router.core.urgency import HIGH

_BURST: Final = 10.0
_ROUND_S: Final = 1.0
_LOOKS: Final = 64  # Maximum number of tickets that are examined to find one victim.


class Preemption:
    """Chooses the requests to preempt for one queue: keeps the candidates and the budget."""

    __slots__ = ("_blocked", "_budget", "_last", "_rules", "_running", "asked")

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
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
        self.asked = 0

    def adopt(self, sent: Iterable[Ticket]) -> None:
        """Note that the rules have changed. `sent`: the tickets that were sent and have not ended,
        in the order of their dispatch."""
        self._blocked.clear()
        for running in self._running:
            running.clear()
        if self._rules.preemption:
            for ticket in sent:
                run = ticket.run
                if run is not None and not (run.has_shown or run.is_preempting or run.is_away):
                    self._list(ticket, run)

    def sent(self, ticket: Ticket, run: Run) -> None:
        self._budget = min(_BURST, self._budget + self._rules.preempt_budget)
        self._list(ticket, run)

    def blocked(self, ticket: Ticket) -> None:
        """Note that an urgent request was sent to a replica where batch requests hold the slots."""
        self._blocked[ticket] = None

    def first_blocked(self) -> Ticket | None:
        """Return the blocked urgent request that was sent first and for which no request was
        preempted yet."""
        for ticket in self._blocked:
            return ticket
        return None

    def before(self, ticket: Ticket, now: float) -> Ticket | None:
        """Return the request to preempt for a blocked request, and remove the blocked request from
        the list.

        Returns `None` if there is no such request, or if the budget is used up.
        """
        del self._blocked[ticket]
        run = ticket.run
        if run is None:
            return None
        return self._victim(ticket.urgency, None, run, None, now)

    def _list(self, ticket: Ticket, run: Run) -> None:
        rules = self._rules
        if ticket.urgency >= rules.preempt_gap and run.preemptions < rules.preempt_most:
            self._running[ticket.urgency][ticket] = None

    def shown(self, ticket: Ticket) -> None:
        """Note that a request has shown content; it is not preempted any more."""
        self._forget(ticket)

    def moved(self, ticket: Ticket, run: Run) -> None:
        """Note that a request is at a replica again, after a pause before a retry."""
        self._list(ticket, run)

    def ended(self, ticket: Ticket, run: Run) -> None:
        """Note that a request has ended, is back in the queue, or pauses before a retry."""
        self._forget(ticket)
        if run.is_preempting:
            run.is_preempting = False
            self.asked -= 1

    def _forget(self, ticket: Ticket) -> None:
        self._blocked.pop(ticket, None)
        running = self._running[ticket.urgency]
        if ticket in running:
            del running[ticket]

    def wants(self, urgency: int) -> bool:
        """Whether this class may preempt requests of other classes."""
        return self._rules.preemption and urgency <= HIGH

    def victim(self, urgency: int, lane: str, pool: Pool, now: float) -> Ticket | None:
        """Return the request to preempt for a ticket of this class and lane.

        Returns `None` if there is no such request, or if the budget is used up. The victim counts
        in `asked` until it ends or is put back into the queue.
        """
        return self._victim(urgency, lane, None, pool, now)

    def _victim(
        self, urgency: int, lane: str | None, blocked: Run | None, pool: Pool | None, now: float
    ) -> Ticket | None:
        """Return the request to preempt for a ticket of a lane, or for a sent request that is
        blocked at its replica."""
        if self._budget < 1.0:
            return None
        if self._last:
            self._last = {p: at for p, at in self._last.items() if now < at + _ROUND_S}
        looks = _LOOKS
        for other in range(CLASSES - 1, urgency + self._rules.preempt_gap - 1, -1):
            for ticket in self._newest(other):
                looks -= 1
                if looks < 0:
                    return None
                run = ticket.run
                if run is None or not self._may(ticket, run, now):
                    continue
                place: ReplicaLoad = run.place
                if blocked is not None:
                    if place is not blocked.place or run.sent_at > blocked.sent_at:
                        continue
                elif pool is None or lane is None or not pool.serves(place, lane):
                    continue
                elif pool.closed_to(place, other) & (1 << urgency):
                    # The routing policy would keep the urgent class away from the freed slot.
                    continue
                last = self._last.get(place, now)
                if last != now and now < last + _ROUND_S:
                    continue
                self._last[place] = now
                self._forget(ticket)
                self._budget -= 1.0
                run.is_preempting = True
                self.asked += 1
                return ticket
        return None

    def _newest(self, urgency: int) -> Iterator[Ticket]:
        return reversed(self._running[urgency])

    def _may(self, ticket: Ticket, run: Run, now: float) -> bool:
        if ticket.state != SENT or run.is_preempting:
            return False
        return ticket.view.stream or now - run.sent_at <= self._rules.preempt_whole_s

    def listed(self) -> int:
        """The number of requests that may be preempted, for tests of bounded memory."""
        return sum(len(running) for running in self._running)
