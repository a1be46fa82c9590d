"""Load as the router counts it: what it has sent and not got back, and what a poll says of others.

A lease is the right to a slot at a replica: taken when the choice is made, given back exactly once.
Counting at the choice, not when the request is sent, is what keeps a burst from going to one place;
`release` may be called from every path on which an attempt can end, and only the first one counts.

Rules of what waits at a replica:
1. An own attempt waits from its choice until its first content event (`begun`).
2. One that is not streamed shows nothing until it is whole: it waits until then, or until a poll
   that began after it was sent, because that poll's own figures include it.
3. Foreign load is what a poll counted beyond our own attempts of that moment. It stays until the
   next poll, or until the signals are too old to be believed.
4. Nothing here is ever negative, and with no lease and no foreign load everything is 0.

Must never: import anything of ours, or know what a replica is.
"""

from __future__ import annotations

from typing import Protocol


class Slots(Protocol):
    """What is counted per replica. The first four are what policies see."""

    inflight: int  # own attempts under way
    waiting: int  # own ones that wait (rules 1 and 2) + foreign ones that wait
    load: int  # own attempts under way + foreign ones, running and waiting
    pending_tokens: int  # uncached prompt tokens of own attempts that wait
    foreign_waiting: int
    foreign_load: int
    polls: int  # polls begun so far
    polls_seen: int  # the number of the last poll that came back
    whole_fresh: int  # whole (not streamed) attempts waiting, sent since the last poll began ...
    whole_fresh_tokens: int
    whole_older: int  # ... and before it began
    whole_older_tokens: int


class Lease:
    """One slot. Making it takes the slot."""

    __slots__ = ("_holder", "_poll", "_streamed", "_tokens", "_waits")

    def __init__(self, holder: Slots, tokens: int = 0, streamed: bool = True) -> None:
        """`tokens`: the prompt's, without those that the replica holds in its cache."""
        self._holder: Slots | None = holder
        self._tokens = tokens
        self._streamed = streamed
        self._waits = True
        self._poll = holder.polls
        holder.inflight += 1
        holder.waiting += 1
        holder.load += 1
        holder.pending_tokens += tokens
        if not streamed:
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
            if self._poll == holder.polls:
                holder.whole_fresh -= 1
                holder.whole_fresh_tokens -= self._tokens
            elif self._poll >= holder.polls_seen:
                holder.whole_older -= 1
                holder.whole_older_tokens -= self._tokens
            else:
                return  # a poll has taken it over already
        holder.waiting -= 1
        holder.pending_tokens -= self._tokens

    def release(self) -> None:
        if self._holder is None:
            return
        self.begun()
        holder, self._holder = self._holder, None
        holder.inflight -= 1
        holder.load -= 1


def poll_begins(slots: Slots) -> int:
    """A poll is being sent; the number to give back with its answer."""
    slots.polls += 1
    slots.whole_older += slots.whole_fresh
    slots.whole_older_tokens += slots.whole_fresh_tokens
    slots.whole_fresh = slots.whole_fresh_tokens = 0
    return slots.polls


def poll_counted(slots: Slots, number: int, running: int | None, waiting: int | None) -> None:
    """A poll came back: `running` and `waiting` at the engine, everybody's (None: it did not say).

    Polls of one replica must not overlap.
    """
    if waiting is not None or running is not None:
        slots.polls_seen = number
        slots.waiting -= slots.whole_older
        slots.pending_tokens -= slots.whole_older_tokens
        slots.whole_older = slots.whole_older_tokens = 0
    own_waiting = slots.waiting - slots.foreign_waiting
    foreign_waiting = max(0, (waiting or 0) - own_waiting)
    # Whole attempts that wait at the engine are in `foreign_waiting` now and in `inflight`: once.
    foreign_load = max(0, (running or 0) + (waiting or 0) - slots.inflight)
    _foreign(slots, foreign_waiting, foreign_load)


def signals_lost(slots: Slots) -> None:
    """The last poll is too old to be believed: only what we have sent ourselves counts."""
    _foreign(slots, 0, 0)


def _foreign(slots: Slots, waiting: int, load: int) -> None:
    slots.waiting += waiting - slots.foreign_waiting
    slots.foreign_waiting = waiting
    slots.load += load - slots.foreign_load
    slots.foreign_load = load
