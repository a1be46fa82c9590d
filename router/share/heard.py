"""What was heard from one other router. `Others` has one record of each router.

Each part of a record is written only by the module that is named above it.

Must never: have a row of a message that a later one has passed.
"""

from __future__ import annotations

from policies.queueing.accounts import Account, Accounts
from router.admission.limits import Used
from router.share.messages import Row, Served, Waits

ChargeKey = tuple[str, int, str]  # model of the queue, class, account


class HeardUse:
    """The last values of one row of a tenant."""

    __slots__ = ("batch", "generation", "running", "used")

    def __init__(self, generation: int, used: Used) -> None:
        self.generation = generation
        self.used = used
        # Requests at replicas.
        self.running = 0
        self.batch = 0


class HeardQueues:
    """What a router has told of its queues; forgotten if the router is silent for `LOST_S`."""

    __slots__ = ("away", "is_known", "served", "sums", "waits")

    def __init__(self) -> None:
        self.sums: dict[ChargeKey, tuple[int, float]] = {}  # generation, sum
        self.is_known = False  # A whole message was heard.
        self.waits: tuple[Waits, ...] = ()
        self.served: dict[str, Served] = {}
        self.away: list[tuple[Accounts, Account]] = []  # the accounts that it has waiting


class Router:
    """What was heard from one router."""

    __slots__ = ("first", "heard_at", "is_heard", "number", "queues", "rows", "uses")

    def __init__(self, number: int, now: float) -> None:
        """`number`: that of the first message, which is not counted yet."""
        # `others.py`
        self.first = number
        self.number = number - 1  # of the last message
        self.heard_at = now
        self.is_heard = False  # Whether a message came in the last `LOST_S`.
        self.rows: dict[str, Row] = {}  # its load, by replica
        # `order.py`
        self.queues = HeardQueues()
        # `limits_told.py`: by tenant; the row that was heard last is at the end.
        self.uses: dict[str, HeardUse] = {}
