"""The engine core: continuous batching over a paged KV pool, as a pure state machine.

It uses no socket, task or clock. Its callers pass the time as `now`, in seconds since any epoch;
the time must never go back. `next_event` returns when `advance` must be called. The server calls it
from a timer; a simulator moves a virtual clock from event to event. The same input always gives the
same output.

One *step* is one pass of the accelerator: it decodes one token for every decoding request and uses
the rest of `max_num_batched_tokens` for prefill, in chunks. The `scheduler` chooses the requests of
a step. The queue is ordered by arrival, or by (priority, arrival) with the lower number first. A
small request never overtakes the head of the queue, even if only the small one has enough blocks.

The CPU time of a decode step grows with the number of requests that change, not with the batch.
There is one event per token only if `token_events` is set. If `leap` is set, consecutive decode
steps without an arrival, end or preemption are one event, a *leap*. A request that arrives during a
leap joins the same step as without leaps, and the events are the same. Leaps have two other
effects. Counters that are read during a leap have the values of its begin, unless `settle` is
called first. `kv_log` gets the blocks that are stored during a leap only when the leap ends.

Invariants: a request ends exactly once, by a FINISHED event or by `abort`. Each token is reported
at most once, even if the request was preempted.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from router.lab.emulator.core.kv_events import Cleared, KvEvent
from router.lab.emulator.core.leap import Leap, step_s
from router.lab.emulator.core.request import DECODING, NEW, PREFILLING, WAITING, Request
from router.lab.emulator.core.scheduler import Scheduler
from router.lab.emulator.core.timing import CoreConfig, Timing

__all__ = ["FINISHED", "FIRST_TOKEN", "TOKEN", "CoreConfig", "EngineCore", "Request"]

# Kinds of event.
FIRST_TOKEN: Final = 0
TOKEN: Final = 1
FINISHED: Final = 2

R = TypeVar("R", bound=Request)


class EngineCore(Generic[R]):
    """One engine core. Its counters never decrease; present values are properties."""

    def __init__(self, config: CoreConfig, timing: Timing) -> None:
        self.config = config
        self.timing = timing
        # Copies of the coefficients, because each step reads all of them.
        self._prefill_s = timing.prefill_s
        self._prefill_token_s = timing.prefill_token_s
        self._prefill_square_s = timing.prefill_square_s
        self._decode_s = timing.decode_s
        self._decode_sequence_s = timing.decode_sequence_s
        self._decode_context_s = timing.decode_context_s
        self._leaps = config.leap
        self._tells_tokens = config.token_events
        # Changes of the prefix cache, in order. The caller reads and clears this list.
        self.kv_log: list[KvEvent] | None = [] if config.kv_events else None
        self._scheduler: Scheduler[R] = Scheduler(config, self.kv_log)
        self.kv = self._scheduler.kv
        # Factor on the duration of every step that begins from now on. During a leap, only `slow`
        # changes it correctly.
        self.slowdown = 1.0
        self.clock = 0.0  # time of the last step boundary, even if `advance` was called later

        self.submitted = 0
        self.generation_tokens = 0
        # Tokens computed by prefills, including those of aborted requests, and those computed again
        # after a preemption. Tokens from the prefix cache are not computed.
        self.prefilled_tokens = 0
        self.steps = 0  # number of steps that have begun
        self.aborted = 0
        self.finished = 0

        self._requests: dict[str, R] = {}
        self._leap = Leap()
        self._last_submit = 0.0
        self._stalled_at: float | None = None

    # Queries.

    @property
    def running(self) -> int:
        return len(self._scheduler.batch)

    @property
    def waiting(self) -> int:
        return self._scheduler.queue.waiting

    @property
    def peak_waiting(self) -> int:
        return self._scheduler.queue.peak

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens of all requests that were ever admitted."""
        return self._scheduler.prompt_tokens

    @property
    def prefix_queries(self) -> int:
        """Number of prompt tokens looked up in the prefix cache, once for each admitted request."""
        return self._scheduler.prefix_queries

    @property
    def prefix_hits(self) -> int:
        return self._scheduler.prefix_hits

    @property
    def preemptions(self) -> int:
        return self._scheduler.preemptions

    @property
    def steps_ended(self) -> int:
        return self.steps - (self._leap.steps > 0)

    def stepped_at(self, now: float) -> float:
        """The time of the last step boundary before `now`: that of `clock` after `settle`."""
        leap = self._leap
        if leap.steps > 1:
            ended = leap.under_way(now) - 1
            if ended > leap.counted:
                return leap.end_of(ended)
        return self.clock

    @property
    def prefilling(self) -> int:
        """Number of running requests whose prefill has not ended."""
        return len(self._scheduler.batch.prefilling)

    @property
    def step_tokens(self) -> int:
        """Number of prompt tokens that the newest step computes."""
        return sum(request._chunk for request in self._scheduler.chunks)

    @property
    def kv_usage(self) -> float:
        """Fraction of the KV blocks that requests hold, 0 to 1. Other cached blocks are free."""
        return self.kv.used / self.kv.num_blocks

    @property
    def kv_reserved(self) -> int:
        """Number of KV blocks that requests hold or have reserved."""
        return self.kv.used + self._scheduler.promised

    def generated(self, request: R) -> int:
        """Number of output tokens that were generated for the request so far."""
        if request._state != DECODING:
            return request.generated
        return self.steps_ended - request._first_step + 1

    def holds(self, id: str) -> bool:
        """Whether the request waits or runs."""
        return id in self._requests

    def uncached_waiting(self) -> int:
        """Number of tokens of waiting requests that are not in the prefix cache now. O(queue)."""
        size = self.kv.block_size
        total = 0
        for request in self._scheduler.queue.requests():
            tokens = request.prompt_tokens + request.generated
            hits = self.kv.match(request.block_hashes, (tokens - 1) // size)
            total += tokens - size * len(hits)
        return total

    def alone_s(self, request: R) -> float:
        """Seconds to the first token if `request` were prefilled alone in one step.

        Prompt tokens that are cached at this moment are not computed.
        """
        tokens, size = request.prompt_tokens, self.kv.block_size
        hits = self.kv.match(request.block_hashes, (tokens - 1) // size)
        return self.slowdown * self.timing.prefill_alone_s(tokens, size * len(hits))

    def rows(self) -> list[R]:
        """Running requests: first those that prefill, then those that decode.

        Both groups are in order of admission.
        """
        return self._scheduler.batch.rows()

    def queued(self) -> list[R]:
        """Waiting requests, the next one first. O(n log n)."""
        return self._scheduler.queue.ordered()

    def next_event(self, now: float) -> float | None:
        """The time at which `advance` must be called next. It may be `now` or earlier.

        None: nothing happens until a request is submitted or a stalled engine resumes. Ask again
        after each call that changes the engine: during a leap, the call may make this time earlier.
        """
        if self._stalled_at is not None:
            return None
        if self._leap.steps:
            return self._leap.end
        return self._last_submit if self._scheduler.queue.waiting else None

    # Actions.

    def submit(self, request: R, now: float) -> None:
        """Queue a request, which can join the first step that begins at or after `now`.

        Raises ValueError if the request could never run or its ID is in use.
        """
        if request._state != NEW or request.id in self._requests:
            raise ValueError(f"request {request.id!r} was submitted before")
        if request.prompt_tokens < 1 or request.output_tokens < 0:
            raise ValueError("a request needs a prompt of at least one token")
        if self._scheduler.footprint(request) > self.kv.num_blocks:
            raise ValueError("the request needs more KV blocks than the engine has")
        request.arrival = now
        self._requests[request.id] = request
        self.submitted += 1
        rank = request.priority if self.config.priority_scheduling else 0
        request._place = (rank, now, self.submitted)
        self._scheduler.queue.push(request)
        self._last_submit = now
        if self._leap.steps > 1 and self._scheduler.may_be_next(request):
            self._cut(now)

    def abort(self, id: str, now: float) -> bool:
        """Drop a request and free its blocks at once. False: the request is unknown or has ended.

        The current step still takes its full time, as on a real accelerator.
        """
        request = self._requests.get(id)
        if request is None:
            return False
        if self._leap.steps > 1 and (
            request._state != WAITING or self._scheduler.may_be_next(request)
        ):
            self._cut(now)
        del self._requests[id]
        self._scheduler.drop(request, self.steps_ended)
        self.aborted += 1
        return True

    def reset_cache(self) -> bool:
        """Drop all cached prefixes, as vLLM does. False: nothing was dropped, because a request
        holds a block.
        """
        if self.kv.used:
            return False
        self.kv.clear_cache()
        if self.kv_log is not None:
            self.kv_log.append(Cleared())
        return True

    def advance(self, now: float) -> list[tuple[int, R]]:
        """Process the earliest step boundary due by `now`; returns its events as (kind, request).

        A call processes at most one boundary: call again while `next_event(now) <= now`. The last
        token of a request is reported as a token and then as FINISHED. `clock` is the time of the
        events.
        """
        due = self.next_event(now)
        if due is None or due > now:
            return []
        if self._leap.steps > 1:
            self._count(self._leap.steps - 1)
        self.clock = due
        events: list[tuple[int, R]] = []
        if self._leap.steps:
            self._end_step(events)
        self._begin_step()
        return events

    def settle(self, now: float) -> None:
        """Count the steps that ended before `now` during a leap, a series of steps without events.

        All counters then have their values at `now`. Later events are the same without this call.
        """
        if self._leap.steps > 1:
            self._count(self._leap.under_way(now) - 1)

    def slow(self, factor: float, now: float) -> None:
        """Set the factor on the duration of every step that begins at or after `now`."""
        self._cut(now)
        self.slowdown = factor

    def stall(self, now: float) -> None:
        """Stop making progress, like a hanging accelerator. New requests are still queued."""
        if self._stalled_at is None:
            self._cut(now)
            self._stalled_at = now

    def resume(self, now: float) -> None:
        """Continue after `stall`. The current step still needs the rest of its duration."""
        if self._stalled_at is not None:
            self._leap.put_off(now - self._stalled_at)
            self._last_submit = max(self._last_submit, now)
            self._stalled_at = None

    # Steps and leaps.

    def _begin_step(self) -> None:
        scheduler = self._scheduler
        step = self.steps + 1
        preemptions = scheduler.preemptions
        # If `advance` is called late, a request may have arrived after `clock`. It can be in this
        # step, so the step does not begin before its arrival.
        begin = max(self.clock, self._last_submit)
        scheduler.schedule(step, begin)
        decoding = len(scheduler.batch.decoding)
        if not decoding and not scheduler.chunks:
            return
        self.steps = step
        tokens = squares = 0
        for request in scheduler.chunks:
            end = request._computed
            start = end - request._chunk
            tokens += end - start
            squares += end * end - start * start
        self.prefilled_tokens += tokens
        last = step
        if self._leaps and not tokens and scheduler.preemptions == preemptions:
            last = scheduler.quiet_until()
        first_s = step_s(
            self._prefill_s,
            self._prefill_token_s,
            self._prefill_square_s,
            self._decode_s,
            self._decode_sequence_s,
            self._decode_context_s,
            tokens,
            squares,
            decoding,
            scheduler.batch.context,
        )
        more_s = self._decode_context_s * decoding
        self._leap.start(begin, self.slowdown * first_s, self.slowdown * more_s, last - step + 1)

    def _end_step(self, events: list[tuple[int, R]]) -> None:
        self._leap.steps = 0
        step = self.steps
        batch = self._scheduler.batch
        if batch.decoding:
            self.generation_tokens += batch.decoded(1)
            if self._tells_tokens:
                events += [(TOKEN, request) for request in batch.decoding.values()]
            for request in batch.finished(step):
                self._finish(request, events)
        for request in self._scheduler.chunks:
            # In all other cases the request was aborted during the step or needs more prefill.
            if request._state == PREFILLING and request._computed == request._target:
                self._prefilled(request, step, events)

    def _cut(self, now: float) -> None:
        """End the leap, a series of steps without events, with the step that runs at `now`.

        The steps after it may differ from the planned ones.
        """
        if self._leap.steps > 1:
            step = self._leap.under_way(now)
            self._count(step - 1)
            self._leap.cut(step)

    def _count(self, ended: int) -> None:
        """Update the counters during a leap: its first `ended` steps have ended, the next runs."""
        leap = self._leap
        steps = ended - leap.counted
        if steps > 0:
            leap.counted = ended
            self.clock = leap.end_of(ended)
            self.steps += steps
            self.generation_tokens += self._scheduler.batch.decoded(steps)
            self._scheduler.grow(self.steps)

    # First token and end of a request.

    def _prefilled(self, request: R, step: int, events: list[tuple[int, R]]) -> None:
        """End a request's prefill and report the token that the prefill generated.

        After a preemption this is not the request's first token.
        """
        had = request.generated
        request._chunk = 0
        if request.output_tokens:
            self.generation_tokens += 1
            if not had:
                events.append((FIRST_TOKEN, request))
            elif self._tells_tokens:
                events.append((TOKEN, request))
        if had + 1 < request.output_tokens:
            self._scheduler.batch.decode(request, step)
        else:
            del self._scheduler.batch.prefilling[request.id]
            self._finish(request, events)

    def _finish(self, request: R, events: list[tuple[int, R]]) -> None:
        del self._requests[request.id]
        self._scheduler.finish(request)
        self.finished += 1
        events.append((FINISHED, request))
