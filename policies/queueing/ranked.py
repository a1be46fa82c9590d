"""Things in order of a key, whose first few dozen can be looked at without taking them out.

A sorted front of up to 128 with a heap behind it: adding and removing cost O(log n), a thing leaves
from wherever it stands, and a queue of fewer never touches a heap at all. What leaves the heap's
middle is only marked, and swept away once most of the heap is dead.

Must never: hold more than twice what it is asked to hold.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush
from typing import Any, Final

from policies.queueing.ticket import Item

FRONT: Final = 64  # how many can be looked at, at least, where there are as many
_FEW: Final = 32  # fewer in the front call for more from the heap
_MANY: Final = 128


class Ranked:
    """Items by (key, order), lowest first. An item is in one `Ranked` at a time."""

    __slots__ = ("_dead", "_front", "_heap", "count")

    def __init__(self) -> None:
        self.count = 0
        # Entries are (key, order, item). They stay boxed (Any), because an entry is alive as long
        # as it is its item's own: the same object, not an equal one.
        self._front: list[Any] = []  # sorted, all alive, none above any that lives in the heap
        self._heap: list[Any] = []
        self._dead = 0  # in the heap

    def add(self, item: Item, key: float, order: int) -> None:
        """`order` decides among equal keys. The item must be in no `Ranked`."""
        entry: Any = (key, order, item)
        item.entry = entry
        self.count += 1
        front, heap = self._front, self._heap
        if not front or entry > front[-1]:
            if heap:
                heappush(heap, entry)
                return
            front.append(entry)
        else:
            insort(front, entry)
        if len(front) > _MANY:
            for spilled in front[FRONT:]:
                heappush(heap, spilled)
            del front[FRONT:]

    def move(self, item: Item, key: float, order: int) -> None:
        """Another key for one that is in here, or that is not yet."""
        entry = item.entry
        if entry is not None:
            if entry[0] == key:
                return
            if self.count == 1:
                entry = (key, order, item)
                item.entry = entry
                self._front[0] = entry
                return
            self.remove(item)
        self.add(item, key, order)

    def remove(self, item: Item) -> None:
        """The item must be in here."""
        entry = item.entry
        item.entry = None
        self.count -= 1
        front = self._front
        if front and entry <= front[-1]:
            del front[bisect_left(front, entry)]
            if len(front) < _FEW and self._heap:
                self._refill()
        else:
            self._dead += 1
            if self._dead > FRONT and 2 * self._dead > len(self._heap):
                self._heap = [e for e in self._heap if e[2].entry is e]
                heapify(self._heap)
                self._dead = 0

    def _refill(self) -> None:
        front, heap = self._front, self._heap
        while heap and len(front) < FRONT:
            entry = heappop(heap)
            if entry[2].entry is entry:
                front.append(entry)
            else:
                self._dead -= 1

    def first(self) -> Any:
        """The item with the lowest key; None of nothing."""
        return self._front[0][2] if self._front else None

    def first_key(self) -> float:
        """The lowest key. There has to be one."""
        key: float = self._front[0][0]
        return key

    def first_order(self) -> int:
        """The order of the first item. There has to be one."""
        order: int = self._front[0][1]
        return order

    def leading(self, most: int, key: float) -> list[Any]:
        """Items from the first on whose key is at most `key`; at most `most`, or `FRONT`."""
        found: list[Any] = []
        if len(self._front) < most and self._heap:
            self._refill()
        for entry in self._front:
            if entry[0] > key or len(found) >= most:
                break
            found.append(entry[2])
        return found

    def held(self) -> int:
        """Entries in memory, dead ones included: for tests of what it must never do."""
        return len(self._front) + len(self._heap)
