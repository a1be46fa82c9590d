"""Chooses the batch whose next line is sent: owners take turns, and so do the batches of one owner.

So ten batches of one owner together get as many turns as the only batch of another owner. If a
batch cannot send now, it is skipped and keeps its turn. For example, its model has no capacity, or
its lines wait for a retry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class LineScheduler(Generic[T]):
    """The queue of owners, and a queue of batches for each owner."""

    __slots__ = ("_owners",)

    def __init__(self) -> None:
        self._owners: deque[tuple[str, deque[T]]] = deque()

    def add(self, owner: str, member: T) -> None:
        for name, members in self._owners:
            if name == owner:
                members.append(member)
                return
        self._owners.append((owner, deque([member])))

    def discard(self, owner: str, member: T) -> None:
        for place in self._owners:
            if place[0] == owner and member in place[1]:
                place[1].remove(member)
                if not place[1]:
                    self._owners.remove(place)
                return

    def next(self, is_ready: Callable[[T], bool]) -> T | None:
        """Return the next batch for which `is_ready` is true; None if no batch is ready.

        The batch goes to the end of its owner's queue, and the owner to the end of the queue of
        owners.
        """
        for at, place in enumerate(self._owners):
            members = place[1]
            for index, member in enumerate(members):
                if is_ready(member):
                    del members[index]
                    members.append(member)
                    del self._owners[at]
                    self._owners.append(place)
                    return member
        return None
