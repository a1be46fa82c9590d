"""The engine core: continuous batching over a paged KV pool, as a pure state machine.

It knows no socket, no task and no clock: time comes in as `now` (seconds, any epoch, never going
back) and goes out through `next_event`. The server calls it from a timer; a simulator jumps a
virtual clock from event to event. Same input, same output, always.

One *step* is what the accelerator does at a time. It decodes one token for every decoding request
and spends the rest of `max_num_batched_tokens` on prefill, in chunks, requests already begun first,
then new ones from the waiting queue while there is a slot and room for their whole prompt. The
queue is ordered by arrival, or by (priority, arrival) with the lower number first, and its head
blocks: nobody overtakes because it is smaller.

Nothing is promised to what has been let in, as in vLLM V1: when a running request needs a block and
none is free, the worst running request by (priority, arrival) is *preempted*. It loses its KV, goes
back to its place in the queue and is later computed again, what it had generated included; nobody
is let in during that step. With `reserve_output` a request is let in only when all the KV it will
ever need can be promised, and there is no preemption (TensorRT-LLM, TGI, llama.cpp). With
`preempt_advantage` an urgent newcomer displaces running requests that are worse by more than that
(SGLang).

A decode step costs the core O(what changes), not O(batch): who finishes and who needs another
block is filed under the step's number beforehand. Only with `token_events` is there one event per
token.

Invariants: a request ends exactly once, by a FINISHED event or by `abort`; a preempted one reports
each of its tokens once; blocks held plus blocks promised never exceed the pool; when nothing runs,
nothing is held. The best running request is never preempted, so that something always finishes.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from router.emulator.kv import KvPool
from router.emulator.kv_events import Cleared, KvEvent, Stored
from router.emulator.request import (
    DECODING,
    ENDED,
    NEW,
    PREFILLING,
    WAITING,
    CoreConfig,
    Request,
)
from router.emulator.timing import Timing

__all__ = ["FINISHED", "FIRST_TOKEN", "TOKEN", "CoreConfig", "EngineCore", "Request"]

FIRST_TOKEN, TOKEN, FINISHED = 0, 1, 2  # kinds of event

R = TypeVar("R", bound=Request)


class EngineCore(Generic[R]):
    """One engine. All counters only grow; gauges are properties."""

    def __init__(self, config: CoreConfig, timing: Timing) -> None:
        self.config = config
        self.timing = timing
        # What changed in the prefix cache, in order. The caller reads and clears it.
        self.kv_log: list[KvEvent] | None = [] if config.kv_events else None
        self.kv = KvPool(config.num_blocks, config.block_size, self.kv_log)
        self.slowdown = 1.0  # every step started from now on takes this many times as long
        self.clock = 0.0  # when the last events happened: exact, however late `advance` came

        self.waiting = 0
        self.peak_waiting = 0
        self.submitted = 0
        self.prefix_queries = 0  # prompt tokens looked up, at the first admission
        self.prefix_hits = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.preemptions = 0
        self.steps = 0  # steps begun
        self.aborted = 0
        self.finished = 0

        self._requests: dict[str, R] = {}
        self._heap: list[tuple[tuple[int, float, int], R]] = []  # may hold the ended: see _head
        self._order = 0
        self._prefilling: dict[str, R] = {}  # in order of admission
        self._decoding: dict[str, R] = {}
        self._chunks: list[R] = []  # whose prefill this step goes on with
        self._budget = 0  # tokens this step may still take
        self._crowded = False  # somebody had to leave in this step for want of blocks
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
    def steps_ended(self) -> int:
        return self.steps - (self._step_end is not None)

    @property
    def prefilling(self) -> int:
        """Of those that run, the ones without a token of this life."""
        return len(self._prefilling)

    @property
    def step_tokens(self) -> int:
        """Prompt tokens that the newest step computed, or computes."""
        return sum(request._chunk for request in self._chunks)

    @property
    def kv_usage(self) -> float:
        """Share of the blocks that are held, 0..1. What is merely cached is free."""
        return self.kv.used / self.kv.num_blocks

    @property
    def kv_reserved(self) -> int:
        """Blocks held or promised."""
        return self.kv.used + self._promised

    def generated(self, request: R) -> int:
        """Tokens made so far."""
        if request._state != DECODING:
            return request.generated
        return self.steps_ended - request._first_step + 1

    def holds(self, id: str) -> bool:
        """It waits or runs."""
        return id in self._requests

    def uncached_waiting(self) -> int:
        """Tokens of those who wait that are not in the cache at this moment. O(queue)."""
        size = self.kv.block_size
        total = 0
        for _, request in self._heap:
            if request._state == WAITING:
                tokens = request.prompt_tokens + request.generated
                hits = self.kv.match(request.block_hashes, (tokens - 1) // size)
                total += tokens - size * len(hits)
        return total

    def rows(self) -> list[R]:
        """What runs, in order of admission of its kind: prefilling, then decoding."""
        return [*self._prefilling.values(), *self._decoding.values()]

    def queued(self) -> list[R]:
        """What waits, the next one first. O(n log n)."""
        ordered = sorted(self._heap, key=_entry_place)
        return [request for _, request in ordered if request._state == WAITING]

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
        if request._state != NEW or request.id in self._requests:
            raise ValueError(f"request {request.id!r} was submitted before")
        if request.prompt_tokens < 1 or request.output_tokens < 0:
            raise ValueError("a request needs a prompt of at least one token")
        if self._footprint(request) > self.kv.num_blocks:
            raise ValueError("the request needs more KV blocks than the engine has")
        request.arrival = now
        self._requests[request.id] = request
        self.submitted += 1
        self._order += 1
        rank = request.priority if self.config.priority_scheduling else 0
        request._place = (rank, now, self._order)
        self._queue(request)
        self._last_submit = now

    def abort(self, id: str, now: float) -> bool:
        """Drop a request and free what it holds at once. False: unknown, or ended before.

        The step under way still takes its time, as an accelerator's would.
        """
        request = self._requests.get(id)
        if request is None:
            return False
        if request._state == WAITING:
            self.waiting -= 1
            del self._requests[id]
            request._state = ENDED
            if len(self._heap) > 64 and len(self._heap) > 2 * self.waiting:
                self._heap = [entry for entry in self._heap if entry[1]._state == WAITING]
                heapify(self._heap)
        else:
            self._stop(request)
            self._leave(request)
        self.aborted += 1
        return True

    def reset_cache(self) -> bool:
        """Forget every cached prefix, as vLLM does: only when no block is held. False: not now."""
        if self.kv.used:
            return False
        self.kv.clear_cache()
        if self.kv_log is not None:
            self.kv_log.append(Cleared())
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
        self._crowded = False
        self._chunks.clear()
        for request in self._growing.pop(step, ()):
            if request._state == DECODING:  # else it made room for one before it
                self._grow(request, step)
        self._budget = self.config.max_num_batched_tokens - len(self._decoding)
        if self._prefilling:
            for request in list(self._prefilling.values()):
                if self._budget <= 0:
                    break
                if request._state == PREFILLING and not self._extend(request):
                    break
        while self._budget > 0 and self.waiting and not self._crowded:
            request = self._head()
            if not self._admit(request) and not (self._displace(request) and self._admit(request)):
                break
            self._extend(request)
        decoding = len(self._decoding)
        if not decoding and not self._chunks:
            self._step_end = None
            return
        tokens = squares = 0
        for request in self._chunks:
            end = request._computed
            start = end - request._chunk
            tokens += end - start
            squares += end * end - start * start
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
            # Else it was aborted during the step, or its prompt needs more of them.
            if request._state == PREFILLING and request._computed == request._target:
                del self._prefilling[request.id]
                self._prefilled(request, step, events)
        return events

    # The queue.

    def _queue(self, request: R) -> None:
        request._state = WAITING
        heappush(self._heap, (request._place, request))
        self.waiting += 1
        self.peak_waiting = max(self.peak_waiting, self.waiting)

    def _head(self) -> R:
        heap = self._heap
        while heap[0][1]._state != WAITING:
            heappop(heap)
        return heap[0][1]

    def _hits(self, request: R) -> list[int]:
        """Cached blocks it would start with."""
        if not self.config.prefix_caching:
            return []
        # The last token is always computed: its output is the next new token.
        tokens = request.prompt_tokens + request.generated
        return self.kv.match(request.block_hashes, (tokens - 1) // self.kv.block_size)

    def _lacks(self, request: R, hits: list[int]) -> int:
        """Blocks too few to let it in with these cached ones; 0 or less: there is room."""
        kv = self.kv
        tokens = request.prompt_tokens + request.generated
        need = -(-tokens // kv.block_size)
        if self.config.reserve_output:
            need = self._footprint(request)
        return need - len(hits) + kv.idle(hits) - (kv.free - self._promised)

    def _admit(self, request: R) -> bool:
        """Move the queue's head into the batch if there is a slot and room for all its tokens.

        The room is looked for, not kept, unless output is reserved.
        """
        if self.running >= self.config.max_num_seqs:
            return False
        hits = self._hits(request)
        if self._lacks(request, hits) > 0:
            return False
        heappop(self._heap)
        self.waiting -= 1
        request._state = PREFILLING
        self._prefilling[request.id] = request
        self.kv.share(hits)
        request._blocks = hits
        request._target = request.prompt_tokens + request.generated
        request._computed = cached = self.kv.block_size * len(hits)
        if self.config.reserve_output:
            request._promised = self._footprint(request) - len(hits)
            self._promised += request._promised
        if hits and self.kv_log is not None:  # vLLM since 0.25: reuse is told as well
            self._log_stored(request, 0, len(hits))
        if not request.preemptions:  # vLLM counts what is computed again nowhere
            request.started_at = max(self.clock, self._last_submit)
            request.cached_tokens = cached
            self.prompt_tokens += request.prompt_tokens
            if self.config.prefix_caching:
                self.prefix_queries += request.prompt_tokens
                self.prefix_hits += cached
        return True

    # Room.

    def _make_room(self, request: R, blocks: int) -> bool:
        """Preempt until that many blocks are free. False: it was itself the worst."""
        while self.kv.free < blocks:
            self._crowded = True
            victim = max(self.rows(), key=_place)
            self._preempt(victim)
            if victim is request:
                return False
        return True

    def _displace(self, request: R) -> bool:
        """Preempt what is worse enough for this urgent newcomer. False: it would not help."""
        advantage = self.config.preempt_advantage
        if advantage is None:
            return False
        rank = request._place[0]
        worse = [one for one in self.rows() if one._place[0] - rank > advantage]
        worse.sort(key=_place, reverse=True)
        slots = self.config.max_num_seqs - self.running
        lacking = self._lacks(request, self._hits(request))
        victims = []
        for one in worse:
            if slots > 0 and lacking <= 0:
                break
            victims.append(one)
            slots += 1
            lacking -= self.kv.sole(one._blocks) + one._promised
        if slots <= 0 or lacking > 0:
            return False
        for one in victims:
            self._preempt(one)
        return True

    def _preempt(self, request: R) -> None:
        """Take its KV away and queue it again; it keeps the tokens it has."""
        if request._state == DECODING:
            self._budget += 1
        elif request in self._chunks:
            self._chunks.remove(request)
            self._budget += request._chunk
        self._stop(request)
        self._release(request)
        request.preemptions += 1
        self.preemptions += 1
        self._queue(request)

    def _stop(self, request: R) -> None:
        """Take a running request out of the batch."""
        if request._state == PREFILLING:
            del self._prefilling[request.id]
            return
        request.generated = self.generated(request)
        del self._decoding[request.id]
        self._context -= request.prompt_tokens + request.generated
        _unfile(self._finishing, request._finish_step, request)
        _unfile(self._growing, request._grow_step, request)

    # The life of a running request.

    def _extend(self, request: R) -> bool:
        """Compute its next chunk in this step. False: it had to leave for want of blocks."""
        kv = self.kv
        start = request._computed
        request._chunk = 0
        end = min(request._target, start + self._budget)
        need = -(-end // kv.block_size) - len(request._blocks)
        if not self._make_room(request, need):
            return False
        for _ in range(need):
            request._blocks.append(kv.take())
        if request._promised:
            request._promised -= need
            self._promised -= need
        request._computed = end
        request._chunk = end - start
        self._budget -= end - start
        self._chunks.append(request)
        # Named as it is scheduled, as vLLM does: an equal prompt in the same step may share it.
        self._commit(request, start // kv.block_size, end // kv.block_size)
        return True

    def _commit(self, request: R, start: int, stop: int) -> None:
        """These blocks of it are full."""
        if not self.config.prefix_caching:
            return
        hashes = request.block_hashes
        stop = min(stop, len(hashes))
        for index in range(start, stop):
            self.kv.commit(request._blocks[index], hashes[index])
        if self.kv_log is not None and start < stop:
            self._log_stored(request, start, stop)

    def _log_stored(self, request: R, start: int, stop: int) -> None:
        assert self.kv_log is not None
        hashes, size = request.block_hashes, self.kv.block_size
        parent = hashes[start - 1] if start else None
        tokens = request.token_ids[start * size : stop * size]
        salt = None if start else request.cache_salt
        self.kv_log.append(Stored(hashes[start:stop], parent, tokens, size, salt))

    def _prefilled(self, request: R, step: int, events: list[tuple[int, R]]) -> None:
        """All its tokens are computed: the first token is there, or the next one after a while."""
        had = request.generated
        request._chunk = 0
        if request.output_tokens:
            self.generation_tokens += 1
            if not had:
                events.append((FIRST_TOKEN, request))
            elif self.config.token_events:
                events.append((TOKEN, request))
        if had + 1 >= request.output_tokens:
            self._finish(request, events)
            return
        request._state = DECODING
        request._first_step = step - had
        self._decoding[request.id] = request
        self._context += request._target + 1
        request._finish_step = request._first_step + request.output_tokens - 1
        self._finishing.setdefault(request._finish_step, []).append(request)
        self._file_growth(request, step + 1 + -request._target % self.kv.block_size)

    def _grow(self, request: R, step: int) -> None:
        """The token this step computes begins a new block; the one before is full."""
        blocks = request._blocks
        if len(blocks) * self.kv.block_size != request._target:  # else the prefill named it
            self._commit(request, len(blocks) - 1, len(blocks))
        if not self._make_room(request, 1):
            return
        blocks.append(self.kv.take())
        if request._promised:
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
        # Else the last block is not full, or a prefill ended with it and named it.
        if computed % self.kv.block_size == 0 and computed > request._target:
            self._commit(request, len(request._blocks) - 1, len(request._blocks))
        self._leave(request)
        self.finished += 1
        events.append((FINISHED, request))

    def _leave(self, request: R) -> None:
        del self._requests[request.id]
        request._state = ENDED
        self._release(request)

    def _release(self, request: R) -> None:
        self.kv.release(request._blocks)
        request._blocks = []
        self._promised -= request._promised
        request._promised = 0

    def _footprint(self, request: R) -> int:
        """Blocks it holds at its end. The last token's KV is never computed."""
        tokens = request.prompt_tokens + max(request.output_tokens, 1) - 1
        return -(-tokens // self.kv.block_size)


def _place(request: Request) -> tuple[int, float, int]:
    return request._place


def _entry_place(entry: tuple[tuple[int, float, int], Request]) -> tuple[int, float, int]:
    return entry[0]


def _unfile(files: dict[int, list[R]], step: int, request: R) -> None:
    entries = files.get(step)
    if entries is not None and request in entries:
        entries.remove(request)
        if not entries:
            del files[step]
