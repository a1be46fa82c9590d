"""One replica: the facts that policies use, and all other data of the router about it.

The fleet table owns the `Replica` objects. ARCHITECTURE.md, *Who may write what*, names all
writers. A replica that was removed from the fleet exists until its last lease is released.
"""

from __future__ import annotations

from router.config.model import Health as HealthRules, Replica as Config
from router.core.progress import Progress
from router.core.replica_load import UNLIMITED, ReplicaLoad
from router.fleet.access import Access
from router.fleet.adapters import LoadedAdapters
from router.fleet.engines.common.descriptor import Engine
from router.fleet.engines.common.registry import engine_of
from router.fleet.error_answers import ErrorAnswers
from router.fleet.health import Health
from router.fleet.listed import served
from router.fleet.membership import Duty, duty_word
from router.fleet.state.endpoint import Endpoint
from router.fleet.state.learned import Learned
from router.fleet.state.listed_models import ListedModels
from router.fleet.state.reports import Reports
from router.fleet.state.standing import Standing
from router.wire.pool import Pool
from router.wire.sweep import NEVER


class Replica(ReplicaLoad):
    """A replica of the fleet: its settings, its place at its address, and the parts of its state.

    Settings are written by `adopt`, which `app/member_changes.py` calls; the ranks by
    `fleet/data_parallel.py`. Each part names its only writer.
    """

    __slots__ = (
        "access",
        "config",
        "descriptor",
        "endpoint",
        "errors",
        "first_rank",
        "group",
        "health",
        "is_spot",
        "last_priority",
        "learned",
        "listed",
        "loaded_adapters",
        "progress",
        "rank",
        "rank_count",
        "rank_line",
        "ranks",
        "region",
        "removed",
        "reports",
        "standing",
        "type",
    )

    def __init__(
        self,
        config: Config,
        rules: HealthRules,
        pool: Pool | None,
        access: Access | None = None,
        endpoint: Endpoint | None = None,
    ) -> None:
        """`pool`: the connections of the replica; `None` if it has none, as in a simulation.

        `endpoint`: the address, if another rank of it exists; else it is made with `pool`.
        """
        super().__init__(config.id, weight=config.weight)
        self.config = config
        self.is_spot = config.spot
        self.type = config.type
        self.region = config.region  # "": unknown; the replica is in no allowed region.
        # The region of the replica, or the region and the zone of the router, as set by
        # `regions/nearest.py`.
        self.group = config.region
        # What the requests to this replica have of their own; `None`: nothing.
        self.access = access
        # All facts about the engine of this replica.
        self.descriptor: Engine = engine_of(config.engine)
        # The data-parallel rank, and all ranks of the address, this one included; see
        # `fleet/data_parallel.py`.
        self.rank = 0  # The position of the rank at its address.
        self.first_rank = 0  # The engine's number of the first rank at the address.
        self.ranks: tuple[Replica, ...] = (self,)
        self.rank_count = config.data_parallel_ranks or 1  # How many ranks the address has.
        # A header line that chooses the rank, with a CRLF before it; b"": the engine chooses.
        self.rank_line = b""
        self.removed = False  # True: the replica has left the fleet.
        # The last priority number that was sent to the replica with a request, for reports.
        self.last_priority = b""
        self.endpoint = Endpoint(config.url, pool) if endpoint is None else endpoint
        self.listed = ListedModels(config)
        # The models that the replica serves; `None`: unknown, because no probe has succeeded yet or
        # because the replica lists no models.
        self.models = served(config, None)
        self.loaded_adapters = LoadedAdapters()  # The adapters that are in memory now.
        self.standing = Standing()
        self.health = Health(rules)
        self.errors = ErrorAnswers()  # Error answers, compared with those of other replicas.
        self.progress = Progress()
        self.reports = Reports()
        self.learned = Learned(self.speed)

    def adopt(self, config: Config, rules: HealthRules, access: Access | None) -> None:
        """Apply new settings for the same replica. Everything that was learned about it stays.

        The number of its ranks does not change before `Fleet.set_ranks`.
        """
        if config.engine is not None:
            self.descriptor = engine_of(config.engine)
        if config.priority != self.config.priority:
            # The operator changed the priority setting, so the engine's earlier refusal of
            # priorities no longer counts.
            self.errors.takes_priorities(True)
        self.config = config
        self.is_spot = config.spot
        self.type = config.type
        self.region = config.region
        self.weight = config.weight
        self.access = access
        self.models = self.listed.adopt(config)
        self.health.adopt(rules)

    def continues(self, other: Replica) -> None:
        """Copy from `other` its models, whether it is up, its round-trip time and learned speed.

        Both objects stand for the same engine, with other connection settings.
        """
        self.listed.continues(other.listed)
        self.models = self.listed.adopt(self.config)
        self.rank_count = self.config.data_parallel_ranks or other.rank_count
        self.first_rank = other.first_rank
        self.endpoint.continues(other.endpoint)
        self.descriptor = engine_of(self.engine or other.engine)
        self.standing.continues(other.standing)
        self.health.continues(other.health)
        self.speed.rtt_s = other.speed.rtt_s
        self.learned.continues(other.learned, is_known=other.speed.is_known)

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
    def pool(self) -> Pool:
        """The connections of the replica."""
        pool = self.endpoint.pool
        assert pool is not None, "a simulated replica has no connections"
        return pool

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

    def close_idle(self) -> None:
        """Close the idle connections, because they may be stale."""
        pool = self.endpoint.pool
        if pool is not None:
            pool.close_idle()

    def give_up(self) -> None:
        """Release the requests that wait for a connection, so that other replicas can take them.

        Call this method when the replica is no longer fit for requests. If another rank of the
        address is, the requests stay, because all ranks share the connections.
        """
        for rank in self.ranks:
            if rank is not self and rank.is_available and not rank.health.ejected_until:
                return
        pool = self.endpoint.pool
        if pool is not None:
            pool.give_up()

    def close(self) -> None:
        """Close the replica's connections, because the replica has left the fleet.

        A connection in use closes after its response. All ranks of an address share the
        connections, which leave with the first rank.
        """
        pool = self.endpoint.pool
        if pool is not None and not self.rank:
            pool.close()

    def timed(self, round_trip_s: float, now: float) -> None:
        """Store a measured round-trip time to the replica's address, in seconds."""
        for rank in self.ranks:
            round_trip = rank.learned.round_trip
            round_trip.add(round_trip_s, now)
            rank.speed.rtt_s = round_trip.seconds

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
        signals = self.reports.signals
        is_counted = signals.generated_tokens or signals.prompt_tokens
        if self._totals_are_live(now) and (is_counted or not self.progress.whole_s):
            return self.health.rules.suspect_min_s
        return NEVER

    def _totals_are_live(self, now: float) -> bool:
        """Return whether recent metrics would show any work of the engine while it works."""
        return (
            self.descriptor.counts_live
            and self.reports.signals.generated_tokens is not None
            and now - self.reports.at <= self.health.rules.suspect_min_s / 2
        )

    @property
    def is_away(self) -> bool:
        """Whether the replica is down, asleep, cordoned or on standby.

        Such a replica gets no request, even if no other replica is fit.
        """
        return self.standing.is_standby or not self.is_available

    @property
    def is_meant_to_serve(self) -> bool:
        """Whether the replica should get requests when it is healthy.

        False on standby, asleep, cordoned and draining. The shares of ejection and panic are shares
        of the replicas that are meant to serve.
        """
        return (
            not self.standing.is_standby
            and not self.reports.signals.asleep
            and self.standing.duty == Duty.IN_SERVICE
        )

    @property
    def is_available(self) -> bool:
        """Whether the replica could get requests: it is up, awake and in service."""
        return (
            self.health.up
            and not self.reports.signals.asleep
            and self.standing.duty == Duty.IN_SERVICE
        )

    @property
    def limit_now(self) -> int:
        """Return the maximum number of attempts in progress now.

        While the circuit breaker is half-open, one trial attempt may run in addition to the
        attempts that were sent before the trial.
        """
        configured = self.config.max_inflight
        most = UNLIMITED if configured is None else configured
        health = self.health
        return min(most, health.before_trial + 1) if health.half_open else most

    def state(self, now: float) -> str:
        """Return the state of the replica as one word, for people and metrics."""
        if self.removed:
            return duty_word(Duty.DRAINING, self.inflight)
        if self.standing.duty != Duty.IN_SERVICE:
            return duty_word(self.standing.duty, self.inflight)
        if self.health.is_new:
            return "unknown"
        if not self.health.up:
            return "down"
        if self.standing.is_unlisted:
            return "unknown"
        if self.health.is_ejected(now):
            return "ejected"
        if self.reports.signals.asleep:
            return "asleep"
        if self.standing.is_standby:
            return "standby"
        return "half_open" if self.health.half_open else "ready"

    def why(self, now: float) -> str:
        """Return the reason of the present state, as text for people; "" if there is none.

        A replica that is ready has a reason if something is wrong with it nevertheless: it is
        suspect, it fails but may not be ejected, or its model list cannot be read.
        """
        health, state = self.health, self.state(now)
        if self.removed:
            return "removed from the fleet"
        if self.standing.duty != Duty.IN_SERVICE:
            return "by the admin API; the action `uncordon` ends it"
        if state == "down" and not health.why_down and health.probe_streak > 0:
            return f"good probes in a row: {health.probe_streak} of {health.rules.rise}"
        if state in ("down", "unknown"):
            unasked = "no probe has ended yet" if health.is_new else "it lists no models"
            return health.why_down or self.listed.problem or unasked
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
        return self.listed.problem
