"""One request of an engine core. This class only stores values; the core reads and changes them.

`Queue`: the waiting requests of an engine, ordered by (rank, arrival).

The rank is the priority number, or 0 without priority scheduling. Must never let a request overtake
the head of the queue. An aborted request stays in the heap until it reaches the top or the heap is
compacted, so that an abort costs O(1) on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

from mypy_extensions import mypyc_attr

from router.lab.emulator.core.kv import Block

# States of a request.
NEW: Final = 0
WAITING: Final = 1
PREFILLING: Final = 2
DECODING: Final = 3
ENDED: Final = 4


@mypyc_attr(allow_interpreted_subclasses=True)
class Request:
    """One request. The caller fills the first group of fields; the second group belongs to the
    core.

    `output_tokens` is the number of tokens to generate (0: none, as for an embedding).
    `block_hashes` are the chained hashes of the full blocks of the prompt and, if known, of the
    output. `token_ids` are the same tokens as numbers; only KV events need them.
    """

    __slots__ = (
        "_blocks",
        "_chunk",
        "_computed",
        "_finish_step",
        "_first_step",
        "_grow_step",
        "_order",
        "_place",
        "_promised",
        "_state",
        "_target",
        "arrival",
        "block_hashes",
        "cache_salt",
        "cached_tokens",
        "generated",
        "id",
        "output_tokens",
        "preemptions",
        "priority",
        "prompt_tokens",
        "started_at",
        "token_ids",
    )

    def __init__(
        self,
        id: str,
        prompt_tokens: int,
        output_tokens: int,
        block_hashes: Sequence[int] = (),
        priority: int = 0,
        token_ids: Sequence[int] = (),
        cache_salt: str | None = None,
    ) -> None:
        self.id = id
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.block_hashes = block_hashes
        self.priority = priority  # a lower number is scheduled earlier
        self.token_ids = token_ids
        self.cache_salt = cache_salt

        self.arrival = 0.0
        self.cached_tokens = 0  # prompt tokens taken from the prefix cache at the first admission
        # Number of output tokens, set at the end. Before the end, call `EngineCore.generated`.
        self.generated = 0
        self.preemptions = 0
        self.started_at = 0.0  # time of the first admission, in seconds
        self._state = NEW
        # Order in the queue: (rank, arrival time, number of the arrival). The lowest is first.
        self._place = (0, 0.0, 0)
        self._target = 0  # tokens to prefill: the prompt, plus its output when it was preempted
        self._computed = 0  # tokens of `_target` whose KV exists or is computed in this step
        self._chunk = 0  # tokens of `_computed` that are computed in this step
        self._blocks: list[Block] = []
        self._promised = 0  # blocks reserved for the request; 0 without `reserve_output`
        # The step that would have generated the first token if the request had run without
        # preemption since then.
        self._first_step = 0
        self._grow_step = 0  # the next step in which the request needs another block; 0: none
        self._finish_step = 0
        self._order = 0  # a later beginning of decoding has a higher number

    @property
    def computed(self) -> int:
        """Uncached prompt tokens computed so far, including tokens of the current step."""
        return max(0, min(self._computed, self.prompt_tokens) - self.cached_tokens)

    @property
    def first_step(self) -> int:
        """The step that generated the request's first token; 0: no token so far."""
        return self._first_step


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
