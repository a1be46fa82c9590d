"""One replica: the facts that policies use, and all other data of the router about it.

The fleet table owns the `Replica` objects. ARCHITECTURE.md, *Who may write what*, names all
writers. A replica that was removed from the fleet exists until its last lease is released.
"""

from __future__ import annotations

from typing import Any

from router.config.address import parse_replica_url
from router.config.model import Health as HealthRules, Replica as Config
from router.core.progress import SMOOTHING, Progress
from router.core.replica_load import UNLIMITED, ReplicaLoad
from router.core.round_trip import RoundTrip
from router.core.speed_learner import SpeedLearner
from router.fleet.access import Access
from router.fleet.adapters import LoadedAdapters
from router.fleet.cadence import Cadence
from router.fleet.context import UNKNOWN, lengths_of
from router.fleet.engines.common.descriptor import Engine
from router.fleet.engines.common.registry import engine_of
from router.fleet.error_answers import ErrorAnswers
from router.fleet.health import Health
from router.fleet.learned_capacity import LearnedCapacity
from router.fleet.listed import served
from router.fleet.membership import DRAINED, DRAINING, Duty, duty_word
from router.fleet.signals import NO_SIGNALS
from router.wire.pool import Pool
from router.wire.sweep import NEVER

# If this many requests miss the prefix cache although their prefixes should be in it, the engine
# has reset the cache. A single request may miss because its blocks were evicted.
MISSES = 3


class Replica(ReplicaLoad):
    """A replica of the fleet."""

    __slots__ = (
        "_doubted_hits",
        "_pool",
        "access",
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
        "duty",
        "errors",
        "expected_hits",
        "first_rank",
        "group",
        "health",
        "hit_seen_at",
        "host_line",
        "idle_since",
        "is_spot",
        "is_standby",
        "is_unlisted",
        "joined",
        "last_priority",
        "last_signals",
        "learned",
        "lengths",
        "list_status",
        "listed",
        "loaded_adapters",
        "low_first",
        "max_inflight",
        "metrics_on",
        "models_problem",
        "objects",
        "page_is_still",
        "page_since",
        "polls_awaited",
        "progress",
        "rank",
        "rank_count",
        "rank_line",
        "ranks",
        "refuses",
        "refuses_priority",
        "region",
        "removed",
        "reported_lengths",
        "round_trip",
        "served",
        "server",
        "signals",
        "signals_at",
        "speed_learner",
        "state_now",
        "state_since",
        "type",
    )

    def __init__(self, config: Config, rules: HealthRules, pool: Pool | None) -> None:
        """`pool`: the connections of the replica; `None` if it has none, as in a simulation."""
        super().__init__(config.id, weight=config.weight)
        self.config = config
        self.is_spot = config.spot
        self.type = config.type
        self.region = config.region  # "": unknown; the replica is in no allowed region.
        # The region of the replica, or the region and the zone of the router, as set by
        # `regions/nearest.py`.
        self.group = config.region
        self.round_trip = RoundTrip()  # The measured round-trip time; `speed.rtt_s` has a copy.
        self.address = parse_replica_url(config.url)
        self.host_line = b"host: " + self.address.authority.encode("ascii")
        self.base_path = self.address.base_path.encode("ascii")
        self._pool = pool
        # The data-parallel rank, and all ranks of the address, this one included; see
        # `fleet/data_parallel.py`.
        self.rank = 0  # The position of the rank at its address.
        self.first_rank = 0  # The engine's number of the first rank at the address.
        self.refuses = False  # Whether the last probe or poll could not connect.
        self.server = ""  # The header `Server` of the last answer to a probe or a poll.
        self.ranks: tuple[Replica, ...] = (self,)
        self.rank_count = config.data_parallel_ranks or 1  # How many ranks the address has.
        # A header line that chooses the rank, with a CRLF before it; b"": the engine chooses.
        self.rank_line = b""
        # What the requests to this replica have of their own; `None`: nothing.
        self.access: Access | None = None
        self.health = Health(rules)
        self.errors = ErrorAnswers()  # Error answers, compared with those of other replicas.
        self.max_inflight = UNLIMITED if config.max_inflight is None else config.max_inflight
        self.limit = self.max_inflight
        # Number of attempts in progress that were sent before the half-open trial began.
        self.before_trial = 0
        self.progress = Progress()
        # The status of the last answer to /v1/models; 0: there was no answer.
        self.list_status = 0
        self.listed: frozenset[str] | None = None  # The models that the replica listed last.
        self.adapters: frozenset[str] = frozenset()  # The listed models that are adapters.
        self.loaded_adapters = LoadedAdapters()  # The adapters that are in memory now.
        # The models that the replica serves; `None`: unknown, because no probe has succeeded yet or
        # because the replica lists no models.
        self.models = served(config, None)
        # Why the model list could not be read, as text for people; "": it was read, or the models
        # are configured.
        self.models_problem = ""
        # True: the models of this replica are unknown, while other replicas list their models.
        self.is_unlisted = False
        # The maximum number of tokens of a request, by model: as the replica reports it, and as it
        # applies.
        self.reported_lengths = UNKNOWN
        self.lengths = lengths_of(config.max_model_len, UNKNOWN)
        self.objects: dict[str, dict[str, Any]] = {}  # Model -> its entry of /v1/models.
        self.joined = 0.0  # When the replica joined the fleet (monotonic seconds).
        self.removed = False
        self.state_now = ""  # The state at the last change of the fleet; see `note_state`.
        self.state_since = 0.0  # When the replica came into that state.
        self.duty: int = Duty.IN_SERVICE  # The operator's setting for the replica.
        # True: the replica gets no new request, because replicas with a lower SRV priority number
        # are available.
        self.is_standby = False
        self.served = 0  # Number of attempts that succeeded.
        # How many more polls may fail before the engine is treated as one without metrics.
        self.polls_awaited = 0
        # All facts about the engine of this replica.
        self.descriptor: Engine = engine_of(config.engine)
        self.signals = NO_SIGNALS
        self.signals_at = 0.0
        # Time at which the current poll, or else the last poll, was sent (monotonic seconds).
        self.asked_at = 0.0
        # Replicas whose engine has the same start time, but is proven to be another engine.
        self.apart: set[Replica] = set()
        # True: the engine has answered 401 to a request without a valid API key.
        self.checks_keys = False
        # Whether the engine orders requests by priority; None: the engine does not report it.
        self.by_priority: bool | None = None
        # Whether the engine serves lower priority numbers first; None: it does not report that.
        self.low_first: bool | None = None
        # Whether the engine has Prometheus metrics; None: the engine does not report it.
        self.metrics_on: bool | None = None
        # True: the engine has reported that it does not support priorities.
        self.refuses_priority = False
        # The last priority number that was sent to the replica with a request.
        self.last_priority = b""
        # The last reported signals. These signals stay here when they are too old; `signals` is
        # then reset.
        self.last_signals = NO_SIGNALS
        # When the last signals were first reported, and the last poll at which the router had
        # requests there. True: the signals stand still, so they show no load; see `credible`.
        self.page_since = self.idle_since = 0.0
        self.page_is_still = False
        # Number of requests that should have hit the prefix cache, and that ended since the last
        # hit.
        self.expected_hits = 0
        # Time of the poll that showed the last prefix-cache hit. The hit belongs to a request sent
        # before that time.
        self.hit_seen_at = 0.0
        self._doubted_hits = 0  # The value of `expected_hits` at the previous poll.
        self.learned = LearnedCapacity()
        # Measures the speed of the streams that are relayed from this replica.
        self.cadence = Cadence()
        # Learns `speed`, with which policies predict latencies.
        self.speed_learner = SpeedLearner(self.speed)

    def adopt(self, config: Config, rules: HealthRules) -> None:
        """Apply new settings for the same replica. Everything that was learned about it stays.

        The number of its ranks does not change before `Fleet.set_ranks`.
        """
        if config.engine is not None:
            self.engine = config.engine
        if config.priority != self.config.priority:
            # The operator changed the priority setting, so the engine's earlier refusal of
            # priorities no longer counts.
            self.refuses_priority = False
        self.config = config
        self.is_spot = config.spot
        self.type = config.type
        self.region = config.region
        self.weight = config.weight
        self.max_inflight = UNLIMITED if config.max_inflight is None else config.max_inflight
        self.models = served(config, self.listed)
        if config.models is not None:
            self.models_problem = ""
        self.lengths = lengths_of(config.max_model_len, self.reported_lengths)
        self.health.adopt(rules)

    def continues(self, other: Replica) -> None:
        """Copy from `other` its models, whether it is up, its round-trip time and learned speed.

        Both objects stand for the same engine, with other connection settings.
        """
        self.objects = other.objects
        self.listed = other.listed
        self.adapters = other.adapters
        self.models = served(self.config, self.listed)
        self.reported_lengths = other.reported_lengths
        self.lengths = lengths_of(self.config.max_model_len, self.reported_lengths)
        self.rank_count = self.config.data_parallel_ranks or other.rank_count
        self.first_rank = other.first_rank
        self.server = other.server
        self.engine = self.engine or other.engine
        self.duty = other.duty
        self.is_standby = other.is_standby
        self.health.up = other.health.up
        self.health.is_new = other.health.is_new
        self.health.why_down = other.health.why_down
        self.models_problem = other.models_problem
        self.state_now, self.state_since = other.state_now, other.state_since
        self.round_trip = other.round_trip
        self.speed.rtt_s = other.speed.rtt_s
        self.speed_learner.start(
            other.speed_learner.prefill.coefficients() if other.speed.is_known else [],
            other.speed_learner.decode.coefficients() if other.speed_learner.decode.samples else [],
        )

    @property
    def engine(self) -> str | None:
        """The name of the engine; `None` if not detected yet.

        Code that handles requests reads `descriptor` instead.
        """
        return self.descriptor.name or None

    @engine.setter
    def engine(self, name: str | None) -> None:
        self.descriptor = engine_of(name)

    @property
    def rank_number(self) -> int:
        """The engine's number of the rank."""
        return self.ranks[0].first_rank + self.rank

    @property
    def connections(self) -> Pool | None:
        """The connections of the replica; `None` in a simulation."""
        return self._pool

    @property
    def pool(self) -> Pool:
        """The connections of the replica."""
        assert self._pool is not None, "a simulated replica has no connections"
        return self._pool

    @property
    def is_external(self) -> bool:
        """Whether the replica belongs to a provider of another company."""
        return self.access is not None and self.access.is_external

    @property
    def kv_polled(self) -> float | None:
        """Share of the KV cache in use as the engine last reported it; `None` if unknown.

        This value is for metrics and reports. Decisions read `kv_usage`, the estimate for the
        present moment.
        """
        return None if self.kv_reported < 0.0 else self.kv_reported

    @property
    def configured_slots(self) -> int | None:
        """The configured maximum of requests in progress; `None` means no limit."""
        return self.config.max_inflight

    def close_idle(self) -> None:
        """Close the idle connections, because they may be stale."""
        if self._pool is not None:
            self._pool.close_idle()

    def give_up(self) -> None:
        """Release the requests that wait for a connection, so that other replicas can take them.

        Call this method when the replica is no longer fit for requests. If another rank of the
        address is, the requests stay, because all ranks share the connections.
        """
        for rank in self.ranks:
            if rank is not self and rank.is_available and not rank.health.ejected_until:
                return
        if self._pool is not None:
            self._pool.give_up()

    def close(self) -> None:
        """Close the replica's connections, because the replica has left the fleet.

        A connection in use closes after its response. All ranks of an address share the
        connections, which leave with the first rank.
        """
        if self._pool is not None and not self.rank:
            self._pool.close()

    # -- learned from answers -----------------------------------------------------------------

    def answered(self, ttft_s: float, tokens: int, is_alone: bool) -> None:
        """Record the time to first token (`ttft_s`) of a stream that was dispatched with `tokens`
        uncached tokens.

        `is_alone`: no other request waited at the replica when this one was sent.
        """
        lately = self.ttft_s
        self.ttft_s = ttft_s if lately is None else lately + (ttft_s - lately) * SMOOTHING
        self.progress.first_token(ttft_s, tokens, is_alone)

    def timed(self, round_trip_s: float, now: float) -> None:
        """Store a measured round-trip time to the replica's address, in seconds."""
        for rank in self.ranks:
            rank.round_trip.add(round_trip_s, now)
            rank.speed.rtt_s = rank.round_trip.seconds

    def paced(self, tpot_s: float) -> None:
        """Record that a stream took `tpot_s` seconds per output token after the first token."""
        usual = self.tpot_s
        self.tpot_s = tpot_s if usual is None else usual + (tpot_s - usual) * SMOOTHING

    def should_have_hit(self, sent_at: float) -> None:
        """Count a request that ended well and was sent at `sent_at`, when its prefix seemed to be
        cached at this replica.

        Engines report a prefix cache hit when its request begins. So a request that was sent before
        the poll with the last new hit is not counted: the hit may be its own, even if the request
        ends much later.
        """
        if sent_at > self.hit_seen_at:
            self.expected_hits += 1

    def misses_cache(self, before: int | None, now: int | None, at: float) -> bool:
        """Return whether the engine's prefix cache must have been reset.

        The cache must have been reset if `MISSES` requests that should have been hits have ended,
        one more poll has passed (counters may lag), and none of these requests was a hit. `before`,
        `now`: the engine's hit totals at the previous poll and at the poll of time `at`. An engine
        that never had a hit may have no prefix cache. No engine reports a cache reset by a counter.
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

    # -- timeouts learned from usual times ----------------------------------------------------

    def overdue_after_s(self, tokens: int, is_streamed: bool = True) -> float:
        """Return the seconds after which the first sign of work for a request that was just sent is
        overdue.

        `tokens`: uncached tokens that wait at the replica, including those of this request.
        Infinity: the usual time is unknown. A replica with an overdue sign becomes suspect if it
        shows no work at all (`silence_s`, `whole_silence_s`).
        """
        progress = self.progress
        least_s = self.health.suspect_min_s
        usual = progress.first_s
        if usual > 0.0:
            # A prompt that is ten times as long may take ten times as long. A shorter prompt does
            # not shorten the limit.
            usual *= max(1.0, tokens / max(progress.first_tokens, 1.0))
        elif is_streamed:
            return NEVER
        else:
            # The totals of the engine grow at the first token, long before a whole answer ends.
            usual = min(progress.whole_s, least_s / 2.0) or least_s
        return max(least_s, self.health.suspect_factor * usual)

    def silence_s(self, now: float) -> float:
        """Return the seconds without a sign of work after which a replica that has requests is
        suspect.

        Some work shows no sign until it is finished: responses that are not streamed, and requests
        of other clients if the engine counts tokens only when a request ends. A replica that is
        full of such work gets the time that such a response may take.
        """
        rules = self.health.rules
        if self._totals_are_live(now):
            # The shortest limit is enough, because the recent metrics would show any work.
            return rules.suspect_min_s
        wholes = self.whole_fresh + self.whole_older + self.whole_taken
        slots = self.slots
        is_full = wholes > 0 if slots is None else wholes + self.foreign_load >= slots
        if not is_full:
            return rules.suspect_min_s
        usual = self.progress.whole_s or rules.suspect_min_s
        return max(rules.suspect_min_s, rules.suspect_factor * usual)

    def whole_silence_s(self, now: float) -> float:
        """Return the seconds without a sign of work after which a replica is suspect that has a
        request whose response is not streamed.

        Infinity: the metrics do not show the work for such a request, so a long response must not
        count against the replica. This includes an engine that has answered such requests, and
        whose totals have never grown.
        """
        signals = self.signals
        is_counted = signals.generated_tokens or signals.prompt_tokens
        if self._totals_are_live(now) and (is_counted or not self.progress.whole_s):
            return self.health.rules.suspect_min_s
        return NEVER

    def _totals_are_live(self, now: float) -> bool:
        """Return whether recent metrics would show any work of the engine while it works."""
        return (
            self.descriptor.counts_live
            and self.signals.generated_tokens is not None
            and now - self.signals_at <= self.health.rules.suspect_min_s / 2
        )

    @property
    def is_away(self) -> bool:
        """Whether the replica is down, asleep, cordoned or on standby.

        Such a replica gets no request, even if no other replica is fit.
        """
        return self.is_standby or not self.is_available

    @property
    def is_meant_to_serve(self) -> bool:
        """Whether the replica should get requests when it is healthy.

        False on standby, asleep, cordoned and draining. The shares of ejection and panic are shares
        of the replicas that are meant to serve.
        """
        return not self.is_standby and not self.signals.asleep and self.duty == Duty.IN_SERVICE

    @property
    def is_available(self) -> bool:
        """Whether the replica could get requests: it is up, awake and in service."""
        return self.health.up and not self.signals.asleep and self.duty == Duty.IN_SERVICE

    @property
    def limit_now(self) -> int:
        """Return the maximum number of attempts in progress now.

        While the circuit breaker is half-open, one trial attempt may run in addition to the
        attempts that were sent before the trial.
        """
        if not self.health.half_open:
            return self.max_inflight
        return min(self.max_inflight, self.before_trial + 1)

    def state(self, now: float) -> str:
        """Return the state of the replica as one word, for people and metrics."""
        if self.removed:
            return duty_word(Duty.DRAINING, self.inflight)
        if self.duty != Duty.IN_SERVICE:
            return duty_word(self.duty, self.inflight)
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
        if self.is_standby:
            return "standby"
        return "half_open" if self.health.half_open else "ready"

    def note_state(self, now: float) -> None:
        """Note when the state changes. The table calls this method after each change of the fleet.

        A draining replica becomes drained without such a change, so both count as one state.
        """
        state = self.state(now)
        if state == DRAINED:
            state = DRAINING
        if state != self.state_now:
            self.state_now = state
            self.state_since = now

    def why(self, now: float) -> str:
        """Return the reason of the present state, as text for people; "" if there is none.

        A replica that is ready has a reason if something is wrong with it nevertheless: it is
        suspect, it fails but may not be ejected, or its model list cannot be read.
        """
        health, state = self.health, self.state(now)
        if self.removed:
            return "removed from the fleet"
        if self.duty != Duty.IN_SERVICE:
            return "by the admin API; the action `uncordon` ends it"
        if state == "down" and not health.why_down and health.probe_streak > 0:
            return f"good probes in a row: {health.probe_streak} of {health.rules.rise}"
        if state in ("down", "unknown"):
            unasked = "no probe has ended yet" if health.is_new else "it lists no models"
            return health.why_down or self.models_problem or unasked
        if state == "asleep":
            return "the engine reports that it sleeps"
        if state == "standby":
            return "replicas with a lower SRV priority number are available"
        if state in ("ejected", "half_open"):
            return health.why
        if health.is_suspect(now):
            return f"suspect: {health.why}"
        if health.failures >= health.rules.eject_after:
            return (
                f"failures in a row: {health.failures}; not ejected, because too few replicas of "
                "its models would be left"
            )
        return self.models_problem
