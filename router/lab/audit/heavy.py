"""Finds the heaviest keys of a stream in bounded memory: the Space-Saving summary.

Each key in the summary has a weight and a record of the caller's type. When the summary is full, a
new key replaces the lightest key and inherits its weight; the record of the lightest key is
dropped. So a weight is never too low, and too high by at most `error`. Every key that is heavier
than total/capacity is in the summary. Source: Metwally, Agrawal and El Abbadi, "Efficient
computation of frequent and top-k elements in data streams", ICDT 2005.

Must never hold more than `capacity` keys.
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
        self.error = weight  # the part of the weight inherited from the replaced key


class Heavy(Generic[K, V]):
    """The heaviest keys of a stream. `make` creates the record of a new key.

    Raises ValueError if the capacity is below 1.
    """

    def __init__(self, capacity: int, make: Callable[[], V]) -> None:
        if capacity < 1:
            raise ValueError("the capacity must be at least 1")
        self.displaced = 0  # number of keys that were replaced
        self._capacity = capacity
        self._make = make
        self._entries: dict[K, Entry[V]] = {}
        # (weight, order, key). Weights in this heap may be old and too low; `_lightest` corrects
        # them.
        self._heap: list[tuple[float, int, K]] = []
        self._order = 0

    def touch(self, key: K, weight: float) -> V:
        """Add `weight` to the weight of a key, and return the record of the key."""
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
        """Return all keys, the heaviest first; keys of equal weight are in the order of their
        arrival.
        """
        return sorted(self._entries.items(), key=lambda item: -item[1].weight)

    def __len__(self) -> int:
        return len(self._entries)

    def _lightest(self) -> K:
        """Remove the lightest key from the heap and return it.

        It is the first key whose weight in the heap is up to date.
        """
        heap, entries = self._heap, self._entries
        while True:
            weight, order, key = heap[0]
            entry = entries[key]
            if entry.weight == weight:
                heappop(heap)
                return key
            heapreplace(heap, (entry.weight, order, key))
