"""Yields all events at all replicas, in order of time.

The events of a stay are: start (the request is sent to the replica), begin of the prefill, first
token, end. Simultaneous events are in the order of the stays' starts. But an end is before a start,
because a request that ends when another arrives does not delay it.

Must never hold more than the running stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Final

from router.lab.audit.residency import Stay

START: Final = 0
PREFILL: Final = 1
FIRST: Final = 2
END: Final = 3


def sweep(stays: Iterable[Stay]) -> Iterator[tuple[float, int, Stay]]:
    """Yield (time, event, stay) in order of time, from stays in the order of their starts.

    A stay's `prefill` and `first` are read after its START was yielded, so the caller may change
    them when it gets START. If a stay comes too late, its START has the time of the latest event.
    """
    heap: list[tuple[float, int, int, Stay]] = []
    order = 0
    clock = -1.0
    for stay in stays:
        while heap and heap[0][0] <= stay.start:
            clock, _, what, one = heappop(heap)
            yield clock, what, one
        clock = max(clock, stay.start)
        yield clock, START, stay
        for what, at in ((PREFILL, stay.prefill), (FIRST, stay.first), (END, stay.end)):
            heappush(heap, (max(at, clock), order, what, stay))
            order += 1
    while heap:
        clock, _, what, stay = heappop(heap)
        yield clock, what, stay
