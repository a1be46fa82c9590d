"""The heaviest keys of a stream in bounded memory: the Space-Saving summary.

Whoever is in it keeps a record of what the caller likes. When it is full, a newcomer takes the
place and the weight of the lightest, whose record is dropped; so a weight is never told too low,
and is told too high by at most `error`. Every key that is heavier than total/capacity is in it.
Source: Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in
data streams", ICDT 2005.

Must never: hold more than `capacity` keys.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heappop, heappush, heapreplace
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Entry(Generic[V]):
    __slots__ = ("error", "value", "weight")

    def __init__(self, value: V, weight: float) -> None:
        self.value = value
        self.weight = weight
        self.error = weight  # of its weight, inherited from whom it displaced


class Heavy(Generic[K, V]):
    """`make` makes the record of a key that comes in. Raises ValueError without any room."""

    def __init__(self, capacity: int, make: Callable[[], V]) -> None:
        if capacity < 1:
            raise ValueError("the capacity must be at least 1")
        self.displaced = 0  # keys that had to leave
        self._capacity = capacity
        self._make = make
        self._entries: dict[K, Entry[V]] = {}
        # (weight, order, key); weights in it may be old and too low: see _lightest.
        self._heap: list[tuple[float, int, K]] = []
        self._order = 0

    def touch(self, key: K, weight: float) -> V:
        """Add to a key's weight; its record."""
        entry = self._entries.get(key)
        if entry is None:
            least = 0.0
            if len(self._entries) >= self._capacity:
                lightest = self._lightest()
                least = self._entries.pop(lightest).weight
                self.displaced += 1
            entry = self._entries[key] = Entry(self._make(), least)
            self._order += 1
            heappush(self._heap, (least, self._order, key))
        entry.weight += weight
        return entry.value

    def heaviest(self) -> list[tuple[K, Entry[V]]]:
        """All that are in it, the heaviest first; among equals, who came first."""
        return sorted(self._entries.items(), key=lambda item: -item[1].weight)

    def __len__(self) -> int:
        return len(self._entries)

    def _lightest(self) -> K:
        """Take the lightest key off the heap: the first whose weight there is not out of date."""
        heap, entries = self._heap, self._entries
        while True:
            weight, order, key = heap[0]
            entry = entries[key]
            if entry.weight == weight:
                heappop(heap)
                return key
            heapreplace(heap, (entry.weight, order, key))
