"""A request that asks to be sent: what an order policy may know of it, and where it stands.

Made by the driver of the queue, owned by one request, never shared between queues. What is known of
the request is in objects that its owner has anyway: its `view` and its `flow`. They do not change
while the request waits; only the queue predicts `view.output_tokens`. The rest is bookkeeping: of
the queue, which alone changes `state`, and of the policy that holds the ticket.

Must never: know a socket, a clock or a replica's inside.
"""

from __future__ import annotations

from typing import Any, Final

from policies.facts import RequestView
from policies.queueing.flow_identity import FlowIdentity
from policies.queueing.prefix_match import PrefixMatch
from policies.queueing.run import Run

CLASSES: Final = 5  # critical, high, normal, low, batch
INFINITY: Final = float("inf")  # compiled code looks `math.inf` up in a dictionary at every use

# The life of a ticket. Each step is taken by the queue, and only forwards but for a preemption.
NEW: Final = 0  # not offered, or offered and answered with replicas and not sent yet
WAITING: Final = 1
SENT: Final = 2  # it has a place: granted, or the driver chose one
ENDED: Final = 3  # settled, expired, refused or gone: nothing happens to it any more
NOT_CHARGED: Final = -1.0


class Entry:
    """A place in a `Ranked`, by key, ties by order."""

    __slots__ = ("item", "key", "order")

    def __init__(self, key: float, order: int, item: Item) -> None:
        self.key = key
        self.order = order
        self.item: Any = item  # None: it has left its place

    def __lt__(self, other: Entry) -> bool:
        """For `heapq`. Compiled code calls `is_before`, which costs a third of it."""
        return self.is_before(other)

    def is_before(self, other: Entry) -> bool:
        if self.key != other.key:
            return self.key < other.key
        return self.order < other.order


class Item:
    """What a `Ranked` holds. `entry` is its place there; None: it is in none."""

    __slots__ = ("entry",)

    def __init__(self) -> None:
        self.entry: Entry | None = None


class Ticket(Item):
    """One request before its dispatch, and after it until its cost is settled."""

    __slots__ = (
        "arrival",
        "charged",
        "committed",
        "concurrency",
        "deadline",
        "excluded",
        "flow",
        "lane",
        "model",
        "node",
        "number",
        "order",
        "party",
        "prefix",
        "queue",
        "request",
        "row",
        "run",
        "skips",
        "starved",
        "state",
        "urgency",
        "view",
    )

    def __init__(
        self,
        request: object,
        view: RequestView,
        flow: FlowIdentity,
        *,
        model: str = "",
        lane: str | None = None,
        number: float = 2.0,
        arrival: float = 0.0,
        deadline: float = INFINITY,
        excluded: tuple[object, ...] = (),
        concurrency: Any = None,
    ) -> None:
        super().__init__()
        # In the order in which they are read: of a hundred thousand that wait none is in a CPU's
        # cache, and what is compiled lays its fields out as they are set here.

        # When it is one of the first few.
        self.view = view  # its prompt, its size, what it is expected to cost
        self.prefix: PrefixMatch | None = None  # None: nobody has looked up its prefix yet
        self.order = 0  # the order of arrival, from the first to wait
        self.skips = 0  # how often a later one went first because of its prefix
        self.excluded = excluded  # replicas of its lane it must not go to, such as tried ones

        # When it is the oldest, or is taken.
        self.state: int = NEW
        self.starved = False  # it has waited for most of its bound
        # Where it waits: a row, or a row of its key while the key's limit blocks it.
        self.row: Any = None
        self.arrival = arrival  # monotonic seconds
        self.urgency = max(0, min(CLASSES - 1, int(number + 0.5)))  # the class it belongs to
        self.node: Any = None  # where it waits: the policy's
        self.flow = flow  # whose share it uses
        self.charged = NOT_CHARGED  # by the policy, to be reconciled with what it really cost
        self.party: Any = None  # what is counted of its flow, while it waits
        self.committed = False  # its client was sent an early 200, so it does not give way
        # Tickets of one lane may go to the same replicas: the model's name, as a rule (None). What
        # may go to others than the rest of its model (a stored response) has a lane of its own.
        self.lane = model if lane is None else lane
        self.concurrency = concurrency  # its key's limit of requests at replicas; None: it has none
        self.run: Run | None = None  # None: it was never sent

        # When it comes, and when it is over.
        self.request = request  # the driver's own; the queue hands it back and never looks
        self.queue: Any = None  # the one that counts it
        self.model = model  # decides the queue; "": it names none
        self.number = number  # urgency: 0 critical to 4 batch, lower first, fractions allowed
        self.deadline = deadline  # monotonic seconds: when the client has no use for it any more

    @property
    def place(self) -> Any:
        """The replica it was sent to; None: it is at none."""
        run = self.run
        return None if run is None else run.place

    @property
    def reserved(self) -> int:
        """Tokens that count as its class's. Its output must have been predicted."""
        view = self.view
        return view.prompt_tokens + view.output_tokens

    @property
    def blocked_in(self) -> Any:
        """Where it waits while its key's limit blocks it; None: it is not blocked."""
        row = self.row
        return row if row is not None and row.is_blocked else None
