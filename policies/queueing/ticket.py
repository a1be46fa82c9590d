"""A request that asks to be sent: what an order policy may know of it, and where it stands.

Made by whoever drives the queue, owned by one request, never shared between queues. The facts are
the driver's, and it changes none of them while the request waits; the rest is bookkeeping: of the
queue, which alone changes `state`, and of the policy that holds it.

Must never: know a socket, a clock or a replica's inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

CLASSES: Final = 5  # critical, high, normal, low, batch
INFINITY: Final = float("inf")  # compiled code looks `math.inf` up in a dictionary at every use

# The life of a ticket. Each step is taken by the queue, and only forwards but for a preemption.
NEW: Final = 0  # not offered, or offered and answered with replicas and not sent yet
WAITING: Final = 1
SENT: Final = 2  # it has a place: granted, or the driver chose one
ENDED: Final = 3  # settled, expired, refused or gone: nothing happens to it any more

_NOTHING: Final[dict[Any, int]] = {}


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
        "account",
        "arrival",
        "away",
        "block_tokens",
        "body_bytes",
        "charged",
        "committed",
        "concurrency",
        "deadline",
        "excluded",
        "flow",
        "key",
        "known",
        "known_at",
        "known_key",
        "lane",
        "level",
        "look",
        "model",
        "most",
        "most_output",
        "names_user",
        "node",
        "number",
        "order",
        "output",
        "place",
        "preempted",
        "preempting",
        "priced",
        "prompt",
        "queue",
        "ran_s",
        "request",
        "row",
        "sent_at",
        "shown",
        "skips",
        "starved",
        "state",
        "streamed",
        "tokens",
        "urgency",
        "user",
        "weight",
    )

    def __init__(
        self,
        request: object = None,
        *,
        model: str = "",
        lane: str | None = None,
        number: float = 2.0,
        level: float | None = None,
        key: str = "",
        user: str = "",
        known_key: bool = False,
        names_user: bool = False,
        weight: float = 1.0,
        tokens: int = 0,
        prompt: int = 0,
        output: int = -1,
        most_output: int = -1,
        arrival: float = 0.0,
        deadline: float = INFINITY,
        body_bytes: int = 0,
        streamed: bool = True,
        look: Callable[[], Mapping[Any, int]] | None = None,
        block_tokens: float = 1.0,
        excluded: tuple[object, ...] = (),
        concurrency: Any = None,
    ) -> None:
        super().__init__()
        # In the order in which they are read: of a hundred thousand that wait none is in a CPU's
        # cache, and what is compiled lays its fields out as they are set here.

        # When it is one of the first few. Leading blocks of its prompt by replica (absent: none) as
        # they are held now; None: nobody holds anything. Costs microseconds, so it is asked for
        # few, and not too often.
        self.look = look
        self.known: dict[Any, int] = _NOTHING  # what `look` told last ...
        self.known_at = -INFINITY  # ... and when
        self.most = 0.0  # tokens held by whoever holds most of them
        self.block_tokens = block_tokens  # tokens of one of these blocks
        self.order = 0  # the order of arrival, from the first to wait
        self.skips = 0  # how often a later one went first because of its prefix
        self.excluded = excluded  # replicas of its lane it must not go to, such as tried ones

        # When it is the eldest, or is taken.
        self.state: int = NEW
        self.starved = False  # it has waited for most of its bound
        self.priced = False  # the order policy has charged it
        self.preempting = False  # it was asked back, and has not come yet
        self.shown = False  # its first content is with its client
        # Where it waits: a row, or a row of its key while the key's limit blocks it.
        self.row: Any = None
        self.streamed = streamed  # False: its first content event is the whole answer
        self.arrival = arrival  # monotonic seconds
        self.urgency = max(0, min(CLASSES - 1, int(number + 0.5)))  # the class it belongs to
        self.node: Any = None  # where it waits: the policy's
        self.tokens = tokens  # uncached prompt tokens at the best place, predicted
        self.prompt = max(prompt, tokens)  # all prompt tokens
        self.output = output  # output tokens, predicted; below 0: the queue predicts them ...
        self.most_output = most_output  # ... and so many at most; below 0: its client says nothing
        self.account: Any = None  # the user whom the policy has charged ...
        self.charged = 0.0  # ... and what; to be reconciled with what it really cost
        self.flow: Any = None  # what is counted of its key and user
        self.committed = False  # its client was sent an early 200, so it does not give way
        self.body_bytes = body_bytes  # held in memory while it waits
        # Tickets of one lane may go to the same replicas: the model's name, as a rule (None). What
        # may go to others than the rest of its model (a stored response) has a lane of its own.
        self.lane = model if lane is None else lane
        self.concurrency = concurrency  # its key's limit of requests at replicas; None: it has none
        self.place: Any = None  # the replica it was sent to
        self.sent_at = 0.0
        self.ran_s = 0.0  # at replicas, before it was put back: no wait
        self.preempted = 0  # how often it was put back
        # It was sent and failed, and is at no replica until it is sent again.
        self.away = False

        # When it comes, and when it is over.
        self.request = request  # the driver's own; the queue hands it back and never looks
        self.queue: Any = None  # the one that counts it
        self.model = model  # decides the queue; "": it names none
        self.number = number  # urgency: 0 critical to 4 batch, lower first, fractions allowed
        # The same with the steps of its user's pending requests, within its class, frozen at
        # arrival; for orders that do not share by flow. None: without any.
        self.level = number if level is None else level
        self.key = key  # whose it is ...
        self.user = user  # ... and whose of these: together, the flow
        self.known_key = known_key  # its key is in the keys file
        self.names_user = names_user  # a trusted client has named the user
        self.weight = weight  # of the key, > 0
        self.deadline = deadline  # monotonic seconds: when the client has no use for it any more

    @property
    def reserved(self) -> int:
        """Tokens that count as its class's. Its output must have been predicted."""
        return self.prompt + self.output

    @property
    def blocked_in(self) -> Any:
        """Where it waits while its key's limit blocks it; None: it is not blocked."""
        row = self.row
        return row if row is not None and row.is_blocked else None
