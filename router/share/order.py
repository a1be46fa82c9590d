"""The order of requests over all routers: what waits at each router, and what each account got.

`OwnOrder` reads this router's queues, `OthersOrder` applies what the others have told to them.

What waits is told completely in each message, also if it has not changed. Otherwise, after a lost
message, an account that waits would be charged as one that does not, which moves the virtual time,
and no later message could correct that. What an account was charged is told as a sum that began
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
from router.share.heard import ChargeKey, HeardQueues, Router
from router.share.messages import (
    MOST_ACCOUNTS,
    MOST_CHARGE,
    MOST_NAME,
    MOST_ROWS,
    Charge,
    Message,
    Queues,
    Served,
    Waits,
)

_LEAST_LEVEL: Final = 0.01  # of the headroom; a lower one keeps no slot free
MOST_TEXT: Final = 100_000  # characters of the names in all rows of what waits
MOST_CHARGES: Final = 512  # accounts whose charges are told; the oldest is forgotten first

_NOTHING: Final[Served] = (0.0, 0.0, 0.0, 0.0, 0.0)
_Class = tuple[str, int]  # model, class
_Away = list[tuple[Accounts, Account]]


class OwnOrder:
    """What this router tells of its queues."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._generation = 0
        self._charges: dict[ChargeKey, Charge] = {}  # the last changed one is last

    def tell(self, is_whole: bool, now: float) -> Queues:
        """Return what the next message tells. `is_whole`: also charges that have not changed."""
        return Queues(self._waits(now), self._sums(is_whole), self._levels(now), self._served())

    def _waits(self, now: float) -> tuple[Waits, ...]:
        """What waits now, without the tickets that the limit of their key blocks."""
        found: dict[_Class, Waits] = {}
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

    def _levels(self, now: float) -> tuple[tuple[str, float], ...]:
        """The headroom that this router has learned; see `admission/headroom.py`."""
        for queue in self._pools.queues:
            queue.headroom.look(now)  # The queue itself looks only while requests wait in it.
        named = ((model, queue.headroom.own) for model, queue in self._pools.named)
        return tuple((model, level) for model, level in named if level > _LEAST_LEVEL)[:MOST_ROWS]

    def _served(self) -> tuple[tuple[str, Served], ...]:
        """What each class was served at this router, by queue."""
        found: list[tuple[str, Served]] = []
        for model, queue in self._pools.named[:MOST_ROWS]:
            critical, high, normal, low, batch = queue.stride.own
            if low + high + normal + batch > 0.0 and len(model) <= MOST_NAME:
                found.append((model, (critical, high, normal, low, batch)))
        return tuple(found)

    def _sums(self, is_whole: bool) -> tuple[Charge, ...]:
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


class OthersOrder:
    """What the other routers have told, applied to this router's queues."""

    def __init__(self, pools: Pools, patience_s: float) -> None:
        self._pools = pools
        pools.elsewhere.patience_s = patience_s
        # The arrival of the oldest request at each router where requests of the class wait.
        self._waiting: dict[_Class, dict[Router, float]] = {}
        self._levels: dict[Router, tuple[tuple[str, float], ...]] = {}  # Without empty ones.

    def hear(self, message: Message, router: Router, now: float) -> None:
        queues, heard = message.queues, router.queues
        # An account waits here as long as it waits there, also while its charges are applied.
        before, heard.away = heard.away, self._marked(queues.waits)
        # Accounts that are not in a whole message are forgotten.
        sums = {} if message.is_whole else heard.sums
        for row in queues.charges:
            sums[row.model, row.urgency, row.account] = self._charge(row, heard)
        heard.sums = sums
        self._serve(dict(queues.served), heard)
        heard.is_known = heard.is_known or message.is_whole
        if message.is_whole or queues.levels != self._levels.get(router, ()):
            self._levels.pop(router, None)
            if queues.levels:
                self._levels[router] = queues.levels
            self._adopt_levels()
        _unmark(before)
        if queues.waits or heard.waits:
            self._replace(router, queues.waits, now)
            self._adopt()

    def _charge(self, row: Charge, heard: HeardQueues) -> tuple[int, float]:
        """Charge what is new in a row.

        Until the router's first whole message, the first sum of an account is past: most accounts
        are in no message before.
        """
        before = heard.sums.get((row.model, row.urgency, row.account))
        if before is not None and before[0] == row.generation:
            last = before[1]
        else:
            last = row.sum if before is None and not heard.is_known else 0.0
        book = self._book(row.model, row.urgency)
        if book is not None and row.sum != last:
            book.charged_elsewhere(row.account, row.weight, row.sum - last)
        return row.generation, row.sum

    def _serve(self, served: dict[str, Served], heard: HeardQueues) -> None:
        """Add what is new to the passes of the classes. A sum that has fallen began again."""
        for model, sums in served.items():
            before = heard.served.get(model)
            if before is None:
                before = _NOTHING if heard.is_known else sums
            stride = self._pools.of(model).stride
            for urgency in range(HIGH, CLASSES):
                step = sums[urgency] - before[urgency]
                if step > 0.0:
                    stride.served_elsewhere(urgency, step)
        heard.served = served

    def lost(self, routers: list[Router]) -> None:
        """Forget what routers have waiting; what they have served stays charged."""
        for router in routers:
            _unmark(router.queues.away)
            self._replace(router, (), 0.0)
            self._levels.pop(router, None)
            router.queues = HeardQueues()
        self._adopt()
        self._adopt_levels()

    def _marked(self, waits: tuple[Waits, ...]) -> _Away:
        """Note in the books which accounts a router has waiting. Return the marks."""
        marks: _Away = []
        for row in waits:
            book = self._book(row.model, row.urgency)
            if book is not None:
                for name, weight in row.accounts:
                    marks.append((book, book.begins_elsewhere(name, weight)))
        return marks

    def _replace(self, router: Router, waits: tuple[Waits, ...], now: float) -> None:
        """Note what waits at a router, in place of what it has told before."""
        waiting = self._waiting
        for row in router.queues.waits:
            key = row.model, row.urgency
            at = waiting.pop(key, {})
            at.pop(router, None)
            if at:
                waiting[key] = at
        for row in waits:
            waiting.setdefault((row.model, row.urgency), {})[router] = now - row.age_ms * 1e-3
        router.queues.waits = waits

    def _adopt(self) -> None:
        away = {queue: [False] * CLASSES for queue in self._pools.queues}
        for model, urgency in self._waiting:
            away[self._pools.of(model)][urgency] = True
        for queue, by_class in away.items():
            queue.stride.waits_elsewhere(by_class)
        self._pools.elsewhere.adopt(
            (key[0], key[1], min(at.values())) for key, at in self._waiting.items()
        )

    def _adopt_levels(self) -> None:
        for queue in self._pools.queues:
            queue.headroom.elsewhere = 0.0
        for levels in self._levels.values():
            for model, level in levels:
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
