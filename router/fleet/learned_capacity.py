"""Learns how many requests an engine runs at once, from its polls.

It is needed if neither the configuration nor the engine states that number:

1. Running requests hold a share of the KV cache. The number of running requests divided by this
   share is the number that would fill the cache.
2. If an engine has a queue, and its running count does not grow from one poll to the next, the
   running requests are its capacity. One poll is enough if the KV cache is full or the engine has
   preempted a request. A queue may also consist of prompts that wait for their prefill. So more
   polls are needed if more prompt tokens than one batch wait and the cache has free space.
3. If an engine runs more requests than its learned capacity, it was not full then. If it runs many
   more (at least one slot), its slots are unknown again.

Until a number is learned the answer is `None`, never 0. Admission uses `guess` instead: `FIRST`
requests, or `GROWTH` times the running requests of a poll that showed no queue. A poll that shows
fewer requests than were sent was taken before the last of them arrived, so it may miss their queue.

Must never: do I/O, or treat an unknown capacity as idle or as full.
"""

from __future__ import annotations

from typing import Final

POLLS: Final = 2  # Polls in a row with a queue and no growth.
POLLS_PREFILL: Final = 5  # The same, if the queue may be prompts that wait for their prefill.
PREFILL_TOKENS: Final = 8192  # The prefill batch of vLLM 0.32. Further tokens wait for a later one.
MUCH_MORE: Final = 1.1  # Factor above the learned capacity from which the slots are unknown again.
STEADY: Final = 0.9  # Share of the peak in these polls. With fewer requests, the load is falling.
# Share of the sent requests. A poll that shows fewer was taken before the last of them arrived.
SHOWN: Final = 0.9
KV_FULL: Final = 0.8  # Share of the cache in use. Above it, waiting requests wait for cache space.
KV_LEAST: Final = 0.02  # Below this share, the estimate of what fits is too uncertain.
SMOOTHING: Final = 0.25  # Weight of one poll in the learned averages.
FIRST: Final = 8.0  # Twice the slots of the smallest engines.
GROWTH: Final = 4.0  # A poll may be a second old. Three polls reach 256 slots.


class LearnedCapacity:
    """The requests that an engine runs at once, learned from its polls."""

    __slots__ = ("_fit", "_full", "_is_sure", "_peak", "_preemptions", "_queued", "guess")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget everything: the engine has restarted, perhaps with other settings."""
        # Running requests while the engine had a queue; None: it never had one.
        self._full: float | None = None
        self._fit: float | None = None  # Requests that would fit into its cache; None: unknown.
        self._is_sure = False  # No later poll has contradicted `_full`.
        self._queued = 0  # Polls in a row that showed a queue and no growth.
        self._peak = 0  # The highest running count in these polls.
        self._preemptions: int | None = None
        self.guess = FIRST  # Requests that may be there while `slots` is None.

    @property
    def requests(self) -> float | None:
        """The learned number of requests; `None` if nothing was learned."""
        if self._full is None or self._fit is None:
            return self._fit if self._full is None else self._full
        return min(self._full, self._fit)

    @property
    def slots(self) -> float | None:
        """The learned number, only if the engine was observed to be full; else `None`."""
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
        there. `sent`: this router's requests in progress there when the poll returned.
        """
        before, self._preemptions = self._preemptions, preemptions
        has_preempted = before is not None and preemptions is not None and preemptions > before
        if running is None or waiting is None:
            self._queued = 0
            return
        if kv_usage is not None and kv_usage >= KV_LEAST and running:
            self._fit = _smoothed(self._fit, running / kv_usage)
        if self._full is not None and running > self._full:
            # A difference below one slot is caused by averaging.
            is_little = running < self._full + 1.0 or running <= MUCH_MORE * self._full
            self._is_sure = self._is_sure and is_little
            self._full = float(running)
        if not waiting:
            if running >= SHOWN * sent:
                self.guess = max(self.guess, GROWTH * running)
            self._queued = 0
            return
        if not running:
            self._queued = 0  # A queue without running requests: the engine hangs.
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
