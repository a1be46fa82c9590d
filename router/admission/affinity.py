"""Which of those whose turn it is a free replica takes: the one whose prefix it holds best.

When every replica is busy, "the next one goes where a place is free" scatters conversations over
the fleet and destroys its caches. So a replica looks at the first few of the same class and
fairness band. A ticket is worth what is saved by its going here, less what is lost because somebody
else holds more of it. The first is passed over a bounded number of times, then it goes.

What is held where is asked per ticket, when it comes among the first and again after a while, and
for a few at each place: the others keep what was told last.

Must never: leave a place empty for the sake of a better one.
"""

from __future__ import annotations

from math import inf
from typing import Final

from policies.queueing.ticket import Ticket

REFRESH_S: Final = 0.2  # a sibling that was sent meanwhile shows by then
NEW_ASKED: Final = 8  # at one place, of those of whom nothing was told yet ...
OLD_ASKED: Final = 4  # ... and of those of whom it was told long ago


def ask(ticket: Ticket, now: float) -> None:
    """What is held of its prefix, and by whom."""
    look = ticket.look
    if look is not None:
        ticket.known_at = now
        known = ticket.known = look()
        ticket.most = max(known.values()) * ticket.block_tokens if known else 0.0


def best(band: list[Ticket], place: object, skips: int, now: float) -> Ticket | None:
    """Of `band`, in its order, who is worth most there; None if none of them may go there.

    A ticket is worth the prompt tokens saved here, less those that are lost elsewhere; 0 if nobody
    holds anything. The first that may go is passed over at most `skips` times.
    """
    head: Ticket | None = None
    chosen: Ticket | None = None
    most = -inf
    new, old = NEW_ASKED, OLD_ASKED
    for ticket in band:
        if ticket.excluded and place in ticket.excluded:
            continue
        if head is None:
            head = ticket
            if ticket.skips >= skips:
                return ticket
        if ticket.look is not None and now - ticket.known_at >= REFRESH_S:
            if ticket.known_at == -inf:
                if new:
                    new -= 1
                    ask(ticket, now)
            elif old:
                old -= 1
                ask(ticket, now)
        value = 0.0
        if ticket.most > 0.0:
            here: float = ticket.known.get(place, 0) * ticket.block_tokens
            value = 2.0 * here - ticket.most
        if value > most:
            most = value
            chosen = ticket
            if value > 0.0 and value >= ticket.prompt - ticket.block_tokens:
                break  # nothing is better than all of it
    if head is not None and chosen is not head:
        head.skips += 1
    return chosen
