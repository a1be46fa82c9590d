"""Chooses, among the first few tickets of a class queue, the best one for a replica's cached
prefixes.

If all replicas are busy and a replica with free capacity always gets the first ticket, the requests
of a conversation are spread over the fleet, and their cached prefixes are not used. So when a
replica has free capacity, the first few tickets of a class are compared, as far as the order policy
allows them to go before the first one. The worth of a ticket at a replica is the number of prompt
blocks that are cached there, less the blocks that are lost because another replica holds more.
Tickets of the same worth go in the order of the policy, then by arrival.

Two limits bound the wait of a ticket that is skipped. The first ticket is skipped at most a
configured number of times. Only tickets go before it that have waited for at least `PASSES` times
its own wait. So while requests arrive as fast as they are served, no ticket waits longer than
1 / `PASSES` times its wait in the policy's order. For class batch only the first limit holds: its
tokens per second count, not its waits.

The first few tickets of a class queue form a list, which is used until half of its tickets have
left. The prefix of a ticket is looked up after it is listed, and again after `REFRESH_S` seconds;
only a few lookups are made at each choice. Each replica also has its own list of the tickets whose
prefix it holds to a large part. The best ticket of the replica's list is chosen. If the replica's
list is empty, all tickets of the first list are compared.

Must never: leave capacity unused to wait for a better ticket.
"""

from __future__ import annotations

from typing import Any, Final

from policies.queueing.base import BaseLine
from policies.queueing.prefix_match import PrefixMatch
from policies.queueing.ranked import place_in
from policies.queueing.ticket import Entry, Ticket
from router.admission.pool import Pool
from router.admission.rules import Rules

# Seconds after which the prefix lookup of a ticket is repeated; requests with the same prefix may
# have been sent since.
REFRESH_S: Final = 0.2
NEW_ASKED: Final = 8  # Maximum number of first prefix lookups at one choice of a ticket.
OLD_ASKED: Final = 4  # Maximum number of repeated prefix lookups at one choice of a ticket.
# If more replicas hold a large part of a prefix, the ticket is listed under `_ANYWHERE`.
_FEW: Final = 8
_ANYWHERE: Final = None  # The key of the list of tickets whose prefix is held by many replicas.
_TRIED: Final = 8  # Maximum number of tickets of a list that are skipped at one choice.
# A ticket goes before the first one if it has waited for at least this share of its wait.
PASSES: Final = 0.25
# The replicas' lists are cleaned when they have more than this many entries per listed ticket.
_MANY: Final = 16


def worth(ticket: Ticket, place: object) -> int:
    """Return the prompt blocks that are cached at a replica, less the blocks that are lost because
    another replica holds more."""
    prefix = ticket.prefix
    return 0 if prefix is None else prefix.worth_at(place)


def most_blocks(ticket: Ticket) -> int:
    """Return the cached blocks of a ticket's prompt at the replica that holds most of them."""
    prefix = ticket.prefix
    return 0 if prefix is None else prefix.most_blocks


def _is_better(ticket: Ticket, other: Ticket, place: object) -> bool:
    value, others = worth(ticket, place), worth(other, place)
    return value > others or (value == others and ticket.order < other.order)


def _may_pass(ticket: Ticket, place: object, until: float) -> bool:
    """Whether a ticket that arrived until the time `until` may go to a replica."""
    return ticket.arrival <= until and place not in ticket.excluded


class Shortlist:
    """The first few tickets of one class queue, and which replicas hold their prefixes."""

    __slots__ = ("_entries", "_homes", "_listed", "_most", "_new", "_old", "_passes", "size")

    def __init__(self, passes: float) -> None:
        """`passes`: the share of the first ticket's wait that others must have waited."""
        self._passes = passes
        # Maximum number of listed tickets; 0: no ticket was chosen by its prefix yet.
        self.size = 0
        self._listed: dict[Ticket, None] = {}  # The listed tickets; all of them wait.
        self._most = 0  # The highest number of listed tickets since the list was made.
        # By replica: the tickets whose prefix it holds, in the order of worth, the best ticket
        # last. An outdated entry (the ticket has left or its worth has changed) is dropped when it
        # is read.
        self._homes: dict[Any, list[Entry]] = {}
        self._entries = 0  # Upper bound of the number of entries in `_homes`.
        self._new: dict[Ticket, None] = {}  # Listed tickets without a lookup.
        self._old: dict[Ticket, None] = {}  # Listed tickets with a lookup, the oldest lookup first.

    # -- the list -----------------------------------------------------------------------------

    def clear(self) -> None:
        self._listed = {}
        self._most = 0
        self._homes = {}
        self._entries = 0
        self._new = {}
        self._old = {}

    def join(self, ticket: Ticket) -> None:
        """Add a ticket to the list. If its prefix was looked up, add it to the lists of replicas,
        too."""
        listed = self._listed
        listed[ticket] = None
        if len(listed) > self._most:
            self._most = len(listed)
        if not ticket.view.blocks:
            return
        if ticket.prefix is None:
            self._new[ticket] = None
        elif ticket not in self._old:
            self._old[ticket] = None
            self._settle(ticket)

    def left(self, ticket: Ticket) -> None:
        """Remove a ticket from the list, if the list contains it."""
        self._listed.pop(ticket, None)
        if ticket.prefix is None:
            self._new.pop(ticket, None)
        else:
            self._old.pop(ticket, None)

    def _renew(self, line: BaseLine, now: float) -> None:
        """Make the list of the first few tickets again. The replicas' lists are kept unless most of
        their entries are outdated."""
        if self._entries > _MANY * self.size:
            self.clear()
        before = self._listed
        self._listed = {}
        self._most = 0
        for ticket in line.band(self.size, now):
            before.pop(ticket, None)
            self.join(ticket)
        for ticket in before:
            self.left(ticket)

    # -- lookups ------------------------------------------------------------------------------

    def _look_up(self, known: dict[Ticket, None], most: int, pool: Pool, now: float) -> None:
        """Look up the prefixes of at most `most` tickets; this bounds the cost of one choice."""
        asked: list[Ticket] = []
        for ticket in known:
            prefix = ticket.prefix
            if len(asked) == most or (prefix is not None and now - prefix.looked_up_at < REFRESH_S):
                break
            asked.append(ticket)
        for ticket in asked:
            del known[ticket]
            view = ticket.view
            prefix = ticket.prefix
            if prefix is None:
                prefix = ticket.prefix = PrefixMatch()
            prefix.update(pool.held(view), now)
            self._old[ticket] = None
            self._settle(ticket)

    def _settle(self, ticket: Ticket) -> None:
        """Add a ticket to the lists of the replicas that hold a large part of its prefix.

        These replicas hold more than half of the blocks that the best replica holds.
        """
        prefix = ticket.prefix
        if prefix is None or prefix.most_blocks == 0:
            return
        most = prefix.most_blocks
        homes: list[Any] = []
        for place in prefix.blocks:
            if prefix.worth_at(place) > 0:
                homes.append(place)
                if len(homes) > _FEW:
                    homes = [_ANYWHERE]
                    break
        for home in homes:
            value = most if home is _ANYWHERE else prefix.worth_at(home)
            entries = self._homes.get(home)
            if entries is None:
                entries = self._homes[home] = []
            entry = Entry(value, -ticket.order, ticket)
            entries.insert(place_in(entries, entry), entry)
            self._entries += 1

    # -- the choice ---------------------------------------------------------------------------

    def best(
        self,
        line: BaseLine,
        first: Ticket,
        place: object,
        pool: Pool,
        rules: Rules,
        now: float,
    ) -> Ticket:
        """Return the ticket with the highest worth at a replica, among the first few tickets of a
        line.

        `first`: the first ticket of the line, which may go to the replica. The first ticket is
        skipped at most `rules.skips` times.
        """
        size, skips = rules.affinity, rules.skips
        if first.skips >= skips:
            return first
        self.size = size
        listed = self._listed
        if 2 * len(listed) <= self._most or self._entries > _MANY * size:
            self._renew(line, now)
        elif first not in listed:
            self.join(first)
        self._look_up(self._old, OLD_ASKED, pool, now)
        if self._new:
            self._look_up(self._new, NEW_ASKED, pool, now)
        # Only tickets that arrived until then have waited long enough to go before the first one.
        until = now - self._passes * (now - first.arrival)
        chosen = self._top(place, place, line, until, now)
        anywhere = self._top(_ANYWHERE, place, line, until, now)
        if chosen is None or (anywhere is not None and _is_better(anywhere, chosen, place)):
            chosen = anywhere
        if chosen is None:
            chosen = self._least_lost(line, first, place, until, now)
        elif worth(first, place) >= worth(chosen, place):
            chosen = first
        if chosen is not first:
            first.skips += 1
        return chosen

    def _top(
        self, home: object, place: object, line: BaseLine, until: float, now: float
    ) -> Ticket | None:
        """Return the best listed ticket of a replica's list that arrived until the time `until`;
        `None`: no ticket was found."""
        entries = self._homes.get(home)
        if not entries:
            return None
        listed = self._listed
        tried = 0
        index = len(entries) - 1
        while index >= 0 and tried < _TRIED:
            entry = entries[index]
            ticket: Ticket = entry.item
            value = worth(ticket, place) if home is not _ANYWHERE else most_blocks(ticket)
            if ticket not in listed or entry.key != value:
                entries.pop(index)
            elif not _may_pass(ticket, place, until) or worth(ticket, place) <= 0:
                # If many replicas hold the prefix of the ticket, this one may not hold it.
                tried += 1
            elif line.within(ticket, now):
                return ticket
            else:
                self.left(ticket)
                entries.pop(index)
            index -= 1
        return None

    def _least_lost(
        self, line: BaseLine, first: Ticket, place: object, until: float, now: float
    ) -> Ticket:
        """Return the listed ticket that loses the fewest cached blocks at the replica; ties by list
        order.

        This is used if the replica holds no listed ticket's prefix.
        """
        chosen = first
        least = worth(first, place)
        gone: list[Ticket] = []
        for ticket in self._listed:
            if least >= 0:
                break
            value = worth(ticket, place)
            if value <= least or not _may_pass(ticket, place, until):
                continue
            if line.within(ticket, now):
                least = value
                chosen = ticket
            else:
                gone.append(ticket)
        for ticket in gone:
            self.left(ticket)
        return chosen

    def held(self) -> int:
        """The number of entries in memory, for tests of bounded memory."""
        own = len(self._listed) + len(self._new) + len(self._old)
        return own + sum(len(entries) for entries in self._homes.values())
