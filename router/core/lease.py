"""Counts the load of a replica: the router's own attempts, and the other requests that a poll
shows.

A lease is the right to one slot at a replica. The lease is taken when the replica is chosen, and
released exactly once: only the first call of `release` has an effect. The lease is taken before the
request is sent, so that the requests of one burst do not all choose the same replica.

An engine's gauges lag: vLLM 0.32 shows a request 0.5 to 1 s after it was sent. So a poll shortly
after a request was sent does not include it. The state of the router's own attempts therefore has
two sources. The router sees the first event of a stream itself. An attempt that is not streamed
("whole") shows nothing until it ends, so the gauges describe it as soon as they can include it.

Rules for the waiting requests at a replica:

1. An own stream waits from its choice until its first content event (`begun`).
2. A whole attempt is unseen, and counts as waiting, until it ends or until a poll takes it over. A
   poll takes over the attempts that were sent at least `SETTLE_S` before the poll began.
3. The gauges give the number of waiting attempts among those taken over. This number is the number
   of requests that wait at the engine, less the router's own attempts that are known to wait, plus
   the router's own attempts that the gauges do not show.
4. An attempt that ends after it ran frees a place in the engine's batch, so one attempt that waits
   by rule 3 begins. The count therefore falls between two polls.
5. Foreign load is the number of requests that a poll counted beyond the router's own attempts, now
   or at the poll before (lagging gauges include requests that have just ended). The foreign load
   stays until the next poll, or until the signals are too old. The foreign waiting requests never
   exceed the foreign load.
6. No count is ever negative. With no lease and no foreign load, every count is 0.

Every step is O(1). Must never: do I/O, or read a clock.
"""

from __future__ import annotations

from typing import Final

from router.core.kv_estimate import renew_kv
from router.core.replica_load import ReplicaLoad

# Seconds until the gauges of vLLM 0.32 show a sent request: at most 1 s, plus the network delay.
SETTLE_S: Final = 1.2


class Lease:
    """One slot at a replica. Creating the lease takes the slot."""

    __slots__ = ("_holder", "_light", "_streamed", "_tokens", "_turn", "_waits")

    def __init__(
        self, holder: ReplicaLoad, tokens: int = 0, streamed: bool = True, light: bool = False
    ) -> None:
        """`tokens`: the tokens of the prompt that the replica does not hold in its cache. `light`:
        the attempt uses no GPU, so only `inflight` counts it."""
        self._holder: ReplicaLoad | None = holder
        self._tokens = tokens
        self._streamed = streamed
        self._waits = not light
        self._light = light
        self._turn = 0
        holder.inflight += 1
        if light:
            return
        holder.waiting += 1
        holder.load += 1
        holder.pending_tokens += tokens
        holder.kv_sent += 1
        holder.kv_sent_tokens += tokens
        if holder.kv_reported >= 0.0:
            renew_kv(holder)
        if not streamed:
            self._turn = holder.whole_turn
            holder.whole_fresh += 1
            holder.whole_fresh_tokens += tokens

    @property
    def held(self) -> bool:
        return self._holder is not None

    def begun(self) -> None:
        """Record the first content event: the attempt no longer counts as waiting."""
        holder = self._holder
        if holder is None or not self._waits:
            return
        self._waits = False
        if not self._streamed:
            age = holder.whole_turn - self._turn
            if age == 0:
                holder.whole_fresh -= 1
                holder.whole_fresh_tokens -= self._tokens
            elif age == 1:
                holder.whole_older -= 1
                holder.whole_older_tokens -= self._tokens
            else:
                holder.whole_taken -= 1
                _one_begins(holder)
                return
            _one_begins(holder)
        holder.waiting -= 1
        holder.pending_tokens -= self._tokens

    def release(self) -> None:
        holder = self._holder
        if holder is None:
            return
        if self._waits:
            self.begun()
        elif self._streamed and holder.whole_seen and not self._light:
            _one_begins(holder)
        self._holder = None
        holder.inflight -= 1
        if not self._light:
            holder.load -= 1
            if holder.kv_reported >= 0.0:
                renew_kv(holder)


def _one_begins(slots: ReplicaLoad) -> None:
    """Record that a place in the engine's batch is free (rule 4)."""
    if slots.whole_seen:
        slots.whole_seen -= 1
        slots.waiting -= 1


def poll_begins(slots: ReplicaLoad, now: float) -> int:
    """Begin a poll. Returns the poll's number, which `poll_counted` needs."""
    slots.polls += 1
    slots.whole_settled = now - slots.whole_marked_at >= SETTLE_S
    return slots.polls


def poll_failed(slots: ReplicaLoad) -> None:
    """End a poll that gave no result."""
    slots.polls_heard += 1


def poll_counted(
    slots: ReplicaLoad, number: int, running: int | None, waiting: int | None, now: float
) -> None:
    """Take the result of a poll. `running`, `waiting`: requests of all clients at the engine;
    `None` if not reported.

    Polls of one replica must not overlap. The answer to an earlier poll takes over no attempts.
    """
    slots.polls_heard += 1
    if waiting is None and running is None:
        _foreign(slots, 0, 0)
        return
    there = (running or 0) + (waiting or 0)
    if slots.whole_settled and number == slots.polls:
        _take_over(slots, waiting or 0, now)
    # The router's own attempts that are known to wait, or that no poll has shown yet.
    own_waiting = slots.waiting - slots.foreign_waiting - slots.whole_seen
    more_waiting = max(0, (waiting or 0) - own_waiting)
    missing = 0
    if waiting is not None and running is not None:
        missing = max(0, slots.inflight - own_waiting - there)
    seen = min(slots.whole_taken, more_waiting + missing)
    foreign_load = max(0, there - max(slots.inflight, slots.polled_inflight))
    foreign_waiting = max(0, more_waiting - seen)
    if running is not None:
        foreign_waiting = min(foreign_waiting, foreign_load)
    slots.waiting += seen - slots.whole_seen
    slots.whole_seen = seen
    slots.polled_inflight = slots.inflight
    _foreign(slots, foreign_waiting, foreign_load)


def signals_lost(slots: ReplicaLoad) -> None:
    """Discard the last poll, because it is too old: only the router's own attempts count."""
    _foreign(slots, 0, 0)


def _take_over(slots: ReplicaLoad, waiting: int, now: float) -> None:
    """Let the gauges describe the older whole attempts; the fresh generation becomes the older."""
    tokens = slots.whole_older_tokens
    slots.waiting -= slots.whole_older
    slots.pending_tokens -= tokens
    slots.whole_taken += slots.whole_older
    # If no request waits at the engine, it has prefilled these tokens since the last poll.
    slots.polled_tokens //= 2
    if not waiting:
        slots.polled_tokens = max(slots.polled_tokens, tokens)
    slots.whole_older = slots.whole_fresh
    slots.whole_older_tokens = slots.whole_fresh_tokens
    slots.whole_fresh = slots.whole_fresh_tokens = 0
    slots.whole_turn += 1
    slots.whole_marked_at = now
    slots.whole_settled = False


def _foreign(slots: ReplicaLoad, waiting: int, load: int) -> None:
    slots.waiting += waiting - slots.foreign_waiting
    slots.foreign_waiting = waiting
    slots.load += load - slots.foreign_load
    slots.foreign_load = load
    if slots.kv_reported >= 0.0:
        renew_kv(slots)
