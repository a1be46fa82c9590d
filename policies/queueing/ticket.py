"""A ticket: one request as the queue and its order policies see it, with its state in the queue.

The driver of the queue makes a ticket for a request. The ticket belongs to one queue at a time. The
facts of the request are in `view` and `flow`, which the router has already made. These facts do not
change while the request waits, except that the queue predicts `view.output_tokens`. The queue and
the order policy use the other fields for their own records. Only the queue changes `state`.

Must never: refer to a socket, a clock or the internals of a replica.
"""

from __future__ import annotations

from typing import Any, Final

from policies.facts import RequestView
from policies.queueing.flow_identity import FlowIdentity
from policies.queueing.prefix_match import PrefixMatch
from policies.queueing.run import Run

CLASSES: Final = 5  # critical, high, normal, low, batch
INFINITY: Final = float("inf")  # compiled code looks `math.inf` up in a dictionary at every use

# The states of a ticket. Only the queue changes the state. It becomes a later state of this list,
# except if a sent request is put back into the queue.
NEW: Final = 0  # not offered to the queue yet, or the driver is choosing its replica
WAITING: Final = 1
SENT: Final = 2  # sent to a replica
ENDED: Final = 3  # settled, expired, refused, evicted or left; an ended ticket never changes again
NOT_CHARGED: Final = -1.0


class Entry:
    """An entry of a `Ranked`, ordered by key, ties by order."""

    __slots__ = ("item", "key", "order")

    def __init__(self, key: float, order: int, item: Item) -> None:
        self.key = key
        self.order = order
        self.item: Any = item  # `None`: the item was removed

    def __lt__(self, other: Entry) -> bool:
        """For `heapq`. Compiled code calls `is_before`, which costs a third of this method."""
        return self.is_before(other)

    def is_before(self, other: Entry) -> bool:
        if self.key != other.key:
            return self.key < other.key
        return self.order < other.order


class Item:
    """An item of a `Ranked`. `entry` is its position there; `None`: it is in no `Ranked`."""

    __slots__ = ("entry",)

    def __init__(self) -> None:
        self.entry: Entry | None = None


class Ticket(Item):
    """One request before its dispatch, and after it until its cost is settled."""

    __slots__ = (
        "arrival",
        "charged",
        "class_queue",
        "concurrency",
        "deadline",
        "eligible_since",
        "excluded",
        "flow",
        "forecast",
        "has_early_status",
        "lane",
        "model",
        "node",
        "number",
        "order",
        "party",
        "prefix",
        "queue",
        "request",
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
        # The fields are grouped by the time of their use, because 100,000 waiting tickets do not
        # fit into a CPU cache. A compiled class lays out its fields in the order of these
        # assignments.

        # Fields that are read when the ticket is one of the first few of its class queue.
        self.view = view  # the request's prompt, size and expected cost
        self.prefix: PrefixMatch | None = None  # `None`: the prefix was not looked up yet
        # The order of arrival; 0: not offered to the queue yet. A request that goes to a fallback
        # gets another ticket with the same order, so entries of a heap also need `id(ticket)`.
        self.order = 0
        self.skips = 0  # how often a later ticket went first because of its prefix
        self.excluded = excluded  # replicas of the lane that are not allowed, such as tried ones

        # Fields that are read when the ticket is the oldest one, or is taken.
        self.state: int = NEW
        self.starved = False  # the ticket has waited for most of `starvation_s`
        # Where the ticket waits: a `ClassQueue`, or a `KeyQueue` while its API key's limit blocks
        # it.
        self.class_queue: Any = None
        self.arrival = arrival  # the arrival time of the request, in monotonic seconds
        # The time since which the ticket waits and its API key's limit does not block it, in
        # monotonic seconds.
        self.eligible_since = 0.0
        self.urgency = max(0, min(CLASSES - 1, int(number + 0.5)))  # the class, 0 to 4
        self.node: Any = None  # position in the class queue; only the order policy uses it
        self.flow = flow  # the account and member whose share the request uses
        self.charged = NOT_CHARGED  # the policy's charge, corrected to the true cost at the end
        self.party: Any = None  # the flow's entry in `Holders`, while the ticket waits
        self.has_early_status = False  # the client has an early 200, so do not evict it
        # Tickets of one lane may go to the same replicas. The default is the model's name. A
        # request that may go to fewer replicas (a stored response) has its own lane.
        self.lane = model if lane is None else lane
        self.concurrency = concurrency  # the API key's limit of running requests; `None`: no limit
        self.run: Run | None = None  # `None`: the request was never sent

        # Fields that are read when the request arrives, and when it ends.
        self.request = request  # the driver's object; the queue never reads it
        self.queue: Any = None  # the queue that counts the ticket
        # The predicted wait (`WaitForecast`), until the ticket is sent; `None`: no wait is
        # predicted.
        self.forecast: Any = None
        self.model = model  # selects the queue; "": the request names no model
        self.number = number  # urgency: 0 critical to 4 batch, lower first, fractions allowed
        self.deadline = deadline  # monotonic seconds; after it the client needs no answer

    @property
    def place(self) -> Any:
        """The replica to which the request was sent; `None`: it is not at a replica."""
        run = self.run
        return None if run is None else run.place

    @property
    def reserved(self) -> int:
        """The tokens that reservations count for the class. `view.output_tokens` must have been
        predicted."""
        view = self.view
        return view.prompt_tokens + view.output_tokens

    @property
    def blocked_in(self) -> Any:
        """The `KeyQueue` where the ticket waits while its API key's limit blocks it; `None`: not
        blocked."""
        class_queue = self.class_queue
        return class_queue if class_queue is not None and class_queue.is_blocked else None
