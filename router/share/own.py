"""What this router tells the others: its load at each replica, and where it has sent prompts.

`tell` is called at most every 10 to 20 ms. It compares the load of each replica with what was told
last, so a request costs nothing but the note of its placement. A router that joins gets the latest
placements again: together at most `MOST_BLOCKS` blocks from all routers, at most `AGAIN_BLOCKS` of
them in a second from each.

Must never: wait, or tell what another router has told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from router.core.replica_load import ReplicaLoad
from router.share.limits_told import SharedLimits
from router.share.messages import (
    MOST_BLOCKS,
    MOST_ROWS,
    VERSION,
    Message,
    Placement,
    Queues,
    Row,
)
from router.share.order import OwnOrder

WHOLE_S: Final = 1.0  # seconds between two messages with all rows
MOST_TOLD: Final = 512  # placements that wait for the next message; older ones are dropped
AGAIN_BLOCKS: Final = 2000  # blocks that one message tells again

_Load = tuple[int, int, int]
_NONE: Final = (0, 0, 0)


def own_load(place: ReplicaLoad) -> _Load:
    """The load, the waiting requests and their uncached tokens that are this router's."""
    return (
        place.load - place.foreign_load,
        place.waiting - place.foreign_waiting,
        place.pending_tokens - place.shared_tokens,
    )


class Own:
    """The messages of one router."""

    def __init__(self, router: str, limits: SharedLimits, order: OwnOrder | None = None) -> None:
        """`order`: None if requests do not wait at this router."""
        self.router = router
        self._limits = limits
        self._order = order
        self._waiting: list[object] = []  # what the others know to wait, without its age
        self._number = 0
        self._whole_at = 0.0
        self._told: dict[str, _Load] = {}  # what the others know, without rows of zeros
        self._placements: deque[Placement] = deque(maxlen=MOST_TOLD)
        self._latest: deque[Placement] = deque()  # with at most `MOST_BLOCKS` blocks
        self._latest_blocks = 0
        self._again: list[Placement] = []  # to be told again, the oldest last

    def placed(self, replica: ReplicaLoad, blocks: tuple[int, ...], held: int) -> None:
        """Note that a prompt was sent to a replica."""
        if len(blocks) > MOST_BLOCKS:
            return
        placement = Placement(replica.id, blocks, held)
        self._placements.append(placement)
        self._latest.append(placement)
        self._latest_blocks += len(blocks)
        while self._latest_blocks > MOST_BLOCKS or len(self._latest) > MOST_TOLD:
            self._latest_blocks -= len(self._latest.popleft().blocks)

    def joined(self, others: int, held: Callable[[str, tuple[int, ...]], int]) -> None:
        """Begin to tell the latest placements again, because one of `others` routers is new.

        `held`: how many leading blocks of a prompt a replica still holds.
        """
        left = MOST_BLOCKS // max(1, others)
        self._again = []
        for placement in reversed(self._latest):
            blocks = placement.blocks[:AGAIN_BLOCKS]
            left -= len(blocks)
            if left < 0:
                break
            if depth := held(placement.replica, blocks):
                self._again.append(Placement(placement.replica, blocks[:depth], 0))

    def tell(self, places: Mapping[str, ReplicaLoad], now: float) -> Message | None:
        """The next message; None: there is nothing to tell."""
        is_whole = now >= self._whole_at
        told = self._told
        loads: dict[str, _Load] = {}
        for name, place in places.items():
            load = own_load(place)
            if load != _NONE:
                loads[name] = load
        rows = [
            Row(name, *loads.get(name, _NONE))
            for name in (loads if is_whole else {**told, **loads})
            if is_whole or loads.get(name, _NONE) != told.get(name, _NONE)
        ]
        queues = Queues() if self._order is None else self._order.tell(is_whole, now)
        uses = self._limits.tell(self._number + 1, is_whole, now)
        waiting: list[object] = [(row.model, row.urgency, row.accounts) for row in queues.waits]
        is_changed = bool(rows or queues.charges or self._placements or uses)
        if not (is_whole or is_changed or waiting != self._waiting):
            return None
        self._waiting = waiting
        if is_whole:
            self._whole_at = now + WHOLE_S
        self._told = loads
        self._number += 1
        return Message(
            VERSION,
            self.router,
            self._number,
            tuple(rows[:MOST_ROWS]),
            is_whole,
            self._next_placements(is_whole),
            queues,
            uses,
        )

    def _next_placements(self, is_whole: bool) -> tuple[Placement, ...]:
        """The oldest placements, as many as one message may have; in a whole one also told ones."""
        waiting = self._placements
        found: list[Placement] = []
        left = MOST_BLOCKS
        while waiting and len(waiting[0].blocks) <= left:
            left -= len(waiting[0].blocks)
            found.append(waiting.popleft())
        again = self._again
        left = min(left, AGAIN_BLOCKS if is_whole else 0)
        while again and len(again[-1].blocks) <= left:
            left -= len(again[-1].blocks)
            found.append(again.pop())
        return tuple(found)
