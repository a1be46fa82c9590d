"""Does what time makes due for waiting tickets: promotion, expiry, preemption and early polls.

Every tick returns the exact time of the next one, so a virtual clock needs no other ticks.

Must never: send a ticket.
"""

from __future__ import annotations

from typing import Final

from policies.queueing.ticket import CLASSES, ENDED, INFINITY, Ticket
from router.admission.counts import GONE, QueueCounts
from router.admission.gates.gate_cache import GateCache
from router.admission.pool import Pool
from router.admission.preemption import Preemption
from router.admission.rules import Rules
from router.admission.waiting.class_queue import ClassQueue, Lane
from router.admission.waiting.wait_lists import WaitLists
from router.core.errors import Reason, RouterError
from router.core.replica_load import ReplicaLoad
from router.core.urgency import CLASSES as NAMES
from router.core.urgency import HIGH

# maximum promotions or expiries of a class queue per tick; the rest follows in the next
_AT_ONCE: Final = 1024
_SOON_S: Final = 0.1
_MOMENT_S: Final = 1e-3  # time after a boundary, to be clearly beyond it
_BACK_S: Final = 10  # minimum time until a replica may be back: a probe's interval and a start
# Between two early polls of a replica: a page of metrics costs vLLM 0.32 about 5 ms, and its values
# change no faster than its gauges, which lag by up to a second.
EARLY_S: Final = 0.5
_SELDOM_S: Final = 1.0  # ... at most, while polls change nothing
_OVER: Final = {
    Reason.QUEUE_TIMEOUT: "no replica had room in time",
    Reason.DEADLINE_PASSED: "the deadline has passed while the request waited",
    Reason.NO_REPLICA: "no replica came up in time",
}
_BLOCKED: Final = "the key had as many requests at replicas as it may until the time was over"


def _over(ticket: Ticket, wait_s: float) -> float:
    """The time at which a ticket's wait reaches `wait_s`. Time at a replica before a preemption is
    excluded.
    """
    run = ticket.run
    return ticket.arrival + wait_s if run is None else ticket.arrival + run.ran_s + wait_s


class Expired:
    """A ticket that left the queue without a replica, and the error for its client."""

    __slots__ = ("error", "ticket")

    def __init__(self, ticket: Ticket, error: RouterError) -> None:
        self.ticket = ticket
        self.error = error


class Ticked:
    """Actions after a tick, in this order."""

    __slots__ = ("expired", "granted", "next_at", "polls", "preempt")

    def __init__(self) -> None:
        self.expired: list[Expired] = []  # answer them; no other action
        self.granted: list[Ticket] = []  # each has its `place`: like tickets from `freed`
        self.preempt: list[Ticket] = []  # cancel them at their `place`, then `requeue` or `settle`
        self.polls: list[ReplicaLoad] = []  # poll them now: a waiting request depends on their load
        self.next_at = INFINITY  # when the next tick is due; infinity: nothing waits


class QueueTimers:
    """The timers of one queue."""

    __slots__ = ("_counts", "_gates", "_pool", "_preemption", "_rules", "_wait_lists")

    def __init__(
        self,
        rules: Rules,
        pool: Pool,
        wait_lists: WaitLists,
        gates: GateCache,
        preemption: Preemption,
        counts: QueueCounts,
    ) -> None:
        self._rules = rules
        self._pool = pool
        self._wait_lists = wait_lists
        self._gates = gates
        self._preemption = preemption
        self._counts = counts

    def adopt(self, rules: Rules) -> None:
        self._rules = rules

    def age(self, ticked: Ticked, now: float) -> None:
        """Expire tickets that have waited too long or whose model was removed, and promote tickets
        that starve."""
        for lane in list(self._wait_lists.active.values()):
            self._age_lane(lane, ticked, now)
        ticket = self._wait_lists.next_deadline()
        while ticket is not None and ticket.deadline <= now:
            self._expire(ticket, Reason.DEADLINE_PASSED, ticked, now)
            ticket = self._wait_lists.next_deadline()
        if ticket is not None:
            ticked.next_at = min(ticked.next_at, ticket.deadline)

    def urge(self, ticked: Ticked, now: float) -> None:
        """For tickets that still wait after all grants: choose victims and early polls."""
        if self._rules.preemption:
            self._preempt(ticked, now)
        self._poll_early(ticked, now)

    def _age_lane(self, lane: Lane, ticked: Ticked, now: float) -> None:
        rules = self._rules
        places = self._pool.eligible(lane.name)
        self._gates.of_all(places)
        refusal = None if places else self._pool.refusal(lane.name)
        absent_since = INFINITY if places else self._pool.absent_since(lane.name)
        for row in lane.all_rows():
            if not row.count:
                continue
            own = rules.classes[row.urgency]
            gone_at = absent_since + own.absent_s
            gone = now >= gone_at
            many = _AT_ONCE
            eldest = row.eldest()
            while refusal is not None and eldest is not None and many:
                self._refuse(eldest, refusal, ticked)
                many -= 1
                eldest = row.eldest()
            while eldest is not None and many and (gone or now >= _over(eldest, own.wait_s)):
                reason = Reason.NO_REPLICA if gone else Reason.QUEUE_TIMEOUT
                self._expire(eldest, reason, ticked, now)
                many -= 1
                eldest = row.eldest()
            if eldest is None:
                continue
            if eldest.blocked_in is not None:  # only its timeout can end this wait
                due = now if not many else _over(eldest, own.wait_s)
                ticked.next_at = min(ticked.next_at, due, gone_at)
                continue
            promoted = row.promote(now, own.promote_s, _AT_ONCE)
            self._counts.promoted[row.urgency] += promoted
            due = now if not many or promoted == _AT_ONCE else self._due(row, eldest, now)
            ticked.next_at = min(ticked.next_at, due, gone_at)

    def _due(self, row: ClassQueue, eldest: Ticket, now: float) -> float:
        """The next time at which a class queue changes without an event."""
        rules = self._rules
        own = rules.classes[row.urgency]
        due = _over(eldest, own.wait_s)
        young = row.eldest_young()
        if young is not None:
            due = min(due, max(now, young.arrival + own.promote_s))
        if row.urgency > HIGH and rules.aging > 0.0:
            level = rules.aged(float(row.urgency), now - eldest.arrival)
            if level > HIGH:
                # The next half step, beyond which the gate of another class applies.
                half = int(level + 0.5) - 0.5
                at = eldest.arrival + (row.urgency - half) / rules.aging + _MOMENT_S
                if at > now:
                    due = min(due, at)
        return due

    def _expire(self, ticket: Ticket, reason: Reason, ticked: Ticked, now: float) -> None:
        urgency = ticket.urgency
        over = _OVER[reason]
        retry_after_s = _BACK_S
        if reason is not Reason.NO_REPLICA:
            retry_after_s = self._wait_lists.retry_after_s(
                urgency, self._wait_lists.holders.depth(urgency), now
            )
            if ticket.blocked_in is not None:
                over = _BLOCKED
        self._wait_lists.drop(ticket, ENDED)
        self._counts.dropped[reason][urgency] += 1
        error = RouterError(
            reason,
            f"{over} (class {NAMES[urgency]}, {now - ticket.arrival:.1f} s)",
            retry_after_s=retry_after_s,
        )
        ticked.expired.append(Expired(ticket, error))

    def _refuse(self, ticket: Ticket, error: RouterError, ticked: Ticked) -> None:
        """Its model was removed from the fleet, so no wait would help."""
        self._wait_lists.drop(ticket, ENDED)
        self._counts.dropped[GONE][ticket.urgency] += 1
        ticked.expired.append(Expired(ticket, error))

    def _preempt(self, ticked: Ticked, now: float) -> None:
        """Choose one victim for each urgent ticket that has waited long enough."""
        preemption = self._preemption
        after_s = self._rules.preempt_after_s
        wanted = preemption.asked
        for lane in self._wait_lists.active.values():
            for row in lane.rows:
                if row is None or not row.count or not preemption.wants(row.urgency):
                    continue
                eldest = row.eldest()
                if eldest is None:
                    continue
                if now < eldest.arrival + after_s:
                    ticked.next_at = min(ticked.next_at, eldest.arrival + after_s)
                    continue
                # Requests already being preempted make room for as many tickets.
                missing = row.count - wanted
                wanted = max(0, wanted - row.count)
                while missing > 0:
                    victim = preemption.victim(row.urgency, lane.name, self._pool, now)
                    if victim is None:
                        ticked.next_at = min(ticked.next_at, now + _SOON_S)
                        return
                    ticked.preempt.append(victim)
                    missing -= 1

    def _poll_early(self, ticked: Ticked, now: float) -> None:
        """Request a poll of each replica that is closed by counts that only a poll can correct."""
        wanting = self._wanting()
        for gate in self._gates.by_place.values():
            place = gate.place
            if not wanting & ~gate.mask:
                continue
            polled = place.whole_seen + place.foreign_waiting
            if place.whole_older + place.whole_fresh + polled <= 0:
                continue
            if now >= gate.poll_at:
                # As long as a poll changes nothing, the interval grows.
                gate.poll_s = min(_SELDOM_S, max(EARLY_S, 2.0 * gate.poll_s))
                gate.poll_at = now + gate.poll_s
                ticked.polls.append(place)
            ticked.next_at = min(ticked.next_at, gate.poll_at)

    def _wanting(self) -> int:
        """The classes with a waiting ticket that is not blocked, as bits."""
        found = 0
        for urgency in range(CLASSES):
            if self._wait_lists.eligible_of[urgency]:
                found |= 1 << urgency
        return found
