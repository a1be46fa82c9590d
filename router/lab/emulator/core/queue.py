"""The waiting requests of an engine, ordered by (rank, arrival).

The rank is the priority number, or 0 without priority scheduling. Must never let a request overtake
the head of the queue. An aborted request stays in the heap until it reaches the top or the heap is
compacted, so that an abort costs O(1) on average.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from router.lab.emulator.core.request import ENDED, WAITING, Request

R = TypeVar("R", bound=Request)


class Queue(Generic[R]):
    """The waiting requests in the order of their `_place`; the lowest is first."""

    __slots__ = ("_heap", "peak", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        self.peak = 0  # maximum number of waiting requests so far
        self._heap: list[tuple[tuple[int, float, int], R]] = []

    def push(self, request: R) -> None:
        request._state = WAITING
        heappush(self._heap, (request._place, request))
        self.waiting += 1
        if self.waiting > self.peak:
            self.peak = self.waiting

    def head(self) -> R:
        """The head: the request that is admitted next. The queue must not be empty."""
        heap = self._heap
        while heap[0][1]._state != WAITING:
            heappop(heap)
        return heap[0][1]

    def pop(self) -> None:
        """Remove the head of the queue, because it now runs. `head` must be called first."""
        heappop(self._heap)
        self.waiting -= 1

    def drop(self, request: R) -> None:
        """Remove an aborted request from any position of the queue."""
        request._state = ENDED
        self.waiting -= 1
        if len(self._heap) > 64 and len(self._heap) > 2 * self.waiting:
            self._heap = [entry for entry in self._heap if entry[1]._state == WAITING]
            heapify(self._heap)

    def requests(self) -> list[R]:
        """All waiting requests, in no order."""
        return [request for _, request in self._heap if request._state == WAITING]

    def ordered(self) -> list[R]:
        """All waiting requests, the next one first. O(n log n)."""
        return sorted(self.requests(), key=_place)


def _place(request: Request) -> tuple[int, float, int]:
    return request._place
