"""The number of requests that an engine runs at once, learned from what its polls show.

It is needed where neither the configuration nor the engine says it:

1. What runs holds a share of the KV cache: so many times as much would fit.
2. An engine with a queue whose running count does not grow from one poll to the next is full with
   what it runs. One poll is enough where its KV cache is full or where it has preempted a request.
   A queue may also be prompts on their way into the batch: where more than a batch of prompt tokens
   waits there and the cache has room, more polls are needed.
3. An engine that runs more than it was thought to hold was not full. If it runs much more (a
   slot at least), its slots are unknown again.

Until something is learned the answer is `None`, never 0. For admission there is a guess instead
(`guess`): `FIRST` requests, or `GROWTH` times what ran at a poll that showed no queue. A poll that
shows fewer requests than were sent is older than the last of them, and older than their queue.

Must never: do I/O, or take what is unknown for idle or for full.
"""

from __future__ import annotations

from typing import Final

POLLS: Final = 2  # in a row with a queue and no growth ...
POLLS_PREFILL: Final = 5  # ... where the queue may be prompts on their way into the batch
PREFILL_TOKENS: Final = 8192  # vLLM 0.32's batch; what waits beyond it may wait for its prefill
MUCH_MORE: Final = 1.1  # times what an engine was thought to hold
STEADY: Final = 0.9  # of the most in these polls: an engine that runs less is emptying
SHOWN: Final = 0.9  # of what was sent: a poll that shows less is older than the last of it
KV_FULL: Final = 0.8  # share of the cache that is held; from here on what waits waits for room
KV_LEAST: Final = 0.02  # below it the share says too little of what would fit
SMOOTHING: Final = 0.25  # of a poll, in what is learned
FIRST: Final = 8.0  # twice the slots of the smallest engines; doubling fills 256 in five steps
GROWTH: Final = 4.0  # a poll may be a second old: three of them fill an engine of 256 slots


class LearnedCapacity:
    """The requests an engine runs at once, by what its polls show."""

    __slots__ = ("_fit", "_full", "_is_sure", "_peak", "_preemptions", "_queued", "guess")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """The engine was started anew, maybe with other settings."""
        self._full: float | None = None  # what it ran while it queued; None: it never did
        self._fit: float | None = None  # what would fit into its cache; None: not known
        self._is_sure = False  # nothing has contradicted `_full` since
        self._queued = 0  # polls in a row that showed a queue and no growth
        self._peak = 0  # the most that ran in them
        self._preemptions: int | None = None
        self.guess = FIRST  # requests that may be there while `slots` is None

    @property
    def requests(self) -> float | None:
        """None: nothing was learned."""
        if self._full is None or self._fit is None:
            return self._fit if self._full is None else self._full
        return min(self._full, self._fit)

    @property
    def slots(self) -> float | None:
        """The same, where the engine was seen to be full; None: it was not."""
        return self.requests if self._is_sure else None

    def observed(
        self,
        running: int | None,
        waiting: int | None,
        kv_usage: float | None = None,
        preemptions: int | None = None,
        tokens: int = 0,
        sent: int = 0,
    ) -> None:
        """One poll: everybody's requests at the engine, the share of its KV cache that they hold,
        and its preemptions so far. None: it did not say. `tokens`: of prompts that wait there.
        `sent`: our own requests under way there, when the poll came back."""
        before, self._preemptions = self._preemptions, preemptions
        has_preempted = before is not None and preemptions is not None and preemptions > before
        if running is None or waiting is None:
            self._queued = 0
            return
        if kv_usage is not None and kv_usage >= KV_LEAST and running:
            self._fit = _smoothed(self._fit, running / kv_usage)
        if self._full is not None and running > self._full:
            # Less than one slot more is what averaging took away.
            is_little = running < self._full + 1.0 or running <= MUCH_MORE * self._full
            self._is_sure = self._is_sure and is_little
            self._full = float(running)
        if not waiting:
            if running >= SHOWN * sent:
                self.guess = max(self.guess, GROWTH * running)
            self._queued = 0
            return
        if not running:
            self._queued = 0  # it hangs
            return
        is_steady = self._queued > 0 and STEADY * self._peak <= running <= self._peak
        if is_steady:
            self._queued += 1
        else:
            self._queued = 1
            self._peak = running
        has_room = kv_usage is None or kv_usage < KV_FULL
        needed = POLLS
        if not has_room or has_preempted:
            needed = 1
        elif tokens >= PREFILL_TOKENS:
            needed = POLLS_PREFILL
        if self._queued >= needed:
            self._full = _smoothed(self._full, running)
            self._is_sure = True


def _smoothed(known: float | None, seen: float) -> float:
    return float(seen) if known is None else known + (seen - known) * SMOOTHING
