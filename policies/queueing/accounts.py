"""Who was served how much: counters of virtual time by key, and by user within a key.

A flow is charged what it is served, divided by its weight, and the one with the lowest counter goes
next (VTC: Sheng et al., "Fairness in Serving Large Language Models", OSDI'24). One that comes back
from having nothing to do is lifted to the virtual time, the least counter among those that wait
when somebody was last served (as in start-time fair queueing: Goyal, Vin and Cheng, SIGCOMM'96):
it can save up nothing. When nobody waits nobody is deprived, so with the last that waits all debts
are forgotten.

An account that waits for nothing and is not above the virtual time is worth nothing, because a new
one would be the same. Beyond a few, kept to save making them again, such accounts are dropped; so
what is kept is bounded by who waits and who was served more than others a moment ago, and in any
case by `IDLE_MAX`.

Must never: know in what it is charged.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, Final

from policies.queueing.ticket import Item

IDLE_MAX: Final = 4096
IDLE_KEPT: Final = 64  # whatever they are worth


class Account:
    """What one key, or one user of a key, was served."""

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
        self.number = number  # ties go by it: the first that came first
        self.within = within
        self.counter = 0.0
        self.waiting = 0  # tickets, in all lines
        self.idle = False  # on the list of those that may be dropped
        self.nodes: list[Node] = []  # one in each line in which it waits
        self.users: Accounts | None = None

    def add(self, amount: float) -> None:
        """Charge so much; a negative amount is given back."""
        self.counter += amount / self.weight
        within = self.within
        if self.counter > within.peak:
            within.peak = self.counter
        for node in self.nodes:
            node.moved()


class Node(Item):
    """An account's place in one line. The line's own; the account tells it when it has moved."""

    __slots__ = ("account",)

    def __init__(self, account: Account) -> None:
        super().__init__()
        self.account = account

    def moved(self) -> None:
        raise NotImplementedError


class Accounts:
    """Accounts that share one virtual time: all keys of a class, or all users of a key."""

    __slots__ = ("_backlogged", "_idle", "_number", "by_name", "peak", "time")

    def __init__(self) -> None:
        self.by_name: dict[str, Account] = {}
        self.time = 0.0  # virtual: no counter of anybody who begins to wait is below it
        self.peak = 0.0  # the highest counter
        self._backlogged = 0  # accounts with somebody that waits
        self._idle: list[Any] = []  # heap of (counter, number, account): who waits for nothing
        self._number = 0

    def of(self, name: str, weight: float) -> Account:
        """Everybody has one; what was dropped is made anew."""
        found = self.by_name.get(name)
        if found is None:
            self._number += 1
            found = self.by_name[name] = Account(name, weight, self._number, self)
        found.weight = weight
        if found.counter < self.time:
            found.counter = self.time
        return found

    def begins(self, account: Account) -> None:
        """One more ticket of it waits."""
        account.waiting += 1
        if account.waiting == 1:
            if not self._backlogged:
                self.time = max(self.time, self.peak)
                account.counter = max(account.counter, self.time)
            self._backlogged += 1

    def ends(self, account: Account) -> None:
        """One less waits. Call it after charging."""
        account.waiting -= 1
        if not account.waiting:
            self._backlogged -= 1
            self.idles(account)

    def idles(self, account: Account) -> None:
        """It waits for nothing: it may be dropped as soon as it is worth nothing."""
        if not account.idle:
            account.idle = True
            heappush(self._idle, (account.counter, account.number, account))
        if len(self._idle) > IDLE_KEPT:
            self._prune()

    def correct(self, name: str, weight: float, amount: float) -> Account:
        """It was charged too little by `amount`, or too much; it may have been dropped since."""
        account = self.by_name.get(name)
        if account is None:
            account = self.of(name, weight)
        account.add(amount)
        if not account.waiting:
            self.idles(account)
        return account

    def reaches(self, time: float) -> None:
        """The least counter among those that wait is `time`."""
        if time > self.time:
            self.time = time

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
                # It was charged after it came here: look at it again, in its new place.
                account.idle = True
                heappush(idle, (account.counter, number, account))
            else:
                del self.by_name[account.name]

    def __len__(self) -> int:
        return len(self.by_name)
