"""What the engine of one replica reports when it is polled.

The requests that should have hit the prefix cache are counted here, because only the hits that the
engine reports show whether its cache was reset.
"""

from __future__ import annotations

from typing import Final

from router.core.replica_load import ReplicaLoad
from router.fleet.signals import NO_SIGNALS

# If this many requests miss the prefix cache although their prefixes should be in it, the engine
# has reset the cache. A single request may miss because its blocks were evicted.
MISSES: Final = 3


class Reports:
    """The reported signals of one replica. Times are monotonic seconds.

    `table/poll_results.py` writes it, and `monitor/signal_changes.py` writes `apart` for it.
    `driver/request_end.py` counts the expected hits. Whoever makes a replica calls `await_polls`.
    """

    __slots__ = (
        "_doubted_hits",
        "_expected_hits",
        "_hit_seen_at",
        "apart",
        "at",
        "idle_since",
        "is_still",
        "last",
        "polls_awaited",
        "signals",
        "since",
    )

    def __init__(self) -> None:
        self.signals = NO_SIGNALS
        self.at = 0.0  # When `signals` and `last` were read.
        # The last reported signals. These signals stay here when they are too old; `signals` is
        # then reset.
        self.last = NO_SIGNALS
        # When the last signals were first reported, and the last poll at which the router had
        # requests there. True: the signals stand still, so they show no load; see `credible`.
        self.since = self.idle_since = 0.0
        self.is_still = False
        # How many more polls may fail before the engine is treated as one without metrics.
        self.polls_awaited = 0
        # Replicas whose engine has the same start time, but is proven to be another engine.
        # `monitor/signal_changes.py` fills it, called by the writer.
        self.apart: set[ReplicaLoad] = set()
        # Number of requests that should have hit the prefix cache, and that ended since the last
        # hit.
        self._expected_hits = 0
        # Time of the poll that showed the last prefix-cache hit. The hit belongs to a request sent
        # before that time.
        self._hit_seen_at = 0.0
        self._doubted_hits = 0  # The value of `_expected_hits` at the previous poll.

    def await_polls(self, count: int) -> None:
        """Treat the engine as one with metrics until `count` polls have failed."""
        self.polls_awaited = count

    def repeated(self, at: float) -> None:
        """Note that a poll has returned the same signals."""
        self.at = at

    def should_have_hit(self, sent_at: float) -> None:
        """Count a request that ended well and was sent at `sent_at`, when its prefix seemed to be
        cached at this replica.

        Engines report a prefix cache hit when its request begins. So a request that was sent before
        the poll with the last new hit is not counted: the hit may be its own, even if the request
        ends much later.
        """
        if sent_at > self._hit_seen_at:
            self._expected_hits += 1

    def misses_cache(self, before: int | None, now: int | None, at: float) -> bool:
        """Return whether the engine's prefix cache must have been reset.

        The cache must have been reset if `MISSES` requests that should have been hits have ended,
        one more poll has passed (counters may lag), and none of these requests was a hit. `before`,
        `now`: the engine's hit totals at the previous poll and at the poll of time `at`. An engine
        that never had a hit may have no prefix cache. No engine reports a cache reset by a counter.
        """
        if not before or now != before:
            self._expected_hits = self._doubted_hits = 0
            self._hit_seen_at = at
            return False
        if self._doubted_hits < MISSES:
            self._doubted_hits = self._expected_hits
            return False
        self._expected_hits = self._doubted_hits = 0
        return True
