"""Load as the router counts it: what it has sent and not got back, and what a poll says of others.

A lease is the right to a slot at a replica: taken when the choice is made, given back exactly once.
Counting at the choice, not when the request is sent, is what keeps a burst from going to one place;
`release` may be called again: only the first call counts.

An engine's gauges lag: vLLM 0.32 shows what was sent 0.5 to 1 s ago, so a poll that is later than a
send does not include it. What is known of an own attempt therefore has two sources. A stream tells
by itself when it begins. An attempt that is not streamed ("whole") shows nothing until it ends, and
is left to the gauges only when they can include it.

Rules of what waits at a replica:
1. An own stream waits from its choice until its first content event (`begun`).
2. A whole attempt is unseen, and waits, until it ends or until a poll takes it over. A poll takes
   over the attempts that were sent at least `SETTLE_S` before it began.
3. Of the attempts that were taken over, so many wait as the gauges say: the requests that wait at
   the engine beyond the own ones that are known to wait, and the own ones that the gauges miss.
4. An attempt that ends after it ran frees a place in the engine's batch: one that waits by rule 3
   begins. So the count falls between two polls.
5. Foreign load is what a poll counted beyond our own attempts, now or at the poll before: requests
   that have just ended stand in lagging gauges. It stays until the next poll, or until the signals
   are too old to be believed. What waits of it is no more than what is there of it.
6. Nothing here is ever negative, and with no lease and no foreign load everything is 0.

Every step is O(1). Must never: do I/O, or look at a clock.
"""

from __future__ import annotations

from typing import Final

from router.core.kv_estimate import renew_kv
from router.core.replica_load import ReplicaLoad

SETTLE_S: Final = 1.2  # until vLLM 0.32's gauges show what was sent: 1 s at most, and its way


class Lease:
    """One slot. Making it takes the slot."""

    __slots__ = ("_holder", "_light", "_streamed", "_tokens", "_turn", "_waits")

    def __init__(
        self, holder: ReplicaLoad, tokens: int = 0, streamed: bool = True, light: bool = False
    ) -> None:
        """`tokens`: the prompt's, without those that the replica holds in its cache. `light`: it
        uses no GPU, so that only `inflight` counts it."""
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
        """The first content event is here: the attempt waits no longer."""
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
    """A place in the engine's batch is free (rule 4)."""
    if slots.whole_seen:
        slots.whole_seen -= 1
        slots.waiting -= 1


def poll_begins(slots: ReplicaLoad, now: float) -> int:
    """A poll is being sent; the number to give back with its answer."""
    slots.polls += 1
    slots.whole_settled = now - slots.whole_marked_at >= SETTLE_S
    return slots.polls


def poll_failed(slots: ReplicaLoad) -> None:
    """A poll told nothing."""
    slots.polls_heard += 1


def poll_counted(
    slots: ReplicaLoad, number: int, running: int | None, waiting: int | None, now: float
) -> None:
    """A poll came back: `running` and `waiting` at the engine, everybody's (None: it did not say).

    Polls of one replica must not overlap; the answer to an earlier one takes nothing over.
    """
    slots.polls_heard += 1
    if waiting is None and running is None:
        _foreign(slots, 0, 0)
        return
    there = (running or 0) + (waiting or 0)
    if slots.whole_settled and number == slots.polls:
        _take_over(slots, waiting or 0, now)
    # Own attempts that are known to wait, or unseen.
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
    """The last poll is too old to be believed: only what we have sent ourselves counts."""
    _foreign(slots, 0, 0)


def _take_over(slots: ReplicaLoad, waiting: int, now: float) -> None:
    """Whole attempts of the older generation are what the gauges say; the fresh one becomes it."""
    tokens = slots.whole_older_tokens
    slots.waiting -= slots.whole_older
    slots.pending_tokens -= tokens
    slots.whole_taken += slots.whole_older
    # As much as this was prefilled in the meantime, unless the engine still has a queue.
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
