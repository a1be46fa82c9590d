"""Learns how many requests an engine runs at once, from its polls.

The learned capacity is needed if neither the configuration nor the engine states the capacity. It
is learned by three rules:

1. Running requests hold a share of the KV cache. The number of running requests divided by this
   share is the number of requests that would fill the cache.
2. If an engine has a queue, and its number of running requests does not grow from one poll to the
   next, this number is its capacity. One poll with a queue is enough if the KV cache is full or the
   engine has preempted a request. A queue may also consist of prompts that wait for their prefill.
   So more polls are needed if more prompt tokens wait than one prefill batch holds, and the cache
   has free space. If the cache has free space and the engine has run more requests before, its
   queue never shows that it is full. At an engine that is not full, a short queue may consist of
   requests that came since its last step began. So with a short queue the number of running
   requests must stay exactly the same.
3. If an engine runs more requests than its learned capacity, that capacity was too low. If it runs
   at least one request and 10 % more, `slots` is `None` again.

While no capacity is learned, the answer is `None`, never 0. Admission uses `guess` instead: `FIRST`
requests, or `GROWTH` times the running requests of a poll that showed no queue. A poll that shows
fewer requests than the router has sent was taken before the last request arrived. Such a poll may
miss a queue, so it does not raise `guess`.

Must never: do I/O, or treat an engine of unknown capacity as idle or as full.
"""

from __future__ import annotations

from typing import Final

# Number of polls in a row, with a queue and no growth of the running requests, that show a full
# engine.
POLLS: Final = 2
# Number of polls in a row that show a full engine, for each prefill batch of prompts that wait at
# the engine.
POLLS_PREFILL: Final = 5
POLLS_MOST: Final = 20  # maximum of that number, for several prefill batches
# Number of polls in a row that show a full engine, if its queue is short.
POLLS_SHORT: Final = 4
# A queue is short if it has fewer requests than this share of the running requests.
SHORT: Final = 0.03
# Maximum number of prompt tokens in one prefill batch of vLLM 0.32. Further prompt tokens wait for
# a later batch.
PREFILL_TOKENS: Final = 8192
# If an engine runs more requests than this factor times its learned capacity, its capacity is
# unknown again.
MUCH_MORE: Final = 1.1
# If fewer requests run than this share of the highest number in the counted polls, the engine's
# load is falling, so the engine is not full.
STEADY: Final = 0.9
# A poll that shows a smaller share of the requests that were sent to the engine was taken before
# the last request arrived.
SHOWN: Final = 0.9
# From this share of the KV cache in use on, requests may wait because the cache has no space.
KV_FULL: Final = 0.8
# If a smaller share of the KV cache is in use, the number of requests that fit into the cache
# cannot be estimated.
KV_LEAST: Final = 0.02
SMOOTHING: Final = 0.25  # Weight of one poll in the learned averages.
# The guess before the first poll, in requests: twice what the smallest engines run at once.
FIRST: Final = 8.0
# A poll without a queue raises the guess to this factor times the running requests, because the
# poll may be a second old. Three polls raise the guess from 8 to more than 256 requests.
GROWTH: Final = 4.0


class LearnedCapacity:
    """The number of requests that an engine runs at once, learned from its polls."""

    __slots__ = ("_fit", "_full", "_is_sure", "_most", "_peak", "_preemptions", "_queued", "guess")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget everything, because the engine has restarted, perhaps with other settings."""
        # Number of running requests while the engine had a queue; `None`: it never had a queue.
        self._full: float | None = None
        # Number of requests that would fit into the engine's KV cache; `None`: unknown.
        self._fit: float | None = None
        self._is_sure = False  # `_full` is known, and no later poll has contradicted it.
        # Number of polls in a row that showed a queue and no growth of the running requests.
        self._queued = 0
        self._most = 0  # The highest number of running requests in any poll.
        self._peak = 0  # The highest number of running requests in the polls that `_queued` counts.
        self._preemptions: int | None = None
        # Number of requests that may be sent to the engine while `slots` is `None`.
        self.guess = FIRST

    @property
    def requests(self) -> float | None:
        """The learned number of requests that run at once; `None` if nothing was learned."""
        if self._full is None or self._fit is None:
            return self._fit if self._full is None else self._full
        return min(self._full, self._fit)

    @property
    def slots(self) -> float | None:
        """The learned number of requests that run at once; `None` if no poll showed a full
        engine."""
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
        """Learn from one poll; `None` means that the engine did not report the value.

        `running`, `waiting`: requests of all clients at the engine. `kv_usage`: the share of the KV
        cache that they hold. `preemptions`: the engine's total. `tokens`: prompt tokens that wait
        at the engine. `sent`: this router's requests in progress at the engine when the poll
        returned.
        """
        before, self._preemptions = self._preemptions, preemptions
        has_preempted = before is not None and preemptions is not None and preemptions > before
        if running is None or waiting is None:
            self._queued = 0
            return
        self._measure(running, kv_usage)
        if not waiting and running >= SHOWN * sent:
            self.guess = max(self.guess, GROWTH * running)
        is_tight = has_preempted or (kv_usage is not None and kv_usage >= KV_FULL)
        # A queue without running requests means that the engine hangs.
        shows_full = waiting > 0 and running > 0
        if shows_full and not is_tight:
            shows_full = not self._has_free_slots(running, waiting, kv_usage, sent)
        if not shows_full:
            self._queued = 0
            return
        is_short = waiting < SHORT * running
        least = float(self._peak) if is_short else STEADY * self._peak
        if self._queued > 0 and least <= running <= self._peak:
            self._queued += 1
        else:
            self._queued = 1
            self._peak = running
        if self._queued >= _needed(is_tight, is_short, tokens):
            self._full = _smoothed(self._full, running)
            self._is_sure = True

    def _measure(self, running: int, kv_usage: float | None) -> None:
        """Learn from the running requests of a poll, whether or not the engine has a queue."""
        self._most = max(self._most, running)
        if kv_usage is not None and kv_usage >= KV_LEAST and running:
            self._fit = _smoothed(self._fit, running / kv_usage)
        full = self._full
        if full is not None and running > full:
            # A difference of less than one request is caused by averaging.
            is_little = running < full + 1.0 or running <= MUCH_MORE * full
            self._is_sure = self._is_sure and is_little
            self._full = float(running)

    def _has_free_slots(
        self, running: int, waiting: int, kv_usage: float | None, sent: int
    ) -> bool:
        """Whether the engine has free slots, although requests wait. Its cache has space."""
        if running < STEADY * self._most and kv_usage is not None:
            return True  # It has run more requests: the queue waits for prefills.
        if not self._is_sure or self._full is None:
            return False
        # If all requests fit into the engine at once, the waiting ones wait for its next step.
        most = self._full + 0.5
        return 0 < sent <= most and running + waiting <= most


def _needed(is_tight: bool, is_short: bool, tokens: int) -> int:
    """Return how many polls in a row show a full engine. Arguments: see `observed`."""
    if is_tight:
        return 1
    if tokens >= PREFILL_TOKENS:
        # The queue may last as long as the prefill of its batches.
        return min(POLLS_PREFILL * (tokens // PREFILL_TOKENS), POLLS_MOST)
    return POLLS_SHORT if is_short else POLLS


def _smoothed(known: float | None, seen: float) -> float:
    return float(seen) if known is None else known + (seen - known) * SMOOTHING
