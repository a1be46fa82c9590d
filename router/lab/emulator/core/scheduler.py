"""Chooses the requests of an engine's next step, from queue, batch and KV pool.

A step computes at most `max_num_batched_tokens` tokens. Every decoding request gets one of them.
The rest goes to prefills that have begun, then to new requests from the queue. A new request is
admitted only if a slot is free and enough blocks for its whole prompt are free.

As in vLLM V1, admitted requests have no reserved blocks. When a running request needs a block and
none is free, the last running request by (priority, arrival) is *preempted*. The preempted request
loses its KV, goes back to its place in the queue and is later computed again, including its output
so far. No request is admitted in that step. With `reserve_output` a request is admitted only when
all the blocks that it will ever need can be reserved, and there is no preemption (as in
TensorRT-LLM, TGI and llama.cpp). With `preempt_advantage` a new request preempts running requests
whose priority numbers are higher than its own by more than this value (as in SGLang).

Must never know the duration of a step. Invariants: blocks held plus blocks reserved never exceed
the pool; when no request runs, no block is held. The first running request by (priority, arrival)
is never preempted for lack of blocks, so that some request always finishes.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from router.lab.emulator.core.batch import Batch
from router.lab.emulator.core.kv import Block, KvPool
from router.lab.emulator.core.kv_events import KvEvent, Stored
from router.lab.emulator.core.request import DECODING, ENDED, PREFILLING, WAITING, Queue, Request
from router.lab.emulator.core.timing import CoreConfig

R = TypeVar("R", bound=Request)


class Scheduler(Generic[R]):
    """The scheduler of one engine core. Its counters only grow."""

    __slots__ = (
        "_advantage",
        "_budget",
        "_caches",
        "_kv_log",
        "_most_requests",
        "_most_tokens",
        "_reserves",
        "_step",
        "batch",
        "chunks",
        "kv",
        "preemptions",
        "prefix_hits",
        "prefix_queries",
        "promised",
        "prompt_tokens",
        "queue",
    )

    def __init__(self, config: CoreConfig, kv_log: list[KvEvent] | None) -> None:
        self.kv = KvPool(config.num_blocks, config.block_size, kv_log)
        self.queue: Queue[R] = Queue()
        self.batch: Batch[R] = Batch(config.block_size)
        self.chunks: list[R] = []  # requests whose prefill continues in this step
        self.promised = 0  # blocks reserved for running requests and not yet taken
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.prompt_tokens = 0
        self.preemptions = 0
        # Copies, because reading a field of the configuration is slower.
        self._most_tokens = config.max_num_batched_tokens
        self._most_requests = config.max_num_seqs
        self._caches = config.prefix_caching
        self._reserves = config.reserve_output
        self._advantage = config.preempt_advantage
        self._kv_log = kv_log
        self._step = 0  # the number of the step that is scheduled now, or was scheduled last
        self._budget = 0  # number of tokens that the step can still compute

    def schedule(self, step: int, now: float) -> None:
        """Choose the requests of step number `step`: those in `batch.decoding` and `chunks`."""
        batch, queue, chunks = self.batch, self.queue, self.chunks
        preemptions = self.preemptions
        self._step = step
        chunks.clear()
        self.grow(step)
        self._budget = self._most_tokens - len(batch.decoding)
        if batch.prefilling:
            for request in list(batch.prefilling.values()):
                if self._budget <= 0:
                    break
                if request._state == PREFILLING and not self._extend(request):
                    break
        # No request is admitted in a step that preempted a request for lack of blocks.
        is_open = self.preemptions == preemptions
        while is_open and queue.waiting and self._budget > 0:
            is_open = self._let_in(queue.head(), now)

    def grow(self, until: int) -> None:
        """Allocate the blocks that decoding requests need up to step `until`.

        The hashes of the blocks that became full are stored.
        """
        batch, kv = self.batch, self.kv
        while (request := batch.growing(until)) is not None:
            blocks = request._blocks
            full = len(blocks)
            # If the prefill filled the block, the prefill has stored its hash.
            if full * kv.block_size != request._target:
                self._commit(request, full - 1, full)
            if not kv.free and not self._make_room(request, 1):
                continue
            blocks += kv.take(1)
            if request._promised:
                request._promised -= 1
                self.promised -= 1
            batch.grown()

    def finish(self, request: R) -> None:
        """Free the KV of a request that has all its tokens and has left the batch."""
        computed = request.prompt_tokens + max(request.output_tokens, 1) - 1
        # In all other cases the last block is not full, or the prefill filled it and stored its
        # hash.
        if computed % self.kv.block_size == 0 and computed > request._target:
            self._commit(request, len(request._blocks) - 1, len(request._blocks))
        request.generated = request.output_tokens
        request._state = ENDED
        self._release(request)

    def drop(self, request: R, steps_ended: int) -> None:
        """Remove a request before its end, in any state."""
        if request._state == WAITING:
            self.queue.drop(request)
        else:
            self.batch.remove(request, steps_ended)
            request._state = ENDED
            self._release(request)

    def footprint(self, request: R) -> int:
        """Number of blocks that `request` holds at its end. Its last token needs no KV."""
        tokens = request.prompt_tokens + max(request.output_tokens, 1) - 1
        return -(-tokens // self.kv.block_size)

    # Consecutive decode steps that can be one event.

    def quiet_until(self) -> int:
        """The last of the decode steps that can be one event. The current step must not prefill.

        Before the end of that step no request ends, and there are enough free blocks. No waiting
        request can be admitted, because the head of the queue lacks a slot or blocks, and no block
        is freed. The head can only gain a shared block: a decoding request can fill a block that
        is also a block of the head's prompt.
        """
        last = self.batch.quiet_until(self.kv.free)
        if self.queue.waiting and self._has_openings():
            head = self.queue.head()
            for request in self.batch.decoding.values():
                if request._grow_step and _may_feed(request, head):
                    last = min(last, request._grow_step - 1)
        return last

    def may_be_next(self, request: R) -> bool:
        """Whether `request` is the next waiting request to be admitted, and a slot may be free."""
        return self._has_openings() and self.queue.head() is request

    def _has_openings(self) -> bool:
        """Whether a request may be admitted now: a slot is free, or new requests may preempt."""
        return len(self.batch) < self._most_requests or self._advantage is not None

    # Admission and preemption.

    def _hits(self, request: R) -> list[Block]:
        """Cached blocks with which the request would start."""
        if not self._caches:
            return []
        # The last token is computed even if it is cached: its output is the next new token.
        tokens = request.prompt_tokens + request.generated
        return self.kv.match(request.block_hashes, (tokens - 1) // self.kv.block_size)

    def _lacks(self, request: R, hits: list[Block]) -> int:
        """Number of free blocks that the request's admission lacks; 0 or less: none.

        `hits` are the cached blocks with which the request would start.
        """
        kv = self.kv
        if self._reserves:
            need = self.footprint(request)
        else:
            need = -(-(request.prompt_tokens + request.generated) // kv.block_size)
        lacking = need - (kv.free - self.promised)
        # Cached blocks without a holder do not reduce the lack, because they count as free already.
        return lacking - len(hits) + kv.idle(hits) if lacking > 0 else lacking

    def _let_in(self, head: R, now: float) -> bool:
        """Begin the prefill of `head` in this step. False: slots or blocks are lacking.

        Preempts less urgent requests if `preempt_advantage` allows it.
        """
        if self._admit(head, now) or (self._displace(head) and self._admit(head, now)):
            return self._extend(head)
        return False

    def _admit(self, request: R, now: float) -> bool:
        """Move the head of the queue into the batch. False: slots or blocks are lacking.

        Enough blocks for all its tokens must be free. They are reserved only with `reserve_output`.
        """
        if len(self.batch) >= self._most_requests:
            return False
        hits = self._hits(request)
        if self._lacks(request, hits) > 0:
            return False
        self.queue.pop()
        self.batch.admit(request)
        self.kv.share(hits)
        request._blocks = hits
        request._target = request.prompt_tokens + request.generated
        request._computed = cached = self.kv.block_size * len(hits)
        if self._reserves:
            request._promised = self.footprint(request) - len(hits)
            self.promised += request._promised
        if hits and self._kv_log is not None:  # vLLM since 0.25 reports reused blocks, too
            self._kv_log.append(_stored(request, 0, len(hits), self.kv.block_size))
        if not request.preemptions:  # vLLM does not count tokens recomputed after a preemption
            request.started_at = now
            request.cached_tokens = cached
            self.prompt_tokens += request.prompt_tokens
            if self._caches:
                self.prefix_queries += request.prompt_tokens
                self.prefix_hits += cached
        return True

    def _make_room(self, request: R, blocks: int) -> bool:
        """Preempt requests until `blocks` blocks are free. False: `request` was preempted."""
        while self.kv.free < blocks:
            victim = max(self.batch.rows(), key=_place)
            self._preempt(victim)
            if victim is request:
                return False
        return True

    def _displace(self, request: R) -> bool:
        """Preempt less urgent requests, so that `request` can be admitted.

        False: no request was preempted, because this would not free enough slots or blocks.
        """
        advantage = self._advantage
        if advantage is None:
            return False
        rank = request._place[0]
        worse = [one for one in self.batch.rows() if one._place[0] - rank > advantage]
        worse.sort(key=_place, reverse=True)
        slots = self._most_requests - len(self.batch)
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
        """Free the request's blocks and queue it again. Its output so far is kept."""
        if request._state == DECODING:
            self._budget += 1
        elif request in self.chunks:
            self.chunks.remove(request)
            self._budget += request._chunk
        self.batch.remove(request, self._step - 1)
        self._release(request)
        request.preemptions += 1
        self.preemptions += 1
        self.queue.push(request)

    # The blocks of a running request.

    def _extend(self, request: R) -> bool:
        """Compute the request's next chunk in this step. False: the request was preempted."""
        size = self.kv.block_size
        start = request._computed
        request._chunk = 0
        end = min(request._target, start + self._budget)
        need = -(-end // size) - len(request._blocks)
        if not self._make_room(request, need):
            return False
        request._blocks += self.kv.take(need)
        if request._promised:
            request._promised -= need
            self.promised -= need
        request._computed = end
        request._chunk = end - start
        self._budget -= end - start
        self.chunks.append(request)
        # As in vLLM, hashes are stored when a step is scheduled. So an equal prompt in the same
        # step may share the blocks.
        self._commit(request, start // size, end // size)
        return True

    def _commit(self, request: R, start: int, stop: int) -> None:
        """Store the hashes of the request's full blocks from `start` up to but not `stop`."""
        stop = min(stop, len(request.block_hashes))
        if start < stop and self._caches:
            self.kv.commit(request._blocks[start:stop], request.block_hashes[start:stop])
            if self._kv_log is not None:
                self._kv_log.append(_stored(request, start, stop, self.kv.block_size))

    def _release(self, request: R) -> None:
        self.kv.release(request._blocks)
        request._blocks = []
        self.promised -= request._promised
        request._promised = 0


def _place(request: Request) -> tuple[int, float, int]:
    return request._place


def _may_feed(request: Request, head: Request) -> bool:
    """Whether the newest block of `request` will be, once full, a block of the prompt of `head`."""
    index = len(request._blocks) - 1
    mine, wanted = request.block_hashes, head.block_hashes
    return index < len(mine) and index < len(wanted) and mine[index] == wanted[index]


def _stored(request: Request, start: int, stop: int, size: int) -> Stored:
    hashes = request.block_hashes
    parent = hashes[start - 1] if start else None
    tokens = request.token_ids[start * size : stop * size]
    return Stored(hashes[start:stop], parent, tokens, size, None if start else request.cache_salt)
