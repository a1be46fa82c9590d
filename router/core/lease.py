"""The right to a slot at a replica: taken when the choice is made, given back exactly once.

Counting at the choice, not when the request is sent, is what keeps a burst from going to one place;
`release` may be called from every path on which an attempt can end, and only the first one counts.
"""

from __future__ import annotations

from typing import Protocol


class Slots(Protocol):
    inflight: int


class Lease:
    """One slot. Making it takes the slot."""

    __slots__ = ("_holder",)

    def __init__(self, holder: Slots) -> None:
        holder.inflight += 1
        self._holder: Slots | None = holder

    @property
    def held(self) -> bool:
        return self._holder is not None

    def release(self) -> None:
        holder, self._holder = self._holder, None
        if holder is not None:
            holder.inflight -= 1
