"""The engine core: continuous batching over a paged KV pool, as a pure state machine.

It knows no socket, no task and no clock: time comes in as `now` (seconds, any epoch, never going
back) and goes out through `next_event`. The server calls it from a timer; a simulator jumps a
virtual clock from event to event. Same input, same output, always.

One *step* is what the accelerator does at a time. It decodes one token for every decoding request
and spends the rest of `max_num_batched_tokens` on prefill, in chunks, requests already begun first,
then new ones from the waiting queue while there is a slot and room for all the KV they will ever
need (so nothing has to be preempted). The queue is ordered by arrival, or by (priority, arrival)
with the lower number first, and its head blocks: nobody overtakes because it is smaller.

A decode step costs the core O(what changes), not O(batch): who finishes and who needs another
block is filed under the step's number beforehand. Only with `token_events` is there one event per
token.

Invariants: a request ends exactly once, by a FINISHED event or by `abort`; blocks held plus blocks
promised never exceed the pool; when nothing runs, nothing is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from router.emulator.kv import KvPool
from router.emulator.timing import Timing

FIRST_TOKEN, TOKEN, FINISHED = 0, 1, 2  # kinds of event

_NEW, _WAITING, _PREFILLING, _DECODING, _ENDED = range(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreConfig:
    """Sizes of one engine, under vLLM's names."""

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    num_blocks: int = 8192
    block_size: int = 16
    priority_scheduling: bool = False
    prefix_caching: bool = True
    token_events: bool = True  # False: only first tokens and ends are reported

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1:
            raise ValueError("max_num_seqs must be at least 1")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError("max_num_batched_tokens must be at least max_num_seqs")
        if self.num_blocks < 1 or self.block_size < 1:
            raise ValueError("num_blocks and block_size must be at least 1")


class Request:
    """One request. The caller fills the first group; the second belongs to the core.

    `output_tokens` is how many it will generate (0: none, as for an embedding) and `block_hashes`
    the chained hashes of its full blocks, of the prompt and, if known, of what it will generate.
    """

    __slots__ = (
        "_blocks",
        "_computed",
        "_finish_step",
        "_first_step",
        "_grow_step",
        "_promised",
        "_state",
        "arrival",
        "block_hashes",
        "cached_tokens",
        "generated",
        "id",
        "output_tokens",
        "priority",
        "prompt_tokens",
    )

    def __init__(
        self,
        id: str,
        prompt_tokens: int,
        output_tokens: int,
        block_hashes: Sequence[int] = (),
        priority: int = 0,
    ) -> None:
        self.id = id
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.block_hashes = block_hashes
        self.priority = priority  # lower is sooner

        self.arrival = 0.0
        self.cached_tokens = 0  # of the prompt, taken from the prefix cache; known once it runs
        self.generated = 0  # final once it ended; while it runs ask `EngineCore.generated`
        self._state = _NEW
        self._computed = 0  # prompt tokens whose KV exists or is being made in this step
        self._blocks: list[int] = []
        self._promised = 0  # blocks it will still need
        self._first_step = 0  # the step that made its first token
        self._grow_step = 0  # the next step that needs another block; 0: none
        self._finish_step = 0


R = TypeVar("R", bound=Request)


class EngineCore(Generic[R]):
    """One engine. All counters only grow; gauges are properties."""

    def __init__(self, config: CoreConfig, timing: Timing) -> None:
        self.config = config
        self.timing = timing
        self.kv = KvPool(config.num_blocks, config.block_size)
        self.slowdown = 1.0  # every step started from now on takes this many times as long
        self.clock = 0.0  # when the last events happened: exact, however late `advance` came

        self.waiting = 0
        self.prefix_queries = 0  # prompt tokens looked up, at admission
        self.prefix_hits = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.steps = 0  # steps begun
        self.aborted = 0
        self.finished = 0

        self._requests: dict[str, R] = {}
        self._heap: list[tuple[int, float, int, R]] = []  # may hold the ended: see _head
        self._order = 0
        self._prefilling: dict[str, R] = {}  # in order of admission
        self._decoding: dict[str, R] = {}
        self._chunks: list[R] = []  # whose prefill this step goes on with
        self._context = 0  # tokens of all decoding requests together
        self._promised = 0
        self._finishing: dict[int, list[R]] = {}  # by step
        self._growing: dict[int, list[R]] = {}
        self._step_end: float | None = None  # None: no step under way
        self._last_submit = 0.0
        self._stalled_at: float | None = None

    # What can be asked.

    @property
    def running(self) -> int:
        return len(self._prefilling) + len(self._decoding)

    @property
    def kv_usage(self) -> float:
        """Share of the blocks that are held, 0..1. What is merely cached is free."""
        return self.kv.used / self.kv.num_blocks

    @property
    def is_stalled(self) -> bool:
        return self._stalled_at is not None

    def generated(self, request: R) -> int:
        """Tokens made so far."""
        if request._state != _DECODING:
            return request.generated
        done = self.steps - (self._step_end is not None)
        return done - request._first_step + 1

    def next_event(self, now: float) -> float | None:
        """When `advance` will next have something to do; at or before `now` if it has already.

        None: not before something is submitted (or a stalled engine resumes).
        """
        if self._stalled_at is not None:
            return None
        if self._step_end is not None:
            return self._step_end
        return self._last_submit if self.waiting else None

    # What can be done.

    def submit(self, request: R, now: float) -> None:
        """Queue a request. It joins the first step that begins at or after `now`.

        Raises ValueError for a request that could never run, or an id that is in use.
        """
        if request._state != _NEW or request.id in self._requests:
            raise ValueError(f"request {request.id!r} was submitted before")
        if request.prompt_tokens < 1 or request.output_tokens < 0:
            raise ValueError("a request needs a prompt of at least one token")
        if self._footprint(request) > self.kv.num_blocks:
            raise ValueError("the request needs more KV blocks than the engine has")
        request._state = _WAITING
        request.arrival = now
        self._requests[request.id] = request
        self._order += 1
        rank = request.priority if self.config.priority_scheduling else 0
        heappush(self._heap, (rank, now, self._order, request))
        self.waiting += 1
        self._last_submit = now

    def abort(self, id: str, now: float) -> bool:
        """Drop a request and free what it holds at once. False: unknown, or ended before.

        The step under way still takes its time, as an accelerator's would.
        """
        request = self._requests.get(id)
        if request is None:
            return False
        if request._state == _WAITING:
            self.waiting -= 1
            del self._requests[id]
            request._state = _ENDED
            if len(self._heap) > 64 and len(self._heap) > 2 * self.waiting:
                self._heap = [entry for entry in self._heap if entry[3]._state == _WAITING]
                heapify(self._heap)
        elif request._state == _PREFILLING:
            del self._prefilling[id]
            self._leave(request)
        else:
            request.generated = self.generated(request)
            del self._decoding[id]
            self._context -= request.prompt_tokens + request.generated
            _unfile(self._finishing, request._finish_step, request)
            _unfile(self._growing, request._grow_step, request)
            self._leave(request)
        self.aborted += 1
        return True

    def advance(self, now: float) -> list[tuple[int, R]]:
        """Let the earliest step boundary due by `now` happen; its events as (kind, request).

        At most one boundary a call: while `next_event(now) <= now`, call again. The last token of
        a request is reported as a token and then as FINISHED. `clock` tells when it all happened.
        """
        due = self.next_event(now)
        if due is None or due > now:
            return []
        self.clock = due
        events = self._end_step() if self._step_end is not None else []
        self._begin_step()
        return events

    def stall(self, now: float) -> None:
        """Stop making progress, as an accelerator does that hangs. Requests still queue."""
        if self._stalled_at is None:
            self._stalled_at = now

    def resume(self, now: float) -> None:
        """Go on where `stall` stopped; the step under way still needs what was left of it."""
        if self._stalled_at is not None:
            if self._step_end is not None:
                self._step_end += now - self._stalled_at
            self._last_submit = max(self._last_submit, now)
            self._stalled_at = None

    # A step.

    def _begin_step(self) -> None:
        step = self.steps + 1
        for request in self._growing.pop(step, ()):
            self._grow(request, step)
        decoding = len(self._decoding)
        budget = self.config.max_num_batched_tokens - decoding
        tokens = squares = 0
        chunks = self._chunks
        chunks.clear()
        for request in self._prefilling.values():
            if not budget:
                break
            start = request._computed
            end = self._prefill(request, budget)
            budget -= end - start
            tokens += end - start
            squares += end * end - start * start
            chunks.append(request)
        while budget and self.waiting and self.running < self.config.max_num_seqs:
            request = self._head()
            if not self._admit(request):
                break
            start = request._computed
            end = self._prefill(request, budget)
            budget -= end - start
            tokens += end - start
            squares += end * end - start * start
            chunks.append(request)
        if not decoding and not chunks:
            self._step_end = None
            return
        self.steps = step
        seconds = self.slowdown * self.timing.step_s(tokens, squares, decoding, self._context)
        # A caller that came late may have let newer requests in: the step cannot precede them.
        self._step_end = max(self.clock, self._last_submit) + seconds

    def _end_step(self) -> list[tuple[int, R]]:
        self._step_end = None
        step = self.steps
        decoding = self._decoding
        events: list[tuple[int, R]] = []
        if decoding:
            self._context += len(decoding)
            self.generation_tokens += len(decoding)
            if self.config.token_events:
                events = [(TOKEN, request) for request in decoding.values()]
            for request in self._finishing.pop(step, ()):
                del decoding[request.id]
                self._context -= request.prompt_tokens + request.output_tokens
                self._finish(request, events)
        for request in self._chunks:
            if request._state == _PREFILLING and request._computed == request.prompt_tokens:
                del self._prefilling[request.id]
                self._first(request, step, events)
        return events

    def _head(self) -> R:
        heap = self._heap
        while heap[0][3]._state != _WAITING:
            heappop(heap)
        return heap[0][3]

    def _admit(self, request: R) -> bool:
        """Move the queue's head into the batch if its whole KV need can be promised."""
        kv = self.kv
        need = self._footprint(request)
        hits: list[int] = []
        if self.config.prefix_caching:
            # The last prompt token is always computed: its output is the first new token.
            hits = kv.match(request.block_hashes, (request.prompt_tokens - 1) // kv.block_size)
        if need - len(hits) + kv.idle(hits) > kv.free - self._promised:
            return False
        heappop(self._heap)
        self.waiting -= 1
        request._state = _PREFILLING
        self._prefilling[request.id] = request
        kv.share(hits)
        cached = kv.block_size * len(hits)
        blocks = hits
        for _ in range(-(-request.prompt_tokens // kv.block_size) - len(hits)):
            blocks.append(kv.take())
        request._blocks = blocks
        request._promised = need - len(blocks)
        self._promised += request._promised
        request.cached_tokens = request._computed = cached
        self.prompt_tokens += request.prompt_tokens
        if self.config.prefix_caching:
            self.prefix_queries += request.prompt_tokens
            self.prefix_hits += cached
        return True

    def _prefill(self, request: R, budget: int) -> int:
        """Compute the next chunk in this step; how far the prompt is computed then."""
        start = request._computed
        request._computed = end = min(request.prompt_tokens, start + budget)
        # Named as it is scheduled, as vLLM does: an equal prompt in the same step may share it.
        self._commit(request, start // self.kv.block_size, end // self.kv.block_size)
        return end

    def _commit(self, request: R, start: int, stop: int) -> None:
        if self.config.prefix_caching:
            hashes = request.block_hashes
            for index in range(start, min(stop, len(hashes))):
                self.kv.commit(request._blocks[index], hashes[index])

    def _first(self, request: R, step: int, events: list[tuple[int, R]]) -> None:
        """The prompt is computed: the first token is there."""
        if request.output_tokens:
            self.generation_tokens += 1
            events.append((FIRST_TOKEN, request))
        if request.output_tokens < 2:
            self._finish(request, events)
            return
        request._state = _DECODING
        request._first_step = step
        self._decoding[request.id] = request
        self._context += request.prompt_tokens + 1
        request._finish_step = step + request.output_tokens - 1
        self._finishing.setdefault(request._finish_step, []).append(request)
        self._file_growth(request, step + 1 + -request.prompt_tokens % self.kv.block_size)

    def _grow(self, request: R, step: int) -> None:
        """The token this step computes begins a new block; the one before is full."""
        blocks = request._blocks
        self._commit(request, len(blocks) - 1, len(blocks))
        blocks.append(self.kv.take())
        request._promised -= 1
        self._promised -= 1
        self._file_growth(request, step + self.kv.block_size)

    def _file_growth(self, request: R, step: int) -> None:
        if step <= request._finish_step:
            request._grow_step = step
            self._growing.setdefault(step, []).append(request)
        else:
            request._grow_step = 0

    def _finish(self, request: R, events: list[tuple[int, R]]) -> None:
        request.generated = request.output_tokens
        computed = request.prompt_tokens + max(request.output_tokens, 1) - 1
        if computed % self.kv.block_size == 0:  # else the last block is not full, or was committed
            self._commit(request, len(request._blocks) - 1, len(request._blocks))
        self._leave(request)
        self.finished += 1
        events.append((FINISHED, request))

    def _leave(self, request: R) -> None:
        del self._requests[request.id]
        request._state = _ENDED
        self.kv.release(request._blocks)
        request._blocks = []
        self._promised -= request._promised
        request._promised = 0

    def _footprint(self, request: R) -> int:
        """Blocks it holds at its end. The last token's KV is never computed."""
        tokens = request.prompt_tokens + max(request.output_tokens, 1) - 1
        return -(-tokens // self.kv.block_size)


def _unfile(files: dict[int, list[R]], step: int, request: R) -> None:
    entries = files.get(step)
    if entries is not None and request in entries:
        entries.remove(request)
        if not entries:
            del files[step]
