"""Counts the load of a replica: the router's own attempts, and the other requests that a poll
reports.

A lease is the right to one slot at a replica. An attempt takes its lease when its replica is
chosen, and releases it exactly once: only the first call of `release` has an effect. The lease is
taken before the request is sent, so that the requests of a burst do not all choose the same
replica.

An engine's gauges lag: vLLM 0.32 reports a request 0.5 to 1 s after it was sent. So a poll shortly
after a request was sent does not include that request. Therefore the router itself observes its
streams: it sees the first event of each stream. An attempt that is not streamed ("whole") shows
nothing until it ends. So the gauges determine whether it waits, as soon as they can include it.

Rules for the waiting requests at a replica:

1. A stream of the router waits from the choice of its replica until its first content event
   (`begun`).
2. A whole attempt counts as waiting until it ends or until a poll takes it over. A poll takes over
   the attempts that were sent at least `SETTLE_S` seconds before the poll began. From then on rule
   3 determines whether they wait.
3. The number of waiting attempts among those taken over is computed from the gauges. It is the
   number of requests that wait at the engine, minus the router's attempts that are known to wait,
   plus the router's attempts that the gauges do not report.
4. When an attempt ends that had run, it frees a slot of the engine. So one attempt that waits by
   rule 3 begins to run, and the count of rule 3 falls between two polls.
5. The foreign load is the number of requests of other clients. It is the number of requests that
   the engine reports, minus the router's attempts now or at the poll before, whichever are more:
   lagging gauges include requests that have just ended. It stays until the next poll, or until the
   last poll is too old. The foreign waiting requests never exceed the foreign load.
6. Other routers may tell of their requests (`router/share`). Those are foreign load that is known
   without a poll: they count as the router's own attempts in rules 3 and 5, which find the rest.
7. No count is ever negative. With no lease and no foreign load, every count is 0.

Every operation is O(1). Must never: do I/O, or read a clock.
"""

from __future__ import annotations

from typing import Final

from router.core.kv_estimate import renew_kv
from router.core.replica_load import ReplicaLoad

# Seconds until the gauges of vLLM 0.32 include a sent request: at most 1 s, plus network delay.
SETTLE_S: Final = 1.2


class Lease:
    """One slot at a replica. Creating the lease takes the slot."""

    __slots__ = ("_holder", "_light", "_streamed", "_turn", "_waits", "tokens")

    def __init__(
        self, holder: ReplicaLoad, tokens: int = 0, streamed: bool = True, light: bool = False
    ) -> None:
        """`tokens` is the number of prompt tokens that the replica does not have in its cache.

        A `light` attempt uses no GPU, so only `inflight` counts it.
        """
        self._holder: ReplicaLoad | None = holder
        self.tokens = tokens
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
                holder.whole_fresh_tokens -= self.tokens
            elif age == 1:
                holder.whole_older -= 1
                holder.whole_older_tokens -= self.tokens
            else:
                holder.whole_taken -= 1
                _one_begins(holder)
                return
            _one_begins(holder)
        holder.waiting -= 1
        holder.pending_tokens -= self.tokens

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
    """Record that a slot of the engine became free, so that a waiting attempt runs (rule 4)."""
    if slots.whole_seen:
        slots.whole_seen -= 1
        slots.waiting -= 1


def poll_begins(slots: ReplicaLoad, now: float) -> int:
    """Begin a poll. Returns the poll's number, which `poll_counted` needs."""
    slots.polls += 1
    slots.whole_settled = now - slots.whole_marked_at >= SETTLE_S
    return slots.polls


def poll_failed(slots: ReplicaLoad) -> None:
    slots.polls_heard += 1


def poll_counted(
    slots: ReplicaLoad, number: int, running: int | None, waiting: int | None, now: float
) -> None:
    """Update the counts with the result of a poll.

    `running` and `waiting` are the numbers of requests of all clients at the engine; `None` if the
    engine does not report them. Polls of one replica must not overlap. The answer to a poll that is
    not the latest takes over no attempts.
    """
    slots.polls_heard += 1
    shared_waiting, shared_load = slots.shared_waiting, slots.shared_load
    if waiting is None and running is None:
        _foreign(slots, shared_waiting, shared_load)
        return
    there = (running or 0) + (waiting or 0)
    if slots.whole_settled and number == slots.polls:
        _take_over(slots, waiting or 0, now)
    known = slots.inflight + shared_load
    # The attempts that are known to wait, or that no poll has taken over yet.
    own_waiting = slots.waiting - slots.foreign_waiting + shared_waiting - slots.whole_seen
    more_waiting = max(0, (waiting or 0) - own_waiting)
    missing = 0
    if waiting is not None and running is not None:
        missing = max(0, known - own_waiting - there)
    seen = min(slots.whole_taken, more_waiting + missing)
    foreign_load = max(0, there - max(known, slots.polled_inflight))
    foreign_waiting = max(0, more_waiting - seen)
    if running is not None:
        foreign_waiting = min(foreign_waiting, foreign_load)
    slots.waiting += seen - slots.whole_seen
    slots.whole_seen = seen
    slots.polled_inflight = known
    _foreign(slots, shared_waiting + foreign_waiting, shared_load + foreign_load)


def signals_lost(slots: ReplicaLoad) -> None:
    """Discard the last poll, because it is too old. Only the known routers' attempts count then."""
    _foreign(slots, slots.shared_waiting, slots.shared_load)


def others_counted(slots: ReplicaLoad, waiting: int, load: int, tokens: int) -> None:
    """Update the sums of what other routers have told of their requests at the replica (rule 6)."""
    more_waiting = waiting - slots.shared_waiting
    more_load = load - slots.shared_load
    slots.pending_tokens += tokens - slots.shared_tokens
    slots.shared_waiting, slots.shared_load, slots.shared_tokens = waiting, load, tokens
    _foreign(slots, slots.foreign_waiting + more_waiting, slots.foreign_load + more_load)


def _take_over(slots: ReplicaLoad, waiting: int, now: float) -> None:
    """Take over the older generation of whole attempts (see `ReplicaLoad.whole_fresh`).

    The fresh generation becomes the older one. `waiting` is the number of requests that wait at the
    engine.
    """
    tokens = slots.whole_older_tokens
    slots.waiting -= slots.whole_older
    slots.pending_tokens -= tokens
    slots.whole_taken += slots.whole_older
    # If no request waits at the engine, the engine has prefilled the tokens of these attempts.
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
