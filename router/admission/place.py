"""What the queue sees of a replica, and of the fleet it stands in front of.

A place is the fleet's own object, updated in place by leases and polls (`core/lease.py`); the queue
reads it and changes nothing. An unknown fact is None, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from router.core.errors import RouterError


class Place(Protocol):
    """A replica. Compared and hashed as an object, not by what it says."""

    inflight: int  # our attempts under way
    waiting: int  # our attempts without a first content event + foreign ones that wait
    load: int  # the batch: our attempts + foreign ones, running and waiting
    pending_tokens: int  # uncached prompt tokens of our attempts that wait
    foreign_waiting: int
    # Of `waiting`: our attempts that are not streamed, as far as no poll has taken them over, ...
    whole_fresh: int
    whole_fresh_tokens: int
    whole_older: int
    whole_older_tokens: int
    whole_taken: int  # those that one has taken over, ...
    whole_seen: int  # ... and of them those that the last poll saw waiting, which are in `waiting`
    polled_tokens: int  # prompt tokens that the engine was seen to take between two polls
    limit: int  # attempts at once
    polls_heard: int  # that came back, or failed
    kv_usage: float | None  # share of the KV cache in use, when it was last told ...
    kv_running: int  # ... and how many requests ran then; 0: not known
    kv_tokens: int | None  # tokens that fit into it
    cadence_s: float | None  # seconds per output token of the streams that run there now


class Pool(Protocol):
    """The replicas behind one queue."""

    def eligible(self, lane: str) -> Sequence[Place]:
        """Those that are fit for this lane now, whether or not they have room; may be empty."""

    def refusal(self, lane: str) -> RouterError | None:
        """The error for tickets of a lane that no replica will ever serve; None: one may. Asked
        while none is fit for the lane."""

    def absent_since(self, lane: str) -> float:
        """Since when none is fit for this lane; infinity: one is."""

    def serves(self, place: Place, lane: str) -> bool:
        """Whether the place is among them. Asked for every lane that waits: quick."""

    def slots(self, place: Place) -> float | None:
        """Requests its engine runs at once, told or learned; None: nobody knows. Asked again after
        every poll."""

    def guess(self, place: Place) -> float:
        """Where nobody knows: requests that it may be sent before a poll shows what it does with
        them. Asked again after every poll."""

    def is_blind(self, place: Place) -> bool:
        """Whether its engine tells nothing, or nothing that is new enough to be believed. Asked
        again after every poll, whether it told anything or not."""
