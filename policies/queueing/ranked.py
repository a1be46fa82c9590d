"""A priority queue whose first few dozen items can be read without removing them.

The queue has a sorted front of up to 128 items. Behind the front are a tail for items that are
added in order (most items), and a heap for the others. Adding and removing cost O(log n), and an
item can be removed at any position. An item behind the front is not removed at once; only its entry
is marked. Marked entries are deleted when they are more than half of the entries behind the front.

Must never: keep more than twice as many entries as items.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Any, Final

from policies.queueing.ticket import Entry, Item

# The number of leading items that can always be read, if the queue has that many items.
FRONT: Final = 64
_FEW: Final = 32  # the front is refilled below this number of items
_MANY: Final = 128  # maximum number of items in the front


class Ranked:
    """Items in the order of (key, order), the lowest first. An item is in one `Ranked` at a
    time."""

    __slots__ = ("_dead", "_front", "_heap", "_tail", "count")

    def __init__(self) -> None:
        self.count = 0
        # Sorted entries. No entry is marked, and no entry is greater than an entry behind the
        # front.
        self._front: list[Entry] = []
        # Sorted entries behind the front.
        self._tail: deque[Entry] = deque()
        self._heap: list[Entry] = []
        self._dead = 0  # marked entries in the tail and the heap

    def add(self, item: Item, key: float, order: int) -> None:
        """Add an item that is in no `Ranked`. Among items with equal keys, the lower `order` is
        first."""
        entry = Entry(key, order, item)
        item.entry = entry
        self.count += 1
        front, tail = self._front, self._tail
        if front and not entry.is_before(front[-1]):
            if tail:
                last: Entry = tail[-1]
                if entry.is_before(last):
                    heappush(self._heap, entry)
                else:
                    tail.append(entry)
                return
            if self._heap:
                tail.append(entry)
                return
            front.append(entry)
        else:
            front.insert(place_in(front, entry), entry)
        if len(front) > _MANY:
            tail.extendleft(reversed(front[FRONT:]))
            del front[FRONT:]

    def move(self, item: Item, key: float, order: int) -> None:
        """Change the key of an item; add the item if this `Ranked` does not have it."""
        entry = item.entry
        if entry is not None:
            if entry.key == key:
                return
            if self.count == 1:
                entry.key = key
                return
            self.remove(item)
        self.add(item, key, order)

    def remove(self, item: Item) -> None:
        """Remove an item. The item must be in this `Ranked`."""
        entry = item.entry
        assert entry is not None
        item.entry = None
        self.count -= 1
        front = self._front
        if front and not front[-1].is_before(entry):
            front.pop(0 if front[0] is entry else place_in(front, entry))
            if len(front) < _FEW and (self._tail or self._heap):
                self._refill()
            return
        entry.item = None
        self._dead += 1
        if self._dead > FRONT and 2 * self._dead > len(self._tail) + len(self._heap):
            self._tail = deque([e for e in self._tail if e.item is not None])
            self._heap = [e for e in self._heap if e.item is not None]
            heapify(self._heap)
            self._dead = 0

    def _refill(self) -> None:
        front, tail, heap = self._front, self._tail, self._heap
        while len(front) < FRONT and (tail or heap):
            entry = tail.popleft() if tail and (not heap or tail[0] < heap[0]) else heappop(heap)
            if entry.item is None:
                self._dead -= 1
            else:
                front.append(entry)

    def first(self) -> Any:
        """Return the item with the lowest key; `None` if there is no item."""
        return self._front[0].item if self._front else None

    def first_key(self) -> float:
        """Return the lowest key. The `Ranked` must not be empty."""
        return self._front[0].key

    def first_order(self) -> int:
        """Return the order of the first item. The `Ranked` must not be empty."""
        return self._front[0].order

    def leading(self, most: int, key: float) -> list[Any]:
        """Return the leading items whose key is at most `key`. At most `most` items are returned,
        all of them from the front.
        """
        found: list[Any] = []
        if len(self._front) < most and (self._tail or self._heap):
            self._refill()
        for entry in self._front:
            if entry.key > key or len(found) >= most:
                break
            found.append(entry.item)
        return found

    def held(self) -> int:
        """The number of entries in memory, marked ones included. Tests check that it is bounded."""
        return len(self._front) + len(self._tail) + len(self._heap)


def place_in(entries: list[Entry], entry: Entry) -> int:
    """Return the index at which an entry belongs in a sorted list. (`bisect` would be slower,
    because it boxes numbers.)"""
    low, high = 0, len(entries)
    while low < high:
        middle = (low + high) // 2
        if entries[middle].is_before(entry):
            low = middle + 1
        else:
            high = middle
    return low
