"""One replica: what a policy sees of it, and everything else the router knows.

The fleet table owns these objects and is the only one to change them, apart from what leases and
polls count (`core/replica_load.py`) and from `descriptor`, which prober and poller find out. A
replica removed from the fleet lives on until its last lease is released.
"""

from __future__ import annotations

from typing import Any

from router.config.address import parse_replica_url
from router.config.model import Health as HealthRules
from router.config.model import Replica as Config
from router.core.progress import SMOOTHING, Progress
from router.core.replica_load import UNLIMITED, ReplicaLoad
from router.fleet.cadence import Cadence
from router.fleet.engines.common.descriptor import Engine
from router.fleet.engines.common.registry import engine_of
from router.fleet.health import Health
from router.fleet.learned_capacity import LearnedCapacity
from router.fleet.listed import served
from router.fleet.signals import NO_SIGNALS
from router.wire.pool import Pool
from router.wire.sweep import NEVER

MISSES = 3  # requests; one may find its blocks evicted


class Replica(ReplicaLoad):
    """A replica of the fleet."""

    __slots__ = (
        "_doubted_hits",
        "_pool",
        "adapters",
        "address",
        "apart",
        "asked_at",
        "base_path",
        "before_trial",
        "by_priority",
        "cadence",
        "checks_keys",
        "config",
        "descriptor",
        "expected_hits",
        "health",
        "hit_seen_at",
        "host_line",
        "is_unlisted",
        "learned",
        "listed",
        "low_first",
        "max_inflight",
        "metrics_on",
        "models",
        "objects",
        "polls_awaited",
        "priority_told",
        "progress",
        "refuses_priority",
        "removed",
        "served",
        "signals",
        "signals_at",
        "told",
    )

    def __init__(self, config: Config, rules: HealthRules, pool: Pool | None) -> None:
        """`pool`: its connections; None where there are none, as in a simulation."""
        super().__init__(config.id, weight=config.weight)
        self.config = config
        self.address = parse_replica_url(config.url)
        self.host_line = b"host: " + self.address.authority.encode("ascii")
        self.base_path = self.address.base_path.encode("ascii")
        self._pool = pool
        self.health = Health(rules)
        self.max_inflight = UNLIMITED if config.max_inflight is None else config.max_inflight
        self.limit = self.max_inflight
        self.before_trial = 0  # attempts under way that were sent before a half-open trial
        self.progress = Progress()
        self.listed: frozenset[str] | None = None  # its own list of models, as it told it last
        self.adapters: frozenset[str] = frozenset()  # those of the list that are adapters
        # None: not known, either because no probe has come back or because it lists none.
        self.models: frozenset[str] | None = served(config, None)
        self.is_unlisted = False  # its models are not known, and those of others are
        self.objects: dict[str, dict[str, Any]] = {}  # model -> its entry of /v1/models
        self.removed = False
        self.served = 0  # attempts that went well
        self.polls_awaited = 0  # so many may fail before its engine is one that tells nothing
        # What the engine said last, and when (monotonic seconds).
        self.descriptor: Engine = engine_of(config.engine)  # everything about its engine
        self.signals = NO_SIGNALS
        self.signals_at = 0.0
        self.asked_at = 0.0  # when the poll was asked that is under way, or was the last
        self.apart: set[Replica] = set()  # started at the same moment, and surely another engine
        self.checks_keys = False  # its engine has answered 401 for want of a good API key
        # Of its engine's scheduling; None: it does not tell.
        self.by_priority: bool | None = None  # it goes by priorities, ...
        self.low_first: bool | None = None  # ... lower numbers first
        self.metrics_on: bool | None = None  # it has Prometheus metrics
        self.refuses_priority = False  # it has said that it knows none
        self.priority_told = b""  # the last number that it was told of a request
        self.told = NO_SIGNALS  # the same, kept when it is too old to be believed
        # Requests that ended since the last hit in the prefix cache, and should have hit it.
        self.expected_hits = 0
        self.hit_seen_at = 0.0  # when a poll showed that hit; it is of a request sent before
        self._doubted_hits = 0  # ... as of the poll before
        self.learned = LearnedCapacity()
        self.cadence = Cadence()  # counted by the streams that are relayed from it

    def adopt(self, config: Config, rules: HealthRules) -> None:
        """The same replica with other settings; what is known of it stays."""
        if config.engine is not None:
            self.engine = config.engine
        if config.priority != self.config.priority:
            self.refuses_priority = False  # whoever changed that knows better
        self.config = config
        self.weight = config.weight
        self.max_inflight = UNLIMITED if config.max_inflight is None else config.max_inflight
        self.models = served(config, self.listed)
        self.health.rules = rules

    def continues(self, other: Replica) -> None:
        """It is the same engine as `other`, spoken to in another way: what `other` serves and
        whether it is up are known already."""
        self.objects = other.objects
        self.listed = other.listed
        self.adapters = other.adapters
        self.models = served(self.config, self.listed)
        self.engine = self.engine or other.engine
        self.health.up = other.health.up
        self.health.is_new = other.health.is_new

    @property
    def engine(self) -> str | None:
        """The name of its engine; None: not detected yet. Requests read `descriptor` instead."""
        return self.descriptor.name or None

    @engine.setter
    def engine(self, name: str | None) -> None:
        self.descriptor = engine_of(name)

    @property
    def pool(self) -> Pool:
        """Its connections."""
        assert self._pool is not None, "nothing is sent to a simulated replica"
        return self._pool

    @property
    def kv_polled(self) -> float | None:
        """Share of the KV cache as the engine reported it last, for metrics and reports; `None`:
        unknown. Decisions read `kv_usage`, the estimate for now."""
        return None if self.kv_reported < 0.0 else self.kv_reported

    @property
    def configured_slots(self) -> int | None:
        """Requests that it was configured to take at once; None: any number."""
        return self.config.max_inflight

    def close_idle(self) -> None:
        """Connections that nobody uses may be stale."""
        if self._pool is not None:
            self._pool.close_idle()

    def give_up(self) -> None:
        """It is not fit any more: who waits for a connection to it goes elsewhere."""
        if self._pool is not None:
            self._pool.give_up()

    def close(self) -> None:
        """It has left the fleet: connections close as they become free."""
        if self._pool is not None:
            self._pool.close()

    # -- what its answers teach ---------------------------------------------------------------

    def answered(self, ttft_s: float, tokens: int, is_alone: bool) -> None:
        """A stream's first content came `ttft_s` after its dispatch of so many uncached tokens;
        `is_alone`: no other request waited there when it was sent."""
        lately = self.ttft_s
        self.ttft_s = ttft_s if lately is None else lately + (ttft_s - lately) * SMOOTHING
        self.progress.first_token(ttft_s, tokens, is_alone)

    def paced(self, tpot_s: float) -> None:
        """A stream took `tpot_s` per output token after the first."""
        usual = self.tpot_s
        self.tpot_s = tpot_s if usual is None else usual + (tpot_s - usual) * SMOOTHING

    def should_have_hit(self, sent_at: float) -> None:
        """A request ended well that was sent at `sent_at`, when its prefix seemed to be held here.

        Engines count a hit when a request begins. One that was sent before the last hit was seen
        may be that hit, however late it ends.
        """
        if sent_at > self.hit_seen_at:
            self.expected_hits += 1

    def misses_cache(self, before: int | None, now: int | None, at: float) -> bool:
        """Whether the prefix cache must have been reset: `MISSES` requests that should have hit it
        have ended, a poll has passed so that lagging counters show them, and none of them did.

        `before`, `now`: the engine's totals of hits, as a poll tells at `at`; one that never had a
        hit may have no cache. No engine tells of a reset by a counter.
        """
        if not before or now != before:
            self.expected_hits = self._doubted_hits = 0
            self.hit_seen_at = at
            return False
        if self._doubted_hits < MISSES:
            self._doubted_hits = self.expected_hits
            return False
        self.expected_hits = self._doubted_hits = 0
        return True

    # -- how long is too long -----------------------------------------------------------------

    def patience_s(self, tokens: int) -> float:
        """Seconds until the first token is overdue of a request that was just sent, with so many
        uncached tokens waiting there, its own among them. Infinity: what is usual is unknown.

        Then the replica is suspect, if it shows no work at all (`silence_s`).
        """
        progress = self.progress
        usual = progress.first_s
        if usual <= 0.0:
            return NEVER
        # A prompt ten times as long may take ten times as long; a shorter one is not held to less.
        usual *= max(1.0, tokens / max(progress.first_tokens, 1.0))
        rules = self.health.rules
        return max(rules.suspect_min_s, rules.suspect_factor * usual)

    def silence_s(self, now: float) -> float:
        """Seconds without a sign of work after which a replica that has requests is suspect.

        Some work shows no sign until it is done: answers that are not streamed, and requests of
        other clients, where the engine counts tokens only when a request ends.
        A replica that is full of such work is given the time that such an answer may take.
        """
        rules = self.health.rules
        if (
            self.descriptor.counts_live
            and self.signals.generated_tokens is not None
            and now - self.signals_at <= rules.suspect_min_s / 2
        ):
            return rules.suspect_min_s  # metrics that were read just now would show any work
        wholes = self.whole_fresh + self.whole_older + self.whole_taken
        slots = self.slots
        is_full = wholes > 0 if slots is None else wholes + self.foreign_load >= slots
        if not is_full:
            return rules.suspect_min_s
        usual = self.progress.whole_s or rules.suspect_min_s
        return max(rules.suspect_min_s, rules.suspect_factor * usual)

    @property
    def limit_now(self) -> int:
        """Attempts at once: one more than before its trial while it is half-open."""
        if not self.health.half_open:
            return self.max_inflight
        return min(self.max_inflight, self.before_trial + 1)

    def state(self, now: float) -> str:
        """One word for people and metrics."""
        if self.removed:
            return "draining"
        if self.health.is_new:
            return "unknown"
        if not self.health.up:
            return "down"
        if self.is_unlisted:
            return "unknown"
        if self.health.is_ejected(now):
            return "ejected"
        if self.signals.asleep:
            return "asleep"
        return "half_open" if self.health.half_open else "ready"
