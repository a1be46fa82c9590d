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
from router.share.limits_told import SharedLimits
from router.share.messages import MOST_BLOCKS, MOST_ROWS, VERSION, Message, Placement, Row

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

    def __init__(self, router: str, limits: SharedLimits | None = None) -> None:
        self.router = router
        self._limits = limits
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
        limits = self._limits
        uses = () if limits is None else limits.tell(self._number + 1, is_whole, now)
        if not (is_whole or rows or self._placements or uses):
            return None
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
            uses,
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
