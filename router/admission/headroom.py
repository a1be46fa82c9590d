"""Learns how many slots of an engine must stay free of batch, from the TTFT of urgent requests.

An engine serves its own queue in the order of arrival. So an urgent request waits longer at a full
engine than in the router's queue, where it gets the first slot that becomes free at any engine. If
a slot is kept free, it does not wait at all. But free slots cost throughput, and a wait for a slot
at any engine finds fewer cached prefixes. So one number is learned, the *level*, from 0 to 1:

- At level 0, class batch may take every slot, and one more batch request may wait at the engine for
  a slot. Urgent requests may wait there, too.
- Above level 0, urgent requests are sent only to replicas with a free slot. Slots that other
  clients use count as free, because they do not become free for this router; not so those of
  routers that tell of their requests.
- Class batch leaves the share level * `KEPT` of the slots free.

The classes normal and low are not limited (`docs/decisions/class-batch.md` has the reason).

The level is adjusted so that the share `LATE` of the urgent answers is late (H. Robbins and S.
Monro, "A stochastic approximation method", Annals of Mathematical Statistics 22, 1951):

- An answer is late if its first content comes after the share `AIM` of the target time. A late
  answer raises the level by `STEP`; an answer in time lowers it by a much smaller amount.
- A late answer is ignored if its measured time began before the last rise.
- If other routers use the fleet, an answer also stands for the answers that they get meanwhile
  (`gates/peer_load.py`), at most `MOST_ANSWERS`. If they tell their levels (`router/share`), the
  highest level applies in all of them.
- If no urgent answer comes for `QUIET_S` seconds, the level begins to fall to 0.

Only delays that batch requests can cause are counted. The measured time of a request begins when
the limit of its API key no longer blocks it, or when it is sent again after a failed attempt. A
late answer raises the level only if batch requests held slots of the replica at the dispatch, and
if the prefill alone would have been in time.

The functions are pure: `now` (monotonic seconds) is passed in. Must never: keep more than the share
`KEPT` of the slots free, or depend on how the target was set.
"""

from __future__ import annotations

from math import exp
from typing import Final

KEPT: Final = 0.25  # The share of an engine's slots that class batch leaves free at level 1.
AIM: Final = 0.8  # An urgent answer is late after this share of its target time.
# The share of urgent answers that may be late: half of what a target for the p99 allows.
LATE: Final = 0.005
STEP: Final = 0.05
MOST_ANSWERS: Final = 5.0
_FALL: Final = STEP * LATE / (1.0 - LATE)
# After `QUIET_S` seconds without an urgent answer, the level falls exponentially to 0, with a time
# constant of `FORGET_S` seconds.
QUIET_S: Final = 60.0
FORGET_S: Final = 300.0
_REST: Final = STEP / 2.0  # For urgent requests, a level below this counts as 0.
_NO_LIMIT: Final = 1 << 30


class Headroom:
    """Learns the headroom for all replicas of one queue: the slots that class batch leaves free."""

    __slots__ = ("_quiet_at", "_raised_at", "elsewhere", "own")

    def __init__(self) -> None:
        self.own = 0.0  # The level that this router has learned.
        self.elsewhere = 0.0  # The highest level that another router has learned.
        self._quiet_at = 0.0  # Time from which on the level falls to 0.
        self._raised_at = 0.0  # Time at which the level was last raised.

    def answered(
        self,
        took_s: float,
        prefill_s: float,
        target_s: float,
        now: float,
        *,
        is_behind_batch: bool,
        peers: float = 0.0,
    ) -> None:
        """Learn from the first content of an urgent request.

        `took_s`: the seconds in which only the wait for a slot and the prefill delayed the request.
        `prefill_s`: the predicted seconds of the prefill; 0: unknown. `target_s`: the target for
        `took_s`. `is_behind_batch`: whether batch requests held the slots for which the request
        waited. If not, a late answer does not change the level. `peers`: the requests of other
        routers at the replicas, for each request of this router.
        """
        self._quiet_at = now + QUIET_S
        aim_s = AIM * target_s
        answers = min(1.0 + peers, MOST_ANSWERS)
        if took_s <= aim_s:
            self.own = max(0.0, self.own - answers * _FALL)
        elif is_behind_batch and prefill_s <= aim_s and now - took_s >= self._raised_at:
            self._raised_at = now
            self.own = min(1.0, self.own + answers * STEP)

    def look(self, now: float) -> None:
        """Lower the level according to the time that has passed without an urgent answer."""
        quiet_s = now - self._quiet_at
        if quiet_s > 0.0 and self.own > 0.0:
            self._quiet_at = now
            self.own *= exp(-quiet_s / FORGET_S)

    @property
    def level(self) -> float:
        """The level that applies: the highest one of all routers."""
        return max(self.own, self.elsewhere)

    def most_urgent(self, slots: int) -> int:
        """Return the load at which a replica takes no more critical or high requests."""
        return slots if self.level >= _REST else slots + _NO_LIMIT

    def most_batch(self, slots: int) -> int:
        """Return the load at which a replica takes no more batch requests; at least 1."""
        kept = int(self.level * (1.0 + KEPT * slots) + 0.5)
        return max(1, slots + 1 - kept)
