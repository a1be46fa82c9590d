"""Decides whether a new request may wait, and evicts requests that wait if it needs their space,
connection or memory.

Must never: evict a request of a flow that is not larger than the flow of the new request.
"""

from __future__ import annotations

from typing import Final

from policies.queueing.ticket import CLASSES, ENDED, Ticket
from router.admission.counts import EVICTED, QueueCounts
from router.admission.due import Expired
from router.admission.rules import Rules
from router.admission.waiting.wait_lists import WaitLists
from router.core.errors import Reason, RouterError
from router.core.urgency import CLASSES as NAMES

GIVE_WAY: Final = 64  # Maximum evictions for one new request.


class QueueEvictions:
    """The evictions of one queue."""

    __slots__ = ("_counts", "_rules", "_wait_lists", "evicted")

    def __init__(self, rules: Rules, wait_lists: WaitLists, counts: QueueCounts) -> None:
        self._rules = rules
        self._wait_lists = wait_lists
        self._counts = counts
        # The tickets that were evicted. The driver takes them and answers their clients.
        self.evicted: list[Expired] = []

    def refuses(self, ticket: Ticket) -> Reason | None:
        """Return the reason why a new request may not wait; None: the request may wait.

        `Holders.join` must have been called for the new request.
        """
        rules, holders = self._rules, self._wait_lists.holders
        if holders.waiting_of(ticket) >= rules.flow_depth:
            return Reason.QUEUE_FLOW_FULL
        if holders.depth(ticket.urgency) >= rules.classes[ticket.urgency].depth:
            return Reason.QUEUE_FULL
        if holders.held + ticket.view.body_bytes > rules.bytes:
            return Reason.QUEUE_BYTES_FULL
        return None

    def give_way(self, ticket: Ticket) -> tuple[list[Ticket], Reason | None]:
        """Return the waiting tickets to evict, so that a new request may wait.

        If evictions cannot make enough room, the result is an empty list and the reason.
        `Holders.join` must have been called for the new request.
        """
        holders = self._wait_lists.holders
        refused = self.refuses(ticket)
        victims: list[Ticket] = []
        while refused is not None:
            victim = self._next(ticket, refused, GIVE_WAY - len(victims))
            if victim is None:
                break
            holders.set_aside(victim)
            victims.append(victim)
            refused = self.refuses(ticket)
        for victim in reversed(victims):
            holders.put_back(victim)
        return ([], refused) if refused is not None else (victims, None)

    def _next(self, ticket: Ticket, reason: Reason, most: int) -> Ticket | None:
        """Return the first ticket to evict; `None` if more than `most` must be evicted."""
        if most <= 0:
            return None
        rules, holders = self._rules, self._wait_lists.holders
        victim = holders.victim(ticket, reason, rules.classes[ticket.urgency].depth)
        if victim is not None and reason is Reason.QUEUE_BYTES_FULL:
            missing = holders.held + ticket.view.body_bytes - rules.bytes
            if not holders.frees_enough(victim, missing, most):
                return None
        return victim

    def relieve(self, newcomer: Ticket, now: float) -> bool:
        """Evict one waiting request to free a connection for a new request.

        The rules of eviction are those of a full queue. The ticket `newcomer` is not added to the
        queue; only its flow is used. Returns False if no waiting request may be evicted for the new
        request.
        """
        holders = self._wait_lists.holders
        depth = [holders.depth(urgency) for urgency in range(CLASSES)]
        newcomer.urgency = max(range(CLASSES), key=depth.__getitem__)
        victim = self._victim(newcomer, Reason.QUEUE_FULL, depth[newcomer.urgency])
        if victim is None:
            return False
        self.evict(victim, now, is_final=True)
        return True

    def set_aside(self, newcomer: Ticket) -> Ticket | None:
        """Return the next waiting ticket to evict to free memory for a new request; `None`: no more
        may be evicted.

        The ticket is treated as evicted until `put_back`, so that the next call returns another
        one. Call `put_back` for all returned tickets, the last one first, before any other call.
        Then call `evict` for those that must be evicted.
        """
        victim = self._victim(newcomer, Reason.QUEUE_BYTES_FULL, 0)
        if victim is not None:
            self._wait_lists.holders.set_aside(victim)
        return victim

    def put_back(self, ticket: Ticket) -> None:
        """Revert `set_aside` for a ticket, which then waits as before."""
        self._wait_lists.holders.put_back(ticket)

    def evict(self, ticket: Ticket, now: float, *, is_final: bool = False) -> None:
        """End a waiting ticket with 429 `queue_evicted`, because a new request needs its space.

        `is_final`: the new request needs its connection or memory, so it goes to no fallback.
        """
        urgency = ticket.urgency
        retry_after_s = self._wait_lists.retry_after_s(
            urgency, self._wait_lists.holders.depth(urgency), now
        )
        self._wait_lists.drop(ticket, ENDED)
        self._counts.dropped[EVICTED][urgency] += 1
        error = RouterError(
            Reason.QUEUE_EVICTED,
            f"the queue is full, and you have the most waiting requests (class {NAMES[urgency]})",
            retry_after_s=retry_after_s,
            is_final=is_final,
        )
        self.evicted.append(Expired(ticket, error))

    def _victim(self, newcomer: Ticket, reason: Reason, depth: int) -> Ticket | None:
        holders = self._wait_lists.holders
        member = holders.join(newcomer)
        victim = holders.victim(newcomer, reason, depth)
        holders.tidy(member)
        return victim
