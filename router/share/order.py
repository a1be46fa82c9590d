"""The order of requests over all routers: what waits at each router, and what each account got.

`OwnOrder` reads this router's queues, `OthersOrder` applies what the others have told to them. What
waits is told completely in each message. What an account was charged is told as a sum that began
with a *generation* of its row, so a sender may forget an account and count it again from 0.

Must never: change which tickets wait, or charge an account twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from policies.allowed import read_lane
from policies.queueing.accounts import Account, Accounts
from policies.queueing.flows import FlowQueue
from policies.queueing.shared import SharedByFlow
from policies.queueing.ticket import CLASSES
from router.admission.pools import Pools
from router.admission.waiting.class_queue import ClassQueue
from router.core.urgency import HIGH
from router.share.messages import (
    MOST_ACCOUNTS,
    MOST_CHARGE,
    MOST_NAME,
    MOST_ROWS,
    Charge,
    Message,
    Served,
    Waits,
)

_LEAST_LEVEL: Final = 0.01  # of the headroom; a lower one keeps no slot free
MOST_TEXT: Final = 100_000  # characters of the names in all rows of what waits
MOST_CHARGES: Final = 512  # accounts whose charges are told; the oldest is forgotten first

_Key = tuple[str, int, str]  # model of the queue, class, account
_NOTHING: Final[Served] = (0.0, 0.0, 0.0, 0.0, 0.0)
_Away = list[tuple[Accounts, Account]]


class OwnOrder:
    """What this router tells of its queues."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._generation = 0
        self._charges: dict[_Key, Charge] = {}  # the last changed one is last

    def waits(self, now: float) -> tuple[Waits, ...]:
        """What waits now, without the tickets that the limit of their key blocks."""
        found: dict[tuple[str, int], Waits] = {}
        for queue in self._pools.queues:
            for lane in queue.wait_lists.active.values():
                model = read_lane(lane.name)[0]
                if len(model) > MOST_NAME:
                    continue
                for class_queue in lane.class_queues:
                    if class_queue is not None and class_queue.count:
                        row = _waits(model, class_queue, now)
                        key = model, class_queue.urgency
                        found[key] = _joined(found[key], row) if key in found else row
        rows: list[Waits] = []
        left = MOST_TEXT
        for row in found.values():
            left -= len(row.model) + sum(len(name) for name, _ in row.accounts)
            if left >= 0 and len(rows) < MOST_ROWS:
                rows.append(row)
        return tuple(rows)

    def levels(self, now: float) -> tuple[tuple[str, float], ...]:
        """The headroom that this router has learned; see `admission/headroom.py`."""
        for queue in self._pools.queues:
            queue.headroom.look(now)  # The queue itself looks only while requests wait in it.
        named = ((model, queue.headroom.own) for model, queue in self._pools.named)
        return tuple((model, level) for model, level in named if level > _LEAST_LEVEL)[:MOST_ROWS]

    def served(self) -> tuple[tuple[str, Served], ...]:
        """What each class was served at this router, by queue."""
        found: list[tuple[str, Served]] = []
        for model, queue in self._pools.named[:MOST_ROWS]:
            critical, high, normal, low, batch = queue.stride.own
            if low + high + normal + batch > 0.0 and len(model) <= MOST_NAME:
                found.append((model, (critical, high, normal, low, batch)))
        return tuple(found)

    def charges(self, *, is_whole: bool) -> tuple[Charge, ...]:
        """The sums that have changed since the last call; `is_whole`: all sums."""
        changed: list[Charge] = []
        for model, urgency, accounts in _books(self._pools):
            journal, accounts.journal = accounts.journal, {}
            for name, amount in (journal or {}).items():
                account = accounts.by_name.get(name)
                if account is not None and len(name) <= MOST_NAME:
                    changed.append(self._charged(model, urgency, account, amount))
        return tuple(self._charges.values() if is_whole else changed)

    def _charged(self, model: str, urgency: int, account: Account, amount: float) -> Charge:
        charges, key = self._charges, (model, urgency, account.name)
        before = charges.pop(key, None)
        if before is None or abs(before.sum + amount) > MOST_CHARGE:
            self._generation += 1
            before = Charge(*key, account.weight, self._generation, 0.0)
            while len(charges) >= MOST_CHARGES:
                del charges[next(iter(charges))]
        found = charges[key] = Charge(*key, account.weight, before.generation, before.sum + amount)
        return found


class _Told:
    """What one router has told."""

    def __init__(self) -> None:
        self.sums: dict[_Key, tuple[int, float]] = {}
        self.is_known = False  # A whole message was heard.
        self.waits: tuple[Waits, ...] = ()
        self.levels: tuple[tuple[str, float], ...] = ()
        self.served: dict[str, Served] = {}
        self.heard_at = 0.0
        self.away: _Away = []  # the accounts that it has waiting


class OthersOrder:
    """What the other routers have told, applied to this router's queues."""

    def __init__(self, pools: Pools, patience_s: float) -> None:
        self._pools = pools
        pools.elsewhere.patience_s = patience_s
        self._told: dict[str, _Told] = {}

    def hear(self, message: Message, now: float) -> None:
        told = self._told.get(message.router)
        if told is None:
            told = self._told[message.router] = _Told()
        told.heard_at = now
        # An account waits here as long as it waits there, also while its charges are applied.
        before = self._mark(told, message.waits)
        # Accounts that are not in a whole message are forgotten.
        sums = {} if message.is_whole else told.sums
        for row in message.charges:
            sums[row.model, row.urgency, row.account] = self._charge(row, told)
        told.sums = sums
        self._serve(dict(message.served), told)
        told.is_known = told.is_known or message.is_whole
        if message.is_whole or message.levels != told.levels:
            told.levels = message.levels
            self._adopt_levels()
        _unmark(before)
        if message.waits or told.waits:
            told.waits = message.waits
            self._adopt()

    def _charge(self, row: Charge, told: _Told) -> tuple[int, float]:
        """Charge what is new in a row.

        Until the router's first whole message, the first sum of an account is past: most accounts
        are in no message before.
        """
        before = told.sums.get((row.model, row.urgency, row.account))
        if before is not None and before[0] == row.generation:
            last = before[1]
        else:
            last = row.sum if before is None and not told.is_known else 0.0
        book = self._book(row.model, row.urgency)
        if book is not None and row.sum != last:
            book.charged_elsewhere(row.account, row.weight, row.sum - last)
        return row.generation, row.sum

    def _serve(self, served: dict[str, Served], told: _Told) -> None:
        """Add what is new to the passes of the classes. A sum that has fallen began again."""
        for model, sums in served.items():
            before = told.served.get(model)
            if before is None:
                before = _NOTHING if told.is_known else sums
            stride = self._pools.of(model).stride
            for urgency in range(HIGH, CLASSES):
                step = sums[urgency] - before[urgency]
                if step > 0.0:
                    stride.served_elsewhere(urgency, step)
        told.served = served

    def lost(self, routers: Iterable[str]) -> None:
        """Forget what routers have waiting; what they have served stays charged."""
        for router in routers:
            told = self._told.pop(router, None)
            if told is not None:
                _unmark(told.away)
        self._adopt()
        self._adopt_levels()

    def _mark(self, told: _Told, waits: tuple[Waits, ...]) -> _Away:
        """Note in the books which accounts a router has waiting. Return the marks of before."""
        before, told.away = told.away, []
        for row in waits:
            book = self._book(row.model, row.urgency)
            if book is not None:
                for name, weight in row.accounts:
                    told.away.append((book, book.begins_elsewhere(name, weight)))
        return before

    def _adopt(self) -> None:
        away = {queue: [False] * CLASSES for queue in self._pools.queues}
        for told in self._told.values():
            for row in told.waits:
                away[self._pools.of(row.model)][row.urgency] = True
        for queue, by_class in away.items():
            queue.stride.waits_elsewhere(by_class)
        self._pools.elsewhere.adopt(
            (row.model, row.urgency, told.heard_at - row.age_ms * 1e-3)
            for told in self._told.values()
            for row in told.waits
        )

    def _adopt_levels(self) -> None:
        for queue in self._pools.queues:
            queue.headroom.elsewhere = 0.0
        for told in self._told.values():
            for model, level in told.levels:
                headroom = self._pools.of(model).headroom
                headroom.elsewhere = max(headroom.elsewhere, level)

    def _book(self, model: str, urgency: int) -> Accounts | None:
        order = self._pools.of(model).rules.order
        return order.books[urgency].keys if isinstance(order, SharedByFlow) else None


def _unmark(away: _Away) -> None:
    for book, account in away:
        book.ends_elsewhere(account)


def _books(pools: Pools) -> Iterable[tuple[str, int, Accounts]]:
    """The accounts of all queues and classes, with a model that the queue serves."""
    for model, queue in pools.named:
        order = queue.rules.order
        if isinstance(order, SharedByFlow):
            for urgency in range(CLASSES):
                yield model, urgency, order.books[urgency].keys


def _waits(model: str, class_queue: ClassQueue, now: float) -> Waits:
    """What waits in one class queue that has tickets; the accounts that were served least first."""
    eldest, line = class_queue.eldest(), class_queue.line
    age_ms = 0 if eldest is None else max(0, int((now - eldest.arrival) * 1e3))
    accounts = line.leading(MOST_ACCOUNTS) if isinstance(line, FlowQueue) else ()
    return Waits(model, class_queue.urgency, age_ms, tuple((a.name, a.weight) for a in accounts))


def _joined(one: Waits, other: Waits) -> Waits:
    """What waits in two lanes of one model and class."""
    accounts = tuple(dict.fromkeys((*one.accounts, *other.accounts)))
    age_ms = max(one.age_ms, other.age_ms)
    return Waits(one.model, one.urgency, age_ms, accounts[:MOST_ACCOUNTS])
