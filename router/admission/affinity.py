"""Which of those whose turn it is a free replica takes: the one whose prefix it holds best.

When every replica is busy, "the next one goes where a place is free" scatters conversations over
the fleet and destroys its caches. So a replica looks at the first few of the same class and
fairness band. A ticket is worth what is saved by its going here, less what is lost because somebody
else holds more of it. The first is passed over a bounded number of times, then it goes.

A row's first few are listed once and serve until half of them have gone. What is held of each is
asked when it is listed, and again after a while, of a few at each place. Each stands on a list of
those replicas at which it is worth something, so that a replica that has room looks at the best of
its own list, and only where that is empty at all of them.

Must never: leave a place empty for the sake of a better one.
"""

from __future__ import annotations

from typing import Any, Final

from policies.queueing.base import BaseLine
from policies.queueing.prefix_match import PrefixMatch
from policies.queueing.ranked import place_in
from policies.queueing.ticket import Entry, Ticket
from router.admission.pool import Pool
from router.admission.rules import Rules

REFRESH_S: Final = 0.2  # a sibling that was sent meanwhile shows by then
NEW_ASKED: Final = 8  # at one place, of those of whom nothing was told yet ...
OLD_ASKED: Final = 4  # ... and of those of whom it was told long ago
_FEW: Final = 8  # replicas that hold most of a prefix; where more do, it is held everywhere
_ANYWHERE: Final = None  # whose list those have that are held everywhere
_TRIED: Final = 8  # of a list, that must not go or are not held there after all
_MANY: Final = 16  # entries for each one listed: the others are of those that have gone


def worth(ticket: Ticket, place: object) -> float:
    """Prompt tokens saved if it goes there, less those that are lost elsewhere."""
    prefix = ticket.prefix
    return 0.0 if prefix is None else prefix.worth_at(place)


def most_tokens(ticket: Ticket) -> float:
    """Tokens of its prompt at the replica that holds most of them."""
    prefix = ticket.prefix
    return 0.0 if prefix is None else prefix.most_tokens


class Shortlist:
    """The first few of one row, and who of them is at home where."""

    __slots__ = ("_entries", "_homes", "_listed", "_most", "_new", "_old", "size")

    def __init__(self) -> None:
        self.size = 0  # how many may be listed; 0: nobody has looked yet
        self._listed: dict[Ticket, None] = {}  # all of them wait
        self._most = 0  # of them at once, since they were listed
        # By replica those that are worth something there, by what they are worth, the best last.
        # Who has gone, or is worth something else by now, is dropped when he is met.
        self._homes: dict[Any, list[Entry]] = {}
        self._entries = 0  # of them, or more
        self._new: dict[Ticket, None] = {}  # of those listed: to be asked for the first time
        self._old: dict[Ticket, None] = {}  # ... and asked, the longest ago first

    # -- who is listed ------------------------------------------------------------------------

    def clear(self) -> None:
        self._listed = {}
        self._most = 0
        self._homes = {}
        self._entries = 0
        self._new = {}
        self._old = {}

    def join(self, ticket: Ticket) -> None:
        """It is one of the first few, being the first, or because there are no more."""
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
        """It is one of them no longer, if it was."""
        self._listed.pop(ticket, None)
        if ticket.prefix is None:
            self._new.pop(ticket, None)
        else:
            self._old.pop(ticket, None)

    def _renew(self, line: BaseLine, now: float) -> None:
        """What stands on the replicas' lists serves on, until too much of it is of those gone."""
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

    # -- what is known ------------------------------------------------------------------------

    def _look_up(self, known: dict[Ticket, None], most: int, pool: Pool, now: float) -> None:
        """Ask what is held of the prefixes of a few, so that one place does not cost much."""
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
                prefix = ticket.prefix = PrefixMatch(view)
            prefix.update(pool.held(view), now)
            self._old[ticket] = None
            self._settle(ticket)

    def _settle(self, ticket: Ticket) -> None:
        """Put it on the lists of those replicas at which it is worth something."""
        prefix = ticket.prefix
        if prefix is None or prefix.most_tokens == 0.0:
            return
        most = prefix.most_tokens
        homes: list[Any] = []
        for place in prefix.blocks:
            if 2.0 * prefix.tokens_at(place) > most:
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

    # -- who goes -----------------------------------------------------------------------------

    def best(
        self,
        line: BaseLine,
        first: Ticket,
        place: object,
        pool: Pool,
        rules: Rules,
        now: float,
    ) -> Ticket:
        """The ticket that is worth most at a replica, of the first few of a line (`rules`).

        `first`: the first of them, which may go there, and is passed over a few times at most.
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
        chosen = self._at_home(line, place, now)
        if chosen is None:
            chosen = self._least_lost(line, first, place, now)
        if chosen is not first:
            first.skips += 1
        return chosen

    def _at_home(self, line: BaseLine, place: object, now: float) -> Ticket | None:
        """Who is worth most there, if anybody is worth something."""
        own = self._top(place, place, line, now)
        anywhere = self._top(_ANYWHERE, place, line, now)
        if own is None or anywhere is None:
            return anywhere if own is None else own
        is_better = worth(anywhere, place) > worth(own, place)
        return anywhere if is_better else own

    def _top(self, home: object, place: object, line: BaseLine, now: float) -> Ticket | None:
        entries = self._homes.get(home)
        if not entries:
            return None
        listed = self._listed
        tried = 0
        index = len(entries) - 1
        while index >= 0 and tried < _TRIED:
            entry = entries[index]
            ticket: Ticket = entry.item
            value = worth(ticket, place) if home is not _ANYWHERE else most_tokens(ticket)
            if ticket not in listed or entry.key != value:
                entries.pop(index)
            elif ticket.excluded and place in ticket.excluded:
                tried += 1
            elif home is _ANYWHERE and worth(ticket, place) <= 0.0:
                tried += 1  # this replica is one of the few that do not hold it
            elif line.within(ticket, now):
                return ticket
            else:
                self.left(ticket)
                entries.pop(index)
            index -= 1
        return None

    def _least_lost(self, line: BaseLine, first: Ticket, place: object, now: float) -> Ticket:
        """Nobody is at home there: who loses least, and of equals the first."""
        chosen = first
        least = worth(first, place)
        gone: list[Ticket] = []
        for ticket in self._listed:
            if least >= 0.0:
                break
            value = worth(ticket, place)
            if value <= least or (ticket.excluded and place in ticket.excluded):
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
        """Entries in memory: for tests of what stays bounded."""
        own = len(self._listed) + len(self._new) + len(self._old)
        return own + sum(len(entries) for entries in self._homes.values())
