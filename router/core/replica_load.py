"""The load of one replica: the counts of leases and polls, which the queue reads.

Each replica has one object, which is updated in place. `core/lease.py` writes the counts of
requests; the fleet table writes the other fields. The class is a base class and not a `Protocol`,
because compiled code reads the fields of a class directly. A protocol costs a dictionary lookup for
every field.

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
        "shared_load",
        "shared_tokens",
        "shared_waiting",
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
        self.limit = UNLIMITED  # Maximum number of attempts in progress.
        # Mean seconds per output token of the running streams; None: no stream runs.
        self.cadence_s: float | None = None
        # The fields `kv_*` are the input of `core/kv_estimate.py`, which updates `kv_usage`.
        # Fraction of the KV cache in use at the engine's last report, 0 to 1; -1: unknown.
        self.kv_reported = -1.0
        self.kv_counted = 0  # Number of requests that held the KV cache at the last report.
        self.kv_scales = False  # True: the engine itself reported `kv_counted`.
        # Number of the router's attempts that were sent after the last report, or that the report
        # does not include.
        self.kv_sent = 0
        self.kv_sent_tokens = 0  # The uncached prompt tokens of the attempts in `kv_sent`.
        # The part of `load` that comes from other clients, running and waiting.
        self.foreign_load = 0
        self.foreign_waiting = 0  # The part of `waiting` that comes from other clients.
        # What other routers have told of their requests (`router/share`): the parts of
        # `foreign_load`, `foreign_waiting` and `pending_tokens` that no poll has to guess.
        self.shared_load = self.shared_waiting = self.shared_tokens = 0
        self.polls = 0  # Number of polls that have begun.
        self.polls_heard = 0  # Number of polls that returned or failed.
        # Number of the attempts in progress of all known routers when the last poll's result was
        # counted.
        self.polled_inflight = 0
        # Estimate of the prompt tokens of unstreamed attempts that the engine prefills between two
        # polls.
        self.polled_tokens = 0
        # Attempts that are not streamed ("whole") have two generations until a poll takes them over
        # (see `core/lease.py`). The fresh generation was sent after `whole_marked_at`, the older
        # generation before that time.
        self.whole_fresh = 0
        self.whole_fresh_tokens = 0
        self.whole_older = 0
        self.whole_older_tokens = 0
        self.whole_turn = 0  # The number of the fresh generation.
        # Time at which the fresh generation began, in monotonic seconds.
        self.whole_marked_at = 0.0
        # Whether the latest poll began at least `SETTLE_S` seconds after `whole_marked_at`.
        self.whole_settled = False
        # Number of whole attempts in progress that a poll has taken over.
        self.whole_taken = 0
        self.whole_seen = 0  # Number of attempts in `whole_taken` that wait at the engine.
