"""Which of those whose turn it is a free replica takes: the one whose prefix it holds best.

When every replica is busy, "the next one goes where a place is free" scatters conversations over
the fleet and destroys its caches. So a replica looks at the first few of the same class and
fairness band. A ticket is worth what is saved by its going here, less what is lost because somebody
else holds more of it. The first is passed over a bounded number of times, then it goes.

What is held where is asked per ticket, when it comes among the first and again after a while, never
for each place that becomes free.

Must never: leave a place empty for the sake of a better one.
"""

from __future__ import annotations

from typing import Final

from policies.queueing.ticket import Ticket

REFRESH_S: Final = 0.2  # a sibling that was sent meanwhile shows by then


def worth(ticket: Ticket, place: object, now: float) -> float:
    """Prompt tokens saved here, less those that are lost elsewhere; 0 if nobody holds anything."""
    look = ticket.look
    if look is None:
        return 0.0
    if now - ticket.known_at >= REFRESH_S:
        ticket.known_at = now
        known = ticket.known = look()
        ticket.most = max(known.values()) * ticket.block_tokens if known else 0.0
    if ticket.most == 0.0:
        return 0.0
    here: float = ticket.known.get(place, 0) * ticket.block_tokens
    return 2.0 * here - ticket.most


def best(band: list[Ticket], place: object, skips: int, now: float) -> Ticket | None:
    """Of `band`, in its order; None if none of them may go there.

    The first that may go is passed over at most `skips` times.
    """
    head: Ticket | None = None
    chosen: Ticket | None = None
    most = 0.0
    for ticket in band:
        if ticket.excluded and place in ticket.excluded:
            continue
        if head is None:
            head = chosen = ticket
            if ticket.skips >= skips:
                return ticket
            most = worth(ticket, place, now)
            if most > 0.0 and most >= ticket.prompt - ticket.block_tokens:
                return ticket  # nothing is better than all of it
        else:
            value = worth(ticket, place, now)
            if value > most:
                most = value
                chosen = ticket
    if head is not None and chosen is not head:
        head.skips += 1
    return chosen
