"""Learns how many slots of an engine class batch leaves free, from the TTFT of urgent requests.

An engine serves its own queue in the order of arrival, so an urgent request that is sent to a full
engine waits there for the end of a request. It waits less in the router's queue, where it gets the
first slot that becomes free at any engine, and not at all if a slot is free. Both need engines
whose own queues are short, which costs throughput: the slot of an answer that has ended is unused
until the next step of the engine.

So one number is learned, the *level*, between -1 and 1:

- At -1 the limits of the gates apply, and one batch request may wait for a slot of an engine. This
  is the level while no urgent request is late.
- Between -1 and 0 fewer requests of any class may wait for a slot: `LINED_UP` at -1, none at 0.
- Between 0 and 1 class batch leaves slots free: none at 0, the share `KEPT` of them at 1.

The level follows a quantile (H. Robbins and S. Monro, "A stochastic approximation method", Annals
of Mathematical Statistics 22, 1951): an urgent answer that is late raises it by `STEP`, one that is
in time lowers it by so much less that it is steady while the share `LATE` of the answers is late.
While no urgent answer comes for `QUIET_S`, the level returns to -1.

The functions are pure: `now` (monotonic seconds) is passed in. Must never: keep more than `KEPT` of
the slots, or know how the target was set.
"""

from __future__ import annotations

from math import exp
from typing import Final

LEAST: Final = -1.0
MOST: Final = 1.0
LINED_UP: Final = 3  # requests that may wait for a slot just above the lowest level
KEPT: Final = 0.25  # share of an engine's slots that is free of batch at the highest level
LATE: Final = 0.005  # share of late answers at which the level is steady: half of a p99's
STEP: Final = 0.1
_FALL: Final = STEP * LATE / (1.0 - LATE)
# Seconds without an urgent answer after which the level begins to return, and the time constant of
# the return.
QUIET_S: Final = 60.0
FORGET_S: Final = 300.0
_NO_LIMIT: Final = 1 << 30


class Headroom:
    """The headroom at all replicas of one queue."""

    __slots__ = ("_quiet_at", "level", "lined_up")

    def __init__(self) -> None:
        self.level = LEAST
        # Requests that may wait for a slot of an engine, beyond its slots.
        self.lined_up = _NO_LIMIT
        self._quiet_at = 0.0  # Time from which on the level returns.

    def answered(self, ttft_s: float, target_s: float, now: float, *, is_batch_there: bool) -> None:
        """Learn from the first content of an urgent request.

        `ttft_s`: seconds from its arrival; `target_s`: the goal. `is_batch_there`: batch requests
        are at its replica; a late answer is not due to batch otherwise, and teaches nothing.
        """
        self._quiet_at = now + QUIET_S
        if ttft_s <= target_s:
            self._set(self.level - _FALL)
        elif is_batch_there:
            self._set(self.level + STEP)

    def look(self, now: float) -> None:
        """Lower the level by the time that has passed without an urgent answer."""
        quiet_s = now - self._quiet_at
        if quiet_s > 0.0 and self.level > LEAST:
            self._quiet_at = now
            self._set(LEAST + (self.level - LEAST) * exp(-quiet_s / FORGET_S))

    def most(self, slots: int) -> int:
        """Return the load at which a replica takes no more requests of other classes than batch."""
        return slots + self.lined_up

    def most_batch(self, slots: int) -> int:
        """Return the load at which a replica takes no more requests of class batch; at least 1."""
        if self.level <= 0.0:
            return slots + min(1, self.lined_up)
        return max(1, slots - self.kept(slots))

    def kept(self, slots: int) -> int:
        """Return how many slots of a replica are kept free of batch."""
        return int(self.share * slots + 0.999) if self.level > 0.0 else 0

    @property
    def share(self) -> float:
        """The share of the slots that is kept free of batch."""
        return KEPT * max(0.0, self.level)

    def _set(self, level: float) -> None:
        self.level = max(LEAST, min(MOST, level))
        if self.level < LEAST + 0.5 * STEP:
            self.lined_up = _NO_LIMIT
        else:
            self.lined_up = int(LINED_UP * max(0.0, -self.level) + 0.5)
