"""The deadline of a first token, and a class queue in the order of deadlines.

Must never: let a client's own deadline give a request the deadline of a more urgent class.
"""

from __future__ import annotations

from policies.queueing.keyed import KeyedQueue
from policies.queueing.ticket import Ticket


def due(ticket: Ticket) -> float:
    """Return when the first token is due, in monotonic seconds: by the request's SLO, or by the
    deadline that its client states, whichever is earlier.

    A client's deadline counts as no earlier than the shortest SLO that the client may state
    (`RequestView.ttft_slo_min_s`).
    """
    view = ticket.view
    usual = ticket.arrival + view.ttft_slo_s
    if ticket.deadline >= usual:
        return usual
    return max(ticket.deadline, ticket.arrival + view.ttft_slo_min_s)


class DeadlineQueue(KeyedQueue):
    """The ticket with the earliest deadline goes first, ties by arrival."""

    __slots__ = ("_share",)

    def __init__(self, share: float) -> None:
        """`share`: a ticket may go instead of the first one if its deadline is later by at most
        this share of the first ticket's TTFT SLO.
        """
        super().__init__(due, 0.0)
        self._share = share

    def band(self, most: int, now: float) -> list[Ticket]:
        self._set_width()
        return super().band(most, now)

    def within(self, ticket: Ticket, now: float) -> bool:
        self._set_width()
        return super().within(ticket, now)

    def _set_width(self) -> None:
        first = self._tickets.first()
        if first is not None:
            self._width = self._share * first.view.ttft_slo_s
