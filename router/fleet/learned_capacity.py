"""Learns how many requests an engine runs at once, from its polls.

The learned number is needed if neither the configuration nor the engine states that number:

1. Running requests hold a share of the KV cache. The number of running requests divided by this
   share is the number that would fill the cache.
2. If an engine has a queue, and its running count does not grow from one poll to the next, the
   running requests are its capacity. One such poll is enough if the KV cache is full or the engine
   has preempted a request. A queue may also consist of prompts that wait for their prefill. So more
   polls are needed if more prompt tokens than one batch wait and the cache has free space. A
   short queue may consist of the requests that came since the last step began, at an engine with
   free slots. So with a short queue the number of running requests must stay exactly the same.
3. If an engine runs more requests than its learned capacity, it was not full then. If it runs many
   more (at least one slot), its slots are unknown again.

Until a number is learned the answer is `None`, never 0. Admission uses `guess` instead: `FIRST`
requests, or `GROWTH` times the running requests of a poll that showed no queue. A poll that shows
fewer requests than were sent was taken before the last of them arrived, so it may miss their queue.

Must never: do I/O, or treat an unknown capacity as idle or as full.
"""

from __future__ import annotations

from typing import Final

# Number of polls in a row, with a queue and no growth of the running requests, that show a full
# engine.
POLLS: Final = 2
# Number of such polls, if the queue may consist of prompts that wait for their prefill.
POLLS_PREFILL: Final = 5
# Number of such polls, if the queue is short.
POLLS_SHORT: Final = 4
# A queue is short if it has fewer requests than this share of the running ones.
SHORT: Final = 0.03
# Tokens of one prefill batch of vLLM 0.32. Further tokens wait for a later batch.
PREFILL_TOKENS: Final = 8192
MUCH_MORE: Final = 1.1  # Factor above the learned capacity from which the slots are unknown again.
# Share of the highest running count in these polls. With fewer running requests, the load is
# falling.
STEADY: Final = 0.9
# Share of the requests that were sent. A poll that shows a smaller share was taken before the last
# request arrived.
SHOWN: Final = 0.9
# Share of the KV cache in use. Above it, waiting requests wait for cache space.
KV_FULL: Final = 0.8
# Share of the KV cache in use below which the estimate of the requests that fit is too uncertain.
KV_LEAST: Final = 0.02
SMOOTHING: Final = 0.25  # Weight of one poll in the learned averages.
FIRST: Final = 8.0  # The guess before the first poll: twice the slots of the smallest engines.
# Factor of the guess per poll, because a poll may be a second old. Three polls reach 256 slots.
GROWTH: Final = 4.0


class LearnedCapacity:
    """The number of requests that an engine runs at once, learned from its polls."""

    __slots__ = ("_fit", "_full", "_is_sure", "_peak", "_preemptions", "_queued", "guess")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget everything: the engine has restarted, perhaps with other settings."""
        # Number of running requests while the engine had a queue; `None`: it never had a queue.
        self._full: float | None = None
        # Number of requests that would fit into the engine's KV cache; `None`: unknown.
        self._fit: float | None = None
        self._is_sure = False  # No later poll has contradicted `_full`.
        # Number of polls in a row that showed a queue and no growth of the running requests.
        self._queued = 0
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
        """The learned number of requests, only if the engine was seen to be full; else `None`."""
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
        if kv_usage is not None and kv_usage >= KV_LEAST and running:
            self._fit = _smoothed(self._fit, running / kv_usage)
        if self._full is not None and running > self._full:
            # A difference of less than one slot is caused by averaging.
            is_little = running < self._full + 1.0 or running <= MUCH_MORE * self._full
            self._is_sure = self._is_sure and is_little
            self._full = float(running)
        if not waiting:
            if running >= SHOWN * sent:
                self.guess = max(self.guess, GROWTH * running)
            self._queued = 0
            return
        if not running:
            self._queued = 0  # A queue without running requests means that the engine hangs.
            return
        has_room = kv_usage is None or kv_usage < KV_FULL
        if (
            self._is_sure
            and self._full is not None
            and 0 < sent <= self._full + 0.5
            and running + waiting <= self._full + 0.5
            and has_room
            and not has_preempted
        ):
            self._queued = 0  # All of them have slots; some wait for the next step.
            return
        is_short = waiting < SHORT * running
        least = float(self._peak) if is_short else STEADY * self._peak
        is_steady = self._queued > 0 and least <= running <= self._peak
        if is_steady:
            self._queued += 1
        else:
            self._queued = 1
            self._peak = running
        needed = POLLS
        if not has_room or has_preempted:
            needed = 1
        elif tokens >= PREFILL_TOKENS:
            needed = POLLS_PREFILL
        elif is_short:
            needed = POLLS_SHORT
        if self._queued >= needed:
            self._full = _smoothed(self._full, running)
            self._is_sure = True


def _smoothed(known: float | None, seen: float) -> float:
    return float(seen) if known is None else known + (seen - known) * SMOOTHING
