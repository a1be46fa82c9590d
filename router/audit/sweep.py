"""Everything that happens at all replicas, in the order of time.

Of each stay: it starts (sent to the replica), its prefill begins, its first token comes, it ends.
What happens at the same moment happens in the order in which it began, and an end before a start:
who left at the moment another came did not delay it.

Must never: hold more than what is under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Final

from router.audit.residency import Stay

START: Final = 0
PREFILL: Final = 1
FIRST: Final = 2
END: Final = 3


def sweep(stays: Iterable[Stay]) -> Iterator[tuple[float, int, Stay]]:
    """(time, what, stay), never going back, of stays in the order of their starts.

    A stay's `prefill` and `first` are read after its START has been handed out: whoever knows them
    better sets them then. A late stay happens at the moment it is met.
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
