"""The load of one replica: the counts of leases and polls, which the queue and its gates read.

There is one object per replica, updated in place. `core/lease.py` writes its counts; the fleet
table writes the rest. It is a base class and not a `Protocol`, so that compiled code reads each
field directly: a protocol costs a dictionary lookup for every field.

Must never: make decisions, do I/O, or read a clock.
"""

from __future__ import annotations

import sys

from mypy_extensions import mypyc_attr

from policies.facts import Candidate

UNLIMITED = sys.maxsize


@mypyc_attr(allow_interpreted_subclasses=True)
class ReplicaLoad(Candidate):
    """The counts of one replica; each count begins at 0.

    Objects are compared and hashed by identity.
    """

    __slots__ = (
        "cadence_s",
        "foreign_load",
        "foreign_waiting",
        "kv_counted",
        "kv_reported",
        "kv_scales",
        "kv_sent",
        "kv_sent_tokens",
        "limit",
        "polled_inflight",
        "polled_tokens",
        "polls",
        "polls_heard",
        "whole_fresh",
        "whole_fresh_tokens",
        "whole_marked_at",
        "whole_older",
        "whole_older_tokens",
        "whole_seen",
        "whole_settled",
        "whole_taken",
        "whole_turn",
    )

    def __init__(self, id: str, *, weight: float = 1.0) -> None:
        super().__init__(id, weight=weight)
        self.limit = UNLIMITED  # Maximum of attempts in progress.
        # Mean seconds per output token of the running streams; None: no stream runs.
        self.cadence_s: float | None = None
        # The input of `core/kv_estimate.py`, which keeps `kv_usage` up to date.
        self.kv_reported = -1.0  # KV cache share in use by the last report, 0 to 1; -1: unknown.
        self.kv_counted = 0  # Requests that held the KV cache at the last report.
        self.kv_scales = False  # Whether the engine reported `kv_counted`.
        # Own attempts that the engine's last report does not include, or that were sent since.
        self.kv_sent = 0
        self.kv_sent_tokens = 0  # The uncached prompt tokens of the attempts in `kv_sent`.
        # The part of `load` that comes from other clients, running and waiting.
        self.foreign_load = 0
        self.foreign_waiting = 0  # The part of `waiting` that comes from other clients.
        self.polls = 0  # Polls that have begun.
        self.polls_heard = 0  # Polls that returned or failed.
        self.polled_inflight = 0  # Own attempts in progress when the last poll was counted.
        # Prompt tokens of whole attempts that the engine prefilled between two polls.
        self.polled_tokens = 0
        # Attempts that are not streamed ("whole") and that no poll has taken over form two
        # generations. The fresh generation was sent after `whole_marked_at`, the older one before
        # it.
        self.whole_fresh = 0
        self.whole_fresh_tokens = 0
        self.whole_older = 0
        self.whole_older_tokens = 0
        self.whole_turn = 0  # The number of the fresh generation.
        # Time at which the fresh generation began, in monotonic seconds.
        self.whole_marked_at = 0.0
        # Whether the current poll began at least `SETTLE_S` after `whole_marked_at`.
        self.whole_settled = False
        self.whole_taken = 0  # Whole attempts in progress that a poll has taken over.
        self.whole_seen = 0  # The attempts in `whole_taken` that wait at the engine.
