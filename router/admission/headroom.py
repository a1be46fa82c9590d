"""Learns how many slots of an engine class batch leaves free, from the TTFT of urgent requests.

An engine serves its own queue in the order of arrival, so an urgent request that is sent to a full
engine waits there for the end of a request. It waits less in the router's queue, where it gets the
first slot that becomes free at any engine, and not at all if a slot is free. Free slots cost
throughput, and so does the wait for any replica, because it may hold less of the prompt.

So one number is learned, the *level*, between 0 and 1:

- At 0 batch may take every slot, and one more batch request may wait at the engine for a slot.
  Urgent requests may wait there, too. This is the level while no urgent request is late.
- Above 0 urgent requests are sent only to replicas with a free slot.
- At 1 batch leaves the share `KEPT` of the slots free; in between, a part of it.

Other classes than critical, high and batch are not limited: measured in `hedgerow bench priority`,
the wait of every class for a free slot cost 5 % more of the throughput, because prefix hits fell.

The level follows a quantile (H. Robbins and S. Monro, "A stochastic approximation method", Annals
of Mathematical Statistics 22, 1951): an urgent answer that is late raises it by `STEP`, one that is
in time lowers it by so much less that it is steady while the share `LATE` of the answers is late. A
late request that became eligible before the last rise teaches nothing, because the rise could not
help it. Late means later than the share `AIM` of the target. While no urgent answer comes for
`QUIET_S`, the level returns to 0.

Only waits that batch can cause are counted. The time begins when only a slot or the prefill can
still delay the request: when its key's limit does not block it any more, and when it is sent again
after a failed attempt. A late answer raises the level only if batch held the slots of its replica
when it was sent, and if its prefill alone would have been in time.

The functions are pure: `now` (monotonic seconds) is passed in. Must never: keep more than `KEPT` of
the slots, or know how the target was set.
"""

from __future__ import annotations

from math import exp
from typing import Final

KEPT: Final = 0.25  # share of an engine's slots that is free of batch at level 1
AIM: Final = 0.8  # share of the target that is aimed at
LATE: Final = 0.005  # share of late answers at which the level is steady; a p99 has 0.01
STEP: Final = 0.05
_FALL: Final = STEP * LATE / (1.0 - LATE)
# Seconds without an urgent answer after which the level begins to return, and the time constant of
# the return.
QUIET_S: Final = 60.0
FORGET_S: Final = 300.0
_REST: Final = STEP / 2.0  # a lower level counts as 0
_NO_LIMIT: Final = 1 << 30


class Headroom:
    """The headroom at all replicas of one queue."""

    __slots__ = ("_quiet_at", "_raised_at", "level")

    def __init__(self) -> None:
        self.level = 0.0
        self._quiet_at = 0.0  # Time from which on the level returns.
        self._raised_at = 0.0  # Time of the last rise.

    def answered(
        self,
        took_s: float,
        prefill_s: float,
        target_s: float,
        now: float,
        *,
        is_behind_batch: bool,
    ) -> None:
        """Learn from the first content of an urgent request.

        `took_s`: seconds since only a slot or the prefill could delay it. `prefill_s`: the
        predicted seconds of the prefill; 0: unknown. `target_s`: the goal. `is_behind_batch`: batch
        requests held slots that it waited for. Otherwise a late answer teaches nothing.
        """
        self._quiet_at = now + QUIET_S
        aim_s = AIM * target_s
        if took_s <= aim_s:
            self.level = max(0.0, self.level - _FALL)
        elif is_behind_batch and prefill_s <= aim_s and now - took_s >= self._raised_at:
            self._raised_at = now
            self.level = min(1.0, self.level + STEP)

    def look(self, now: float) -> None:
        """Lower the level by the time that has passed without an urgent answer."""
        quiet_s = now - self._quiet_at
        if quiet_s > 0.0 and self.level > 0.0:
            self._quiet_at = now
            self.level *= exp(-quiet_s / FORGET_S)

    def most_urgent(self, slots: int) -> int:
        """Return the load at which a replica takes no more critical or high requests."""
        return slots if self.level >= _REST else slots + _NO_LIMIT

    def most_batch(self, slots: int) -> int:
        """Return the load at which a replica takes no more batch requests; at least 1."""
        kept = int(self.level * (1.0 + KEPT * slots) + 0.5)
        return max(1, slots + 1 - kept)
