"""What this router tells the others: its load at each replica, and where it has sent prompts.

`tell` is called at most every 10 to 20 ms. It compares the load of each replica with what was told
last, so a request costs nothing but the note of its placement.

Must never: wait, or tell what another router has told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from router.core.replica_load import ReplicaLoad
from router.share.messages import (
    MOST_BLOCKS,
    MOST_ROWS,
    VERSION,
    Charge,
    Message,
    Placement,
    Row,
    Waits,
)
from router.share.order import OwnOrder

WHOLE_S: Final = 1.0  # seconds between two messages with all rows
MOST_TOLD: Final = 512  # placements that wait for the next message; older ones are dropped

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

    def __init__(self, router: str, order: OwnOrder | None = None) -> None:
        """`order`: None if requests do not wait at this router."""
        self.router = router
        self._order = order
        self._waiting: tuple[object, ...] = ()  # what the others know to wait, without its age
        self._number = 0
        self._whole_at = 0.0
        self._told: dict[str, _Load] = {}  # what the others know, without rows of zeros
        self._placements: deque[Placement] = deque(maxlen=MOST_TOLD)

    def placed(self, replica: ReplicaLoad, blocks: tuple[int, ...], held: int) -> None:
        """Note that a prompt was sent to a replica."""
        if len(blocks) <= MOST_BLOCKS:
            self._placements.append(Placement(replica.id, blocks, held))

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
        waits: tuple[Waits, ...] = ()
        charges: tuple[Charge, ...] = ()
        levels: tuple[tuple[str, float], ...] = ()
        order = self._order
        if order is not None:
            waits, charges = order.waits(now), order.charges(is_whole=is_whole)
            levels = order.levels()
        waiting = tuple((row.model, row.urgency, row.accounts) for row in waits)
        is_changed = bool(rows or charges or self._placements) or waiting != self._waiting
        if not (is_whole or is_changed):
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
            self._next_placements(),
            waits,
            charges,
            levels,
        )

    def _next_placements(self) -> tuple[Placement, ...]:
        """The oldest placements, as many as one message may have."""
        waiting = self._placements
        found: list[Placement] = []
        left = MOST_BLOCKS
        while waiting and len(waiting[0].blocks) <= left:
            left -= len(waiting[0].blocks)
            found.append(waiting.popleft())
        return tuple(found)
