"""Does the periodic work for waiting tickets: promotion, expiry and early polls.

Every tick returns the exact time of the next one, so a virtual clock needs no other ticks.

Must never: send a ticket.
"""

from __future__ import annotations

from typing import Final

from policies.queueing.ticket import CLASSES, ENDED, INFINITY, Ticket
from router.admission.counts import GONE, QueueCounts
from router.admission.due import Expired, Ticked
from router.admission.gates.gate_cache import GateCache
from router.admission.pool import Pool
from router.admission.rules import Rules
from router.admission.waiting.class_queue import ClassQueue, Lane
from router.admission.waiting.wait_lists import WaitLists
from router.core.errors import Reason, RouterError
from router.core.urgency import CLASSES as NAMES, HIGH

# Maximum promotions or expiries of a class queue per tick; the other tickets follow in the next
# tick.
_AT_ONCE: Final = 1024
# Seconds added to the time at which a ticket's age changes its class, so that the tick comes later.
_MOMENT_S: Final = 1e-3
# Retry-After in seconds if no replica is up: the usual time of an engine's start and a probe.
_BACK_S: Final = 10
# Seconds between two early polls of a replica. (An early poll comes before the regular time.) A
# page of metrics costs vLLM 0.32 about 5 ms, and its gauges lag by up to a second, so more polls
# would be useless.
EARLY_S: Final = 0.5
# Maximum seconds between two early polls; the interval grows while polls change nothing.
_SELDOM_S: Final = 1.0
_OVER: Final = {
    Reason.QUEUE_TIMEOUT: "the request waited in the queue for longer than allowed",
    Reason.DEADLINE_PASSED: "the client's deadline passed while the request waited in the queue",
    Reason.NO_REPLICA: "no replica came up while the request waited",
}
_BLOCKED: Final = "the key's limit of concurrent requests was reached while the request waited"


def _over(ticket: Ticket, wait_s: float) -> float:
    """Return the time at which a ticket has waited for `wait_s` seconds.

    The time of the ticket at a replica before a preemption is excluded.
    """
    run = ticket.run
    return ticket.arrival + wait_s if run is None else ticket.arrival + run.ran_s + wait_s


class QueueTimers:
    """The timers of one queue."""

    __slots__ = ("_counts", "_gates", "_pool", "_rules", "_wait_lists")

    def __init__(
        self,
        rules: Rules,
        pool: Pool,
        wait_lists: WaitLists,
        gates: GateCache,
        counts: QueueCounts,
    ) -> None:
        self._rules = rules
        self._pool = pool
        self._wait_lists = wait_lists
        self._gates = gates
        self._counts = counts

    def age(self, ticked: Ticked, now: float) -> None:
        """Expire tickets that have waited too long or whose model was removed, and mark old tickets
        as starved."""
        for lane in list(self._wait_lists.active.values()):
            self._age_lane(lane, ticked, now)
        ticket = self._wait_lists.next_deadline()
        while ticket is not None and ticket.deadline <= now:
            self._expire(ticket, Reason.DEADLINE_PASSED, ticked, now)
            ticket = self._wait_lists.next_deadline()
        if ticket is not None:
            ticked.next_at = min(ticked.next_at, ticket.deadline)

    def _age_lane(self, lane: Lane, ticked: Ticked, now: float) -> None:
        places = self._pool.eligible(lane.name)
        self._gates.of_all(places)
        refusal = None if places else self._pool.refusal(lane.name)
        absent_since = INFINITY if places else self._pool.absent_since(lane.name)
        for class_queue in lane.all_queues():
            if not class_queue.count:
                continue
            gone_at = absent_since + self._rules.classes[class_queue.urgency].absent_s
            many = self._end_oldest(class_queue, refusal, gone_at, ticked, now)
            eldest = class_queue.eldest()
            if eldest is not None:
                due = self._age(class_queue, eldest, many, ticked, now)
                ticked.next_at = min(ticked.next_at, due, gone_at)

    def _end_oldest(
        self,
        class_queue: ClassQueue,
        refusal: RouterError | None,
        gone_at: float,
        ticked: Ticked,
        now: float,
    ) -> int:
        """End the oldest tickets of a class queue whose wait is over, at most `_AT_ONCE`.

        `refusal`: the error for all tickets; `None`: they may wait. `gone_at`: the time at which
        they have waited too long for a fit replica. Returns how many more may end in this tick.
        """
        wait_s = self._rules.classes[class_queue.urgency].wait_s
        reason = Reason.NO_REPLICA if now >= gone_at else Reason.QUEUE_TIMEOUT
        for many in range(_AT_ONCE, 0, -1):
            eldest = class_queue.eldest()
            if eldest is None:
                return many
            if refusal is not None:
                self._refuse(eldest, refusal, ticked)
            elif now >= gone_at or now >= _over(eldest, wait_s):
                self._expire(eldest, reason, ticked, now)
            else:
                return many
        return 0

    def _age(
        self, class_queue: ClassQueue, eldest: Ticket, many: int, ticked: Ticked, now: float
    ) -> float:
        """Expire younger tickets of a class queue and mark old ones as starved; `many`: see
        `_end_oldest`. Returns the time at which the class queue must be looked at again."""
        own = self._rules.classes[class_queue.urgency]
        if eldest.run is not None and own.wait_s < INFINITY and many:
            self._expire_behind(class_queue, own.wait_s, ticked, now)
        if eldest.blocked_in is not None:  # Only the timeout applies to a blocked ticket.
            return now if not many else _over(eldest, own.wait_s)
        promoted = class_queue.promote(now, own.promote_s, _AT_ONCE)
        self._counts.promoted[class_queue.urgency] += promoted
        return now if not many or promoted == _AT_ONCE else self._due(class_queue, eldest, now)

    def _expire_behind(
        self, class_queue: ClassQueue, wait_s: float, ticked: Ticked, now: float
    ) -> None:
        """Expire tickets behind the oldest ticket, which was put back and does not expire yet.

        The time that the oldest ticket was at a replica is not waiting time, so younger tickets may
        have waited longer.
        """
        expired = 0
        for ticket in class_queue.oldest(_AT_ONCE):
            over_at = _over(ticket, wait_s)
            if over_at > now:
                ticked.next_at = min(ticked.next_at, over_at)
                if ticket.run is None:
                    return  # All younger tickets expire later.
            elif class_queue.has(ticket):  # A ticket that was put back may be in the list twice.
                self._expire(ticket, Reason.QUEUE_TIMEOUT, ticked, now)
                expired += 1
        if expired:
            ticked.next_at = now  # More tickets may have to expire.

    def _due(self, class_queue: ClassQueue, eldest: Ticket, now: float) -> float:
        """Return when the next ticket of a class queue times out, is promoted, or changes its class
        by age."""
        rules = self._rules
        own = rules.classes[class_queue.urgency]
        due = _over(eldest, own.wait_s)
        young = class_queue.eldest_young()
        if young is not None:
            due = min(due, max(now, young.arrival + own.promote_s))
        if class_queue.urgency > HIGH and rules.aging > 0.0:
            level = rules.aged(float(class_queue.urgency), now - eldest.arrival)
            # A lower level already has the gate of class high, where aging ends.
            if level >= HIGH + 0.5:
                # The time at which the level has fallen to the gate of the next more urgent class.
                half = int(level + 0.5) - 0.5
                at = eldest.arrival + (class_queue.urgency - half) / rules.aging + _MOMENT_S
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
        """End the wait of a ticket whose model was removed from the fleet."""
        self._wait_lists.drop(ticket, ENDED)
        self._counts.dropped[GONE][ticket.urgency] += 1
        ticked.expired.append(Expired(ticket, error))

    def poll_early(self, ticked: Ticked, now: float) -> None:
        """Request polls of replicas whose gate is closed by counts that only a poll can update.

        Call this after all grants, for the tickets that still wait.
        """
        wanting = self._wanting()
        for gate in self._gates.by_place.values():
            place = gate.place
            if not wanting & ~gate.mask:
                continue
            # Other clients' requests hold slots, so they close the gate if the number of slots is
            # known.
            foreign = place.foreign_load if gate.facts.is_full() else place.foreign_waiting
            polled = place.whole_seen + foreign
            if place.whole_older + place.whole_fresh + polled <= 0:
                continue
            if now >= gate.poll_at:
                # As long as a poll changes nothing, the interval between early polls grows.
                gate.poll_s = min(_SELDOM_S, max(EARLY_S, 2.0 * gate.poll_s))
                gate.poll_at = now + gate.poll_s
                ticked.polls.append(place)
            ticked.next_at = min(ticked.next_at, gate.poll_at)

    def _wanting(self) -> int:
        """Return the classes with a waiting ticket that is not blocked, as bits."""
        found = 0
        for urgency in range(CLASSES):
            if self._wait_lists.eligible_of[urgency]:
                found |= 1 << urgency
        return found
