"""What `core/lease.py` counts, on an object that is nothing else."""

from __future__ import annotations


class Counted:
    """A holder of leases; every count begins at 0."""

    def __init__(self) -> None:
        self.inflight = self.waiting = self.load = self.pending_tokens = 0
        self.foreign_waiting = self.foreign_load = 0
        self.polls = self.polls_heard = 0
        self.polled_inflight = self.polled_tokens = 0
        self.whole_fresh = self.whole_fresh_tokens = 0
        self.whole_older = self.whole_older_tokens = 0
        self.whole_turn = self.whole_taken = self.whole_seen = 0
        self.whole_marked_at = 0.0
        self.whole_settled = False
