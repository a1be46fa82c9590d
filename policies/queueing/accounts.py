"""Counts the service of each API key, and of each user of a key, in virtual time.

A flow is a key, or a user of a key. Each request adds its cost, divided by the weight of its flow,
to the flow's counter. The flow with the lowest counter goes next (VTC: Sheng et al., "Fairness in
Serving Large Language Models", OSDI'24). The virtual time is the lowest counter among the waiting
flows when a flow was last served. When an idle flow begins to wait again, its counter is raised to
the virtual time (as in start-time fair queueing: Goyal, Vin and Cheng, SIGCOMM'96). So a flow
cannot save up service while it is idle. When no flow waits any more, all differences are reset.

An idle account whose counter is not above the virtual time equals a new account, so it may be
dropped. Up to `IDLE_KEPT` such accounts are kept for reuse. So memory is bounded by the flows that
wait and the flows that were recently served more than others. At most `IDLE_MAX` idle accounts are
kept.

Several routers may serve the same accounts. What another router has charged is added to the
counters here, too (`charged_elsewhere`), and an account whose requests wait at another router waits
(`begins_elsewhere`). So the virtual time is that of all routers.

Must never: depend on the unit of the charges.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, Final

from policies.queueing.ticket import INFINITY, Item

IDLE_MAX: Final = 4096
IDLE_KEPT: Final = 64  # up to this number, idle accounts are always kept


class Account:
    """The service that one key, or one user of a key, has received."""

    __slots__ = (
        "counter",
        "idle",
        "name",
        "nodes",
        "number",
        "users",
        "waiting",
        "weight",
        "within",
    )

    def __init__(self, name: str, weight: float, number: int, within: Accounts) -> None:
        self.name = name
        self.weight = weight
        self.number = number  # order of creation; the lower number wins a tie
        self.within = within
        self.counter = 0.0
        self.waiting = 0  # waiting tickets of the account, in all class queues
        self.idle = False  # whether the account is in the heap of accounts that may be dropped
        # One node for each class queue in which requests of the account wait.
        self.nodes: list[Node] = []
        self.users: Accounts | None = None

    def add(self, amount: float) -> None:
        """Charge an amount to the account; a negative amount is a refund."""
        within = self.within
        journal = within.journal
        if journal is not None and (self.name in journal or len(journal) < IDLE_MAX):
            journal[self.name] = journal.get(self.name, 0.0) + amount
        self.raised(amount)

    def raised(self, amount: float) -> None:
        """Add an amount that this router or another one has charged to the counter."""
        self.counter += amount / self.weight
        within = self.within
        within.is_moved = True
        if self.counter > within.peak:
            within.peak = self.counter
        for node in self.nodes:
            node.moved()


class Node(Item):
    """An account's position in one class queue. The account calls `moved` when its counter
    changes."""

    __slots__ = ("account",)

    def __init__(self, account: Account) -> None:
        super().__init__()
        self.account = account

    def moved(self) -> None:
        raise NotImplementedError


class Accounts:
    """Accounts with a common virtual time: all keys of a class, or all users of a key."""

    __slots__ = (
        "_away",
        "_backlogged",
        "_idle",
        "_least",
        "_number",
        "by_name",
        "is_moved",
        "journal",
        "peak",
        "time",
    )

    def __init__(self) -> None:
        self.by_name: dict[str, Account] = {}
        # What was charged here since it was last told to other routers, by account; None: there
        # are no other routers.
        self.journal: dict[str, float] | None = None
        self._away: dict[Account, int] = {}  # accounts that wait elsewhere: at how many routers
        self._least = INFINITY  # see `least_elsewhere`
        self.is_moved = False  # A counter or `_away` has changed since `_least` was computed.
        self.time = 0.0  # virtual time: the lowest counter with which an account begins to wait
        self.peak = 0.0  # the highest counter
        self._backlogged = 0  # accounts with waiting tickets
        self._idle: list[Any] = []  # heap of (counter, number, account): idle accounts
        self._number = 0

    def of(self, name: str, weight: float) -> Account:
        """Return the account with a name; create the account if it is missing."""
        found = self.by_name.get(name)
        if found is None:
            self._number += 1
            found = self.by_name[name] = Account(name, weight, self._number, self)
        found.weight = weight
        # The counter of an account with waiting requests stays as it is: refunds may have lowered
        # it, and the positions of these requests depend on it.
        if found.counter < self.time and not found.waiting:
            found.counter = self.time
        return found

    def begins(self, account: Account) -> None:
        """Count a ticket of `account` that begins to wait."""
        account.waiting += 1
        if account.waiting == 1:
            if not self._backlogged:
                self.time = max(self.time, self.peak)
                account.counter = max(account.counter, self.time)
            self._backlogged += 1

    def ends(self, account: Account) -> None:
        """Count a ticket that no longer waits. Call `ends` after charging."""
        account.waiting -= 1
        if not account.waiting:
            self._backlogged -= 1
            self.idles(account)

    def idles(self, account: Account) -> None:
        """Mark an account without waiting tickets as idle. It is dropped when the virtual time
        reaches its counter."""
        if not account.idle:
            account.idle = True
            heappush(self._idle, (account.counter, account.number, account))
        if len(self._idle) > IDLE_KEPT:
            self._prune()

    def correct(self, name: str, weight: float, amount: float) -> Account:
        """Add `amount`, which may be negative, to an account. A dropped account is recreated."""
        account = self.by_name.get(name)
        if account is None:
            account = self.of(name, weight)
        account.add(amount)
        if not account.waiting:
            self.idles(account)
        return account

    def reaches(self, time: float) -> None:
        """Record that the lowest counter among the accounts that wait here is `time`."""
        if self._away:
            time = min(time, self.least_elsewhere())
        if time > self.time:
            self.time = time

    # -- other routers --------------------------------------------------------------------------

    def charged_elsewhere(self, name: str, weight: float, amount: float) -> None:
        """Add what another router has charged to an account; a negative amount is a refund."""
        account = self.of(name, weight)
        account.raised(amount)
        if not account.waiting:
            self.idles(account)
        elif self._backlogged == len(self._away):  # Every waiting account waits elsewhere, too.
            self.time = max(self.time, self.least_elsewhere())

    def begins_elsewhere(self, name: str, weight: float) -> Account:
        """Note that requests of an account wait at another router. Returns the account, for
        `ends_elsewhere`."""
        account = self.of(name, weight)
        self.begins(account)
        self.is_moved = True
        self._away[account] = self._away.get(account, 0) + 1
        return account

    def ends_elsewhere(self, account: Account) -> None:
        """Note that no request of an account waits at one of the other routers any more."""
        self.is_moved = True
        routers = self._away[account] - 1
        if routers:
            self._away[account] = routers
        else:
            del self._away[account]
        self.ends(account)

    def least_elsewhere(self) -> float:
        """Return the lowest counter of the accounts that wait at other routers; infinity: none
        waits."""
        if self.is_moved:
            self.is_moved = False
            self._least = INFINITY
            for account in self._away:
                self._least = min(self._least, account.counter)
        return self._least

    def _prune(self) -> None:
        idle = self._idle
        worthless = self.time if self._backlogged else max(self.time, self.peak)
        while len(idle) > IDLE_KEPT:
            counter, number, account = idle[0]
            if counter > worthless and len(idle) <= IDLE_MAX:
                return
            heappop(idle)
            account.idle = False
            if account.waiting:
                continue
            if account.counter > worthless and account.counter > counter:
                # The account was charged after it entered the heap: put it back with its new
                # counter.
                account.idle = True
                heappush(idle, (account.counter, number, account))
            else:
                del self.by_name[account.name]

    def __len__(self) -> int:
        return len(self.by_name)
