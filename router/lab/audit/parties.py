"""Finds the parties of a log, the heaviest of them, and how many requests of each run at once.

`Party`: finds the party that sent a request, from the request's line in the log, and makes its
label.

A party is a tenant in a class. A tenant's batch and chat requests are separate parties, because
only batch requests can be moved to another time. If no line of the log names a tenant, the client's
address distinguishes parties; if there is only one address, the model does. The report states which
attribute was used.

`Entry`, `Heavy`: finds the heaviest keys of a stream in bounded memory: the Space-Saving summary.

Each key in the summary has a weight and a record of the caller's type. When the summary is full, a
new key replaces the lightest key and inherits its weight; the record of the lightest key is
dropped. So a weight is never too low, and too high by at most `error`. Every key that is heavier
than total/capacity is in the summary. Source: Metwally, Agrawal and El Abbadi, "Efficient
computation of frequent and top-k elements in data streams", ICDT 2005.

Must never hold more than `capacity` keys.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from heapq import heappop, heappush, heapreplace
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from router.lab.audit.residency import Row

By = Literal["tenant", "class", "model"]
# The attribute that actually distinguishes parties. It may differ from the requested attribute.
Grouping = Literal["tenant", "class", "model", "client"]

OTHERS: Final = "all others"
HEAD_ROWS: Final = 10_000  # number of rows that are examined to find the available attributes


class Party(NamedTuple):
    name: str  # tenant, address or model; "": the line has none
    priority: str  # class of the request; "" if there is none or it is not used


def told_by(by: By, head: Iterable[Row]) -> Grouping:
    """Return the attribute that distinguishes parties.

    `by`: the requested attribute; `head`: the first rows.
    """
    if by != "tenant":
        return by
    clients: set[str] = set()
    for row in head:
        if row.tenant:
            return "tenant"
        if row.replica:
            clients.add(row.client)
    return "client" if len(clients) > 1 else "model"


def namer(told: Grouping) -> Callable[[Row], Party]:
    """Return a function that gives the party of a row."""
    if told == "tenant":
        return lambda row: Party(row.tenant, row.priority)
    if told == "client":
        return lambda row: Party(row.client, row.priority)
    if told == "class":
        return lambda row: Party(row.priority, "")
    return lambda row: Party(row.model or "", "")


def label(party: Party, told: Grouping) -> str:
    """Return a label such as `tenant 3f9a0c61d2b4 (batch)`.

    If the line has no tenant, address or model, the label says so.
    """
    if party.name == OTHERS:
        name = OTHERS
    elif party.name:
        name = f"{told} {party.name}"
    else:
        name = {"class": "no class", "model": "no model"}.get(told, f"no {told}")
    return f"{name} ({party.priority})" if party.priority else name


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


class Crowd:
    """The running requests of one party."""

    __slots__ = ("now", "peak", "peak_at", "seconds")

    def __init__(self) -> None:
        self.now = 0
        self.peak = 0
        self.peak_at = 0.0
        self.seconds = 0.0  # sum of the running times of all requests of the party

    def comes(self, now: float) -> None:
        self.now += 1
        if self.now > self.peak:
            self.peak, self.peak_at = self.now, now

    def goes(self, stayed_s: float) -> None:
        self.now -= 1
        self.seconds += stayed_s
