"""Tracks how much of a queue each party holds, and chooses the request to evict if it is full.

A party is an account (a tenant) or a member (a user of an account).

Each class has a limit of waiting requests, and all waiting bodies together have a limit of bytes.
Accounts compete with each other for these limits; members compete within their account
(`router/intake/flow.py`). When a limit is reached, the newest request of the largest member of the
largest account is evicted. Three rules limit this:

- A request can be evicted only if nothing was sent to its client yet (`allows_early_status`).
- As long as the accounts without a known key together hold more than a tenth of the limit, requests
  of these accounts are evicted first. So neither these accounts nor the accounts with known keys
  can fill the whole queue.
- A new request can evict only a request of a larger party. This is an account that holds more than
  the account of the new request. If there is none, it is a member of the same account that holds
  more than the member of the new request. If no party is larger, the new request is refused.

The largest party is found without a search (`core/ranking.py`). Bytes are ranked in steps of 1/4096
of the limit.

Must never: choose the next request to serve, or send an answer.
"""

from __future__ import annotations

from typing import Final, cast

from policies.queueing.ticket import CLASSES, ENDED, WAITING, Ticket
from router.core.errors import Reason
from router.core.ranking import Ranked, Ranking

# Up to this number of accounts and members, those without waiting requests are kept.
_KEPT: Final = 256
# In a full queue, accounts without a known key may keep `1 / _UNKNOWN_PART` of the limit.
_UNKNOWN_PART: Final = 10
_STEPS: Final = 4096  # Number of steps into which the byte limit is divided for the ranking.
# The bytes of the bodies, as a resource beside the requests of each class.
BYTES: Final = CLASSES
# A member's list of requests is cleaned if it is longer than twice the number of the member's
# waiting requests plus this number.
_DEAD: Final = 64


class Holder(Ranked):
    """The amount of one resource that one party holds."""

    __slots__ = ("fresh", "party", "ranking", "total")

    def __init__(self, party: Party, ranking: Ranking) -> None:
        super().__init__()
        self.party = party
        self.ranking = ranking
        self.total = 0  # The amount that the party holds: requests, or bytes.
        # Requests that can be evicted; a party without such a request is in no ranking.
        self.fresh = 0


def _largest(ranking: Ranking) -> Holder | None:
    found = ranking.largest()
    return None if found is None else cast(Holder, found)


class Group:
    """The parties that compete with each other: all accounts of a kind, or an account's members."""

    __slots__ = ("_by_class", "by_name", "bytes", "depth", "held")

    def __init__(self) -> None:
        self.by_name: dict[str, Party] = {}
        self._by_class: list[Ranking | None] = [None] * CLASSES
        self.bytes = Ranking()
        # The next two fields are used only for groups of accounts.
        self.depth = [0] * CLASSES  # Waiting requests of all accounts, by class.
        self.held = 0  # Bytes of the waiting bodies of all accounts.

    def ranking(self, what: int) -> Ranking:
        """Return the ranking of the parties by the requests of a class, or by `BYTES`."""
        if what == BYTES:
            return self.bytes
        found = self._by_class[what]
        if found is None:
            found = self._by_class[what] = Ranking()
        return found

    def total(self, what: int) -> int:
        """Return the waiting requests of a class, or the `BYTES`, of a group of accounts."""
        return self.held if what == BYTES else self.depth[what]


class Party:
    """An account, or one user of it, that has at least one waiting request."""

    __slots__ = ("_by_class", "account", "bytes", "group", "members", "name", "newest", "waiting")

    def __init__(self, name: str, group: Group, account: Party | None) -> None:
        self.name = name
        self.group = group  # The group in which this party competes.
        self.account = account  # The account of a member; None: the party is an account.
        self.members: Group | None = Group() if account is None else None
        self.waiting = 0
        self.bytes = Holder(self, group.bytes)
        self._by_class: list[Holder | None] = [None] * CLASSES
        # By class: a member's requests in the order of arrival; some may no longer wait.
        self.newest: list[list[Ticket] | None] = [None] * CLASSES

    def holder(self, what: int) -> Holder:
        """Return what the party holds of the requests of a class, or of the `BYTES`."""
        if what == BYTES:
            return self.bytes
        found = self._by_class[what]
        if found is None:
            found = self._by_class[what] = Holder(self, self.group.ranking(what))
        return found


class Holders:
    """The accounts and members of one queue, and how much of it each holds."""

    __slots__ = (
        "_early",
        "_early_bytes",
        "_known",
        "_limit",
        "_parties",
        "_step",
        "_unknown",
    )

    def __init__(self, limit: int) -> None:
        """`limit`: the maximum total bytes of all waiting bodies."""
        self._known = Group()
        self._unknown = Group()
        self._parties = 0  # The number of accounts and members.
        # By class: waiting requests that cannot be evicted any more.
        self._early = [0] * CLASSES
        self._early_bytes = 0
        self._limit = limit
        self._step = max(1, limit // _STEPS)

    def adopt(self, limit: int) -> None:
        """Set another limit of bytes."""
        if limit == self._limit:
            return
        self._limit = limit
        self._step = max(1, limit // _STEPS)
        for group in (self._known, self._unknown):
            for account in group.by_name.values():
                self._rank_bytes(account)
                assert account.members is not None
                for member in account.members.by_name.values():
                    self._rank_bytes(member)

    # -- parties ------------------------------------------------------------------------------

    def join(self, ticket: Ticket) -> Party:
        """Return the member that sent a request. Call `tidy` if the request does not begin to
        wait."""
        flow = ticket.flow
        group = self._known if flow.is_known else self._unknown
        account = group.by_name.get(flow.account)
        if account is None:
            account = group.by_name[flow.account] = Party(flow.account, group, None)
            self._parties += 1
        members = account.members
        assert members is not None
        member = members.by_name.get(flow.member)
        if member is None:
            member = members.by_name[flow.member] = Party(flow.member, members, account)
            self._parties += 1
        ticket.party = member
        return member

    def tidy(self, member: Party) -> None:
        """Remove a member that has no waiting requests, if there are many accounts and members."""
        if member.waiting or self._parties <= _KEPT:
            return
        account = member.account
        assert account is not None
        if member.group.by_name.pop(member.name, None) is not None:
            self._parties -= 1
        if not member.group.by_name and account.group.by_name.pop(account.name, None) is not None:
            self._parties -= 1

    def depth(self, urgency: int) -> int:
        """Return the number of waiting requests of a class."""
        return self._known.depth[urgency] + self._unknown.depth[urgency]

    @property
    def held(self) -> int:
        """The bytes of all waiting bodies."""
        return self._known.held + self._unknown.held

    def waiting_of(self, ticket: Ticket) -> int:
        """Return the number of waiting requests that count for the limit of a request's flow: those
        of its member or of its whole account (`FlowIdentity.is_member_counted`)."""
        member: Party = ticket.party
        if ticket.flow.is_member_counted:
            return member.waiting
        account = member.account
        assert account is not None
        return account.waiting

    def waiting_in(self, ticket: Ticket) -> int:
        """Return the number of waiting requests of the request's member and class.

        `join` must be called before.
        """
        member: Party = ticket.party
        return member.holder(ticket.urgency).total

    def by_flow(self) -> dict[tuple[str, str], int]:
        """Return the number of waiting requests, by account and member."""
        found: dict[tuple[str, str], int] = {}
        for group in (self._known, self._unknown):
            for account in group.by_name.values():
                assert account.members is not None
                for member in account.members.by_name.values():
                    if member.waiting:
                        found[(account.name, member.name)] = member.waiting
        return found

    # -- arrivals and departures --------------------------------------------------------------

    def enter(self, ticket: Ticket) -> None:
        """Count a request that begins to wait. `join` was called for it, unless it waited
        before."""
        found: Party | None = ticket.party
        member = self.join(ticket) if found is None else found
        urgency = ticket.urgency
        newest = member.newest[urgency]
        if newest is None:
            newest = member.newest[urgency] = []
        if newest and newest[-1].order > ticket.order:
            newest.insert(0, ticket)  # This request was sent to a replica before, and waits again.
        else:
            newest.append(ticket)
        if ticket.has_early_status:
            self._early[urgency] += 1
            self._early_bytes += ticket.view.body_bytes
        self._count(ticket, 1)

    def left(self, ticket: Ticket) -> None:
        """Stop counting a request that no longer waits."""
        member: Party = ticket.party
        urgency = ticket.urgency
        if ticket.has_early_status:
            self._early[urgency] -= 1
            self._early_bytes -= ticket.view.body_bytes
        self._count(ticket, -1)
        newest = member.newest[urgency]
        if newest is not None and len(newest) > _DEAD + 2 * member.waiting:
            member.newest[urgency] = [t for t in newest if t.state == WAITING]
        ticket.party = None
        if not member.waiting:
            self.tidy(member)

    def allows_early_status(self, ticket: Ticket, depth: int) -> bool:
        """Whether the client of a waiting request may be sent an early 200, before the request is
        served.

        After an early 200 the request cannot be evicted. At most half of a class and of the bytes
        may be in this state; otherwise a flow could fill the queue without ever being evicted.
        `depth`: the limit of waiting requests of the request's class.
        """
        if ticket.has_early_status:
            return True
        urgency = ticket.urgency
        if (
            2 * (self._early[urgency] + 1) > depth
            or 2 * (self._early_bytes + ticket.view.body_bytes) > self._limit
        ):
            return False
        ticket.has_early_status = True
        self._early[urgency] += 1
        self._early_bytes += ticket.view.body_bytes
        member: Party = ticket.party
        account = member.account
        assert account is not None
        for party in (account, member):
            holder = party.holder(urgency)
            holder.fresh -= 1
            holder.ranking.move(holder, holder.total if holder.fresh else 0)
            party.bytes.fresh -= 1
            self._rank_bytes(party)
        return True

    def _count(self, ticket: Ticket, by: int) -> None:
        member: Party = ticket.party
        account = member.account
        assert account is not None
        urgency = ticket.urgency
        size = ticket.view.body_bytes if by > 0 else -ticket.view.body_bytes
        fresh = 0 if ticket.has_early_status else by
        group = account.group
        depth = group.depth
        depth[urgency] = depth[urgency] + by  # Compiled `+=` is slower: it boxes both numbers.
        group.held += size
        self._change(account, urgency, by, size, fresh)
        self._change(member, urgency, by, size, fresh)

    def _change(self, party: Party, urgency: int, by: int, size: int, fresh: int) -> None:
        party.waiting += by
        holder = party.holder(urgency)
        holder.total += by
        holder.fresh += fresh
        holder.ranking.move(holder, holder.total if holder.fresh else 0)
        held = party.bytes
        held.total += size
        held.fresh += fresh
        self._rank_bytes(party)

    def _rank_bytes(self, party: Party) -> None:
        held = party.bytes
        held.ranking.move(held, held.total // self._step + 1 if held.fresh else 0)

    # -- eviction -----------------------------------------------------------------------------

    def set_aside(self, ticket: Ticket) -> None:
        """Treat a victim as evicted, to find the next victim.

        Before any request arrives or leaves, `put_back` must be called for all such victims, the
        last one first.
        """
        ticket.state = ENDED
        self._count(ticket, -1)

    def put_back(self, ticket: Ticket) -> None:
        """Revert `set_aside` for a request."""
        ticket.state = WAITING
        member: Party = ticket.party
        newest = member.newest[ticket.urgency]
        assert newest is not None
        if not newest or newest[-1] is not ticket:
            newest.append(ticket)  # The method `victim` has removed this ticket from the list.
        self._count(ticket, 1)

    def victim(self, newcomer: Ticket, reason: Reason, depth: int) -> Ticket | None:
        """Return the waiting request to evict for a new request; None: the new one is refused.

        `join` must have been called for the new request. `depth`: the limit of waiting requests of
        its class.
        """
        if reason is Reason.QUEUE_FULL:
            found = self._larger_party(newcomer, newcomer.urgency, 1, depth)
            return None if found is None else _newest(found, newcomer.urgency)
        if reason is Reason.QUEUE_BYTES_FULL:
            found = self._larger_party(newcomer, BYTES, newcomer.view.body_bytes, self._limit)
            for urgency in range(CLASSES - 1, -1, -1):
                victim = None if found is None else _newest(found, urgency)
                if victim is not None:
                    return victim
        return None

    def _larger_party(self, newcomer: Ticket, what: int, size: int, limit: int) -> Party | None:
        """Return the party whose request is evicted for a new request; `None`: there is none.

        `what`: the resource that is used up: the requests of a class, or `BYTES`. `size`: what the
        new request needs of it. `limit`: its limit.
        """
        member: Party = newcomer.party
        account = member.account
        assert account is not None
        is_known = newcomer.flow.is_known
        unknown = self._unknown.total(what) + (0 if is_known else size)
        least = account.holder(what).total + size
        found = _largest(self._unknown.ranking(what))
        if unknown * _UNKNOWN_PART <= limit or (found is None and is_known):
            found = _larger(found, _largest(self._known.ranking(what)))
        elif is_known:
            least = 0
        if found is None or found.total <= least:
            # The new request's own account is the largest, so a larger member of that account is
            # searched.
            found = _largest(member.group.ranking(what))
            if found is None or found.total <= member.holder(what).total + size:
                return None
        return found.party

    def frees_enough(self, victim: Ticket, missing: int, most: int) -> bool:
        """Whether evicting `most` requests frees `missing` bytes, if they have the mean size of the
        victim's account."""
        member: Party = victim.party
        account = member.account
        assert account is not None
        held = account.bytes.total
        return missing <= held and missing * account.waiting <= held * most


def _larger(unknown: Holder | None, known: Holder | None) -> Holder | None:
    """Return the larger of two parties; if they are equal, the party without a known key."""
    if unknown is None or (known is not None and known.total > unknown.total):
        return known
    return unknown


def _newest(party: Party, urgency: int) -> Ticket | None:
    """Return a party's newest evictable request; for an account, that of its largest member."""
    if party.members is not None:
        largest = _largest(party.members.ranking(urgency))
        if largest is None:
            return None
        party = largest.party
    tickets = party.newest[urgency]
    while tickets:
        ticket = tickets[-1]
        if ticket.state == WAITING and not ticket.has_early_status:
            return ticket
        tickets.pop()
    return None
