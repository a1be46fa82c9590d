"""Chooses the next line by taking turns between owners, and between the batches of one owner. Pure.

So ten batches of one owner together get as much as the single batch of another owner. A blocked
batch (its model has no capacity, its lines wait for a retry) is skipped and keeps its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class LineScheduler(Generic[T]):
    """The owners and their batches, in the order of their next turn."""

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
        """The next ready batch. The batch goes to the end of its owner's queue, and the owner to
        the end of the owners' queue.
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
