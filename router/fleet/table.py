"""The fleet: which replicas exist, which of them are fit, and which replica serves which model.

Requests read two prepared structures: `ready`, and for each model the replicas that serve it. Each
change of the fleet (a probe, a failure, a reload, a model list) rebuilds both structures. Results
of requests enter the table only through these methods: `succeeded`, `failed`, `outrun`, `busy`,
`attempt_ended`, `showed_content`, `overdue`.

A replica is eligible only if its state is known: a new replica waits for its first good probe and
for its model list. A replica that lists no models serves any model, but only if no replica of the
fleet lists its own models.

For each model, the table keeps the fit replicas, and the preferred ones among the fit replicas. A
suspect or busy replica gets no request while another replica of the model is neither suspect nor
busy.

A request may be limited to some regions and context lengths (`RequestView.allowed`). Every method
that returns replicas for a request has the argument `allowed` without a default, so no caller can
forget it. The lists for limited requests are made when they are first needed
(`regions/residents.py`).

A replica may be one of several data-parallel ranks behind one address (`data_parallel/ranks.py`).
What concerns the address applies to all of its ranks.

A replica is ejected only if each pool that it serves (`model_pools.py`) keeps another fit replica.
A result that only shows that a replica was silent does not count while the replica shows work.

Must never: do I/O, or make a request wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from random import Random
from time import monotonic, time
from typing import Any

from policies.allowed import Allowed
from router.config.model import Health as HealthRules
from router.core.errors import Reason, RouterError
from router.core.kv_estimate import report_kv
from router.core.lease import poll_counted, poll_failed, signals_lost
from router.core.replica_load import UNLIMITED
from router.fleet.absences import Absences
from router.fleet.adapters.names import AdapterNames
from router.fleet.aliases import Aliases
from router.fleet.context.lengths import UNKNOWN, lengths_of, read_lengths
from router.fleet.context.levels import ContextLevels
from router.fleet.data_parallel.ranks import with_ranks
from router.fleet.defaults import Defaults
from router.fleet.dialects import Dialects
from router.fleet.engines.common.models import MODELS_MOST, adapters
from router.fleet.engines.common.orca import read_load_header
from router.fleet.health import BLAMED, RACES, SILENT
from router.fleet.listed import ANY, served, served_text
from router.fleet.membership import Duty
from router.fleet.model_list import ModelList
from router.fleet.model_pools import ModelPools
from router.fleet.model_speeds import ModelSpeeds
from router.fleet.monitor.same_engine import SameEngine
from router.fleet.monitor.signal_changes import has_worked, restarted
from router.fleet.names import NO_NAMES, Names, Target
from router.fleet.prefix.lookup import PrefixLookup
from router.fleet.prefix.response_affinity import ResponseAffinity
from router.fleet.regions.nearest import Nearest
from router.fleet.regions.region_absences import RegionAbsences
from router.fleet.regions.residents import Residents, not_allowed, preferred_of, without
from router.fleet.replica import Replica
from router.fleet.signals import NO_SIGNALS, Signals
from router.wire.http1.retry_after import seconds_of
from router.wire.sweep import NEVER, Register

# Retry-After in seconds while no replica is fit: a replica that was just lost is often back within
# seconds.
RETRY_AFTER_S = 2
# Seconds between two checks of a replica that is suspect, or that was ejected because it generated
# nothing.
SUSPICION_S = 1.0
WARMING_S = 0.5  # Seconds between two updates of a replica's weight while it is lowered.
# Number of failed polls in a row after which an engine is treated as one without metrics.
POLLS_AWAITED = 3
# A poll that fails for one of these reasons makes the engine count as one without metrics at once.
WITHOUT_METRICS = frozenset(("status", "garbage", "nothing"))
# Number of replicas up to which each answer "busy" (429 or 503) rebuilds the table at once. In a
# larger fleet, the next tick of the sweep handles all such answers together.
LARGE = 64
# These failures show that the address cannot be reached.
UNCONNECTED = frozenset((Reason.CONNECT_FAILED, Reason.CONNECT_TIMEOUT))
# Maximum number of model names that are remembered while their replicas are down.
_KNOWN_MAX = 10_000
_LISTS_MAX = 16  # Maximum number of cached answers to /v1/models.
# Work that a replica shows within this many seconds after an attempt's last content is that
# content, and not work for another request.
_SAME_S = 0.001


class Fleet:
    """All replicas by id.

    `on_change` is called after replicas were added or removed, with the ids of all replicas.
    """

    def __init__(
        self,
        rules: HealthRules,
        sweeper: Register,
        rng: Random,
        on_change: Callable[[frozenset[str]], None],
        on_event: Callable[[str, Replica], None],
        knowledge: PrefixLookup,
        stale_s: float = 10.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.knowledge = knowledge
        self.stale_s = stale_s  # Age in seconds above which signals count as unknown.
        self._clock = clock
        self.polls_failed: dict[str, int] = {}  # Number of failed polls, by problem.
        self.rules = rules
        self.replicas: dict[str, Replica] = {}
        # The priority dialects: the meaning of a number in a client's `priority`.
        self.dialects = Dialects(self.replicas)
        # The served models that stand for model names that no replica lists.
        self.aliases = Aliases(self.replicas)
        # The models that are LoRA adapters.
        self.adapter_names = AdapterNames()
        # What the names that clients write stand for.
        self.names = NO_NAMES
        # The own models of replicas, for engines that do not read a body's `model`.
        self.defaults = Defaults(self.replicas)
        # Replicas that were removed from the fleet, but whose leases are not all released.
        self.leaving: set[Replica] = set()
        self.response_affinity = ResponseAffinity()
        self._same_engine = SameEngine()
        self._speeds = ModelSpeeds()
        # The replicas that may get requests; a tuple, because policies get this object itself.
        self.ready: tuple[Replica, ...] = ()
        self.ready_ids: dict[str, Replica] = {}
        self._pools = ModelPools()
        self._by_model: dict[str, tuple[Replica, ...]] = {}
        # Ready replicas, if no replica of the fleet lists its models.
        self._any_model: tuple[Replica, ...] = ()
        # For each model, the replicas that are fit but not preferred. A request uses them after it
        # tried all preferred replicas. Key None: the whole fleet.
        self._passed_over: dict[str | None, tuple[Replica, ...]] = {}
        # The lists of replicas for requests that are limited to some regions, by model and regions.
        self._residents: dict[tuple[str | None, str], Residents] = {}
        self._region_absences = RegionAbsences()
        # The context lengths of the replicas, by model.
        self.context_levels = ContextLevels(self._lengths, knowledge.ratio)
        self.nearest = Nearest(self._serving_everywhere)  # The order of regions by distance.
        self._known_models: dict[str, None] = {}
        # The answers to /v1/models, by the allowed regions ("": all regions). They are made at the
        # next request for them.
        self._model_lists: dict[str, ModelList] = {}
        # The replicas, models and regions from which the answers to /v1/models were made.
        self._listing: dict[Replica, tuple[frozenset[str] | None, str]] = {}
        self._absent_models = Absences()
        self._absent_replicas = Absences()
        # Time since which no replica is ready; set in the constructor and in `rebuild`.
        self._absent_since = clock()
        self._one_pool = True
        self._lists_models = False  # Whether any replica of the fleet lists its models.
        self.awaits_probe = False  # Whether any replica of the fleet waits for its first probe.
        # Called when the first probe of a replica has returned, or when a replica leaves the fleet
        # before its first probe.
        self.on_first_probe: Callable[[], None] | None = None
        # Called after the number of data-parallel ranks of an address has changed, with its first
        # rank and the ranks that have left.
        self.on_ranks: Callable[[Replica, Sequence[Replica]], None] | None = None
        self._has_limits = False
        self._sweeper = sweeper
        self._rng = rng
        self._on_change = on_change
        self._on_event = on_event
        # Called with a replica that may have free capacity now. Called with `None` if fleet
        # membership or fitness changed, so that everything must be recomputed.
        self.on_room: Callable[[Replica | None], None] | None = None
        # The next time (monotonic seconds) at which an ejection, a suspicion, a pause or a slow
        # start must be checked.
        self.deadline = NEVER

    # -- membership ---------------------------------------------------------------------------

    def add(self, replica: Replica) -> None:
        self.add_all((replica,))

    def add_all(self, replicas: Sequence[Replica]) -> None:
        """Add several replicas with one rebuild, because a rebuild examines all replicas."""
        self.change((), replicas)

    def remove(self, replica_id: str) -> None:
        """Remove a replica; see `change`."""
        self.change((replica_id,), ())

    def change(self, removed: Collection[str], added: Sequence[Replica]) -> None:
        """Remove replicas by ID and add others, with one rebuild.

        A removed replica gets no new request, and the requests in progress finish. Its connections
        close when they become free. A replica in `added` may replace a removed one with the same
        ID. The whole change is in force before the requests that wait for a connection to a removed
        replica are told to try again.
        """
        if not (removed or added):
            return
        gone: list[Replica] = []
        for replica_id in removed:
            leaving = self.replicas[replica_id]
            gone += leaving.ranks if not leaving.rank else (leaving,)
        added = [*with_ranks(r for r in added if not r.rank), *(r for r in added if r.rank)]
        for replica in gone:
            del self.replicas[replica.id]
            replica.removed = True
            self._same_engine.remove(replica)
            if replica.inflight:
                self.leaving.add(replica)
        self.knowledge.remove_all(gone)
        for replica in added:
            models = replica.models
            if models is not None:
                replica.models = self._pools.same(models)
            self.replicas[replica.id] = replica
            self._speeds.share(replica)
        self.knowledge.add_all(added)
        self._membership_changed()
        for replica in gone:
            replica.close()
        if any(replica.health.is_new for replica in gone):
            self._decided()

    @property
    def members(self) -> list[Replica]:
        """The replicas that can join and leave: all but the further ranks of an address."""
        return [replica for replica in self.replicas.values() if not replica.rank]

    def set_ranks(self, replica: Replica, count: int) -> None:
        """Set the number of data-parallel ranks behind the address of a replica.

        `replica`: the first rank. A rank that leaves gets no new request; its requests in progress
        finish.
        """
        before = replica.ranks
        if replica.removed or replica.rank or count == len(before):
            return
        replica.rank_count = count
        ranks = with_ranks((replica,))
        self.change([r.id for r in before[count:]], ranks[len(before) :])
        tell = self.on_ranks
        if tell is not None:
            tell(replica, before[count:])
        self._on_event(f"has {count} data-parallel ranks", replica)

    def adopt_names(self, names: Names) -> None:
        """Use the names of another configuration for all later requests."""
        self.names = names
        self._model_lists.clear()
        self.rebuild()

    def set_standby(self, ids: Collection[str]) -> None:
        """Hold back the replicas with these IDs, and no others. See `Replica.is_standby`."""
        changed = [r for r in self.replicas.values() if r.is_standby != (r.ranks[0].id in ids)]
        for replica in changed:
            replica.is_standby = not replica.is_standby
        if changed:
            self.rebuild()

    def set_duty(self, replica: Replica, duty: int) -> None:
        """Cordon a replica, or return it to service. `duty`: see `membership.Duty`."""
        if duty != replica.duty:
            for rank in replica.ranks:
                rank.duty = duty
            self.rebuild()

    def attempt_ended(self, replica: Replica, dispatched: float = NEVER) -> None:
        """Note the release of a lease, whose attempt was dispatched at `dispatched`."""
        if replica.removed and not replica.inflight:
            self.leaving.discard(replica)
        if replica.before_trial and dispatched < replica.health.ended:
            replica.before_trial -= 1
            replica.limit = replica.limit_now
        self._room(replica)

    def _room(self, replica: Replica | None) -> None:
        tell = self.on_room
        if tell is not None:
            tell(replica)

    def _membership_changed(self) -> None:
        self._on_change(frozenset(self.replicas))
        self.rebuild()

    # -- selection ----------------------------------------------------------------------------

    def eligible(
        self,
        model: str | None,
        allowed: Allowed | None,
        tried: Collection[object] = (),
        *,
        anyone: bool = False,
    ) -> Sequence[Replica]:
        """Return the fit replicas for a model that are not in `tried`.

        `model`: `None` if the request names no model. `allowed`: the regions to which the request
        may be sent; `None`: all regions. `anyone`: the request needs no model, so any fit replica
        can take it. Raises RouterError if no replica can take the request.
        """
        if model is None and not self._one_pool and not anyone:
            raise _unnamed()
        found: Sequence[Replica] = self.serving(model, allowed)
        if tried:
            found = [r for r in found if r not in tried]
            if not found:
                found = [r for r in self._passed_over_by(model, allowed) if r not in tried]
        if not found:
            raise self._none_for(model, allowed)
        if self._has_limits:
            found = [r for r in found if r.inflight < r.limit]
            if not found:
                raise RouterError(
                    Reason.FLEET_FULL, "every replica is at its limit", retry_after_s=1
                )
        return found

    def check(self, model: str | None, allowed: Allowed | None) -> None:
        """Raise RouterError if waiting would not help: replicas are ready, but none lists the
        model; no replica of the allowed regions serves it; or the request must name a model."""
        if model is None:
            if not self._one_pool:
                raise _unnamed()
        elif self._is_unknown(model):
            raise self._none_for(model, None)
        if allowed is not None and not self._resident(model, allowed).is_served:
            raise not_allowed(model, allowed)

    def refusal(self, model: str | None, allowed: Allowed | None) -> RouterError | None:
        """Return the error for requests that wait for a model that no allowed region has.

        The result is `None` if the requests must continue to wait.

        The result is `None` while the first probe of a replica is pending, because that replica may
        list the model.
        """
        if self.awaits_probe:
            return None
        if model is not None and self._is_unknown(model):
            return self._none_for(model, None)
        if allowed is not None and not self._resident(model, allowed).is_served:
            return not_allowed(model, allowed)
        return None

    def _is_unknown(self, model: str) -> bool:
        return (
            bool(self.ready) and model not in self._known_models and not self.serving(model, None)
        )

    def routed(self, model: str | None) -> str | None:
        """Return the model by which a request is queued and routed: the named model, or the model
        that stands for a name that no replica lists."""
        if model is None or model in self._by_model or not self._by_model:
            return model  # `_by_model` also has the names of targets with a pool.
        return self.aliases.of(model)

    def routed_target(self, target: Target) -> str | None:
        """Return the model by which a request for a target is queued and routed.

        No other model stands for a target with a pool, because only the pool may serve it.
        """
        return target.routed if target.pool else self.routed(target.routed)

    def serving(self, model: str | None, allowed: Allowed | None) -> tuple[Replica, ...]:
        """Return the fit replicas for a model in the allowed regions (`None`: all regions),
        including those that have reached their limit of requests. The tuple stays the same object
        until the fleet changes."""
        if allowed is not None:
            return self._resident(model, allowed).preferred
        return self._serving_everywhere(model)

    def _serving_everywhere(self, model: str | None) -> tuple[Replica, ...]:
        if model is None:
            return self.ready
        found = self._by_model.get(model)
        if found:
            return found
        return () if model in self.names.pooled else self._any_model

    def _passed_over_by(self, model: str | None, allowed: Allowed | None) -> tuple[Replica, ...]:
        """Return the fit replicas for a model that are not preferred."""
        if allowed is not None:
            return self._resident(model, allowed).others
        return self._passed_over.get(model, ())

    def fits(self, replica: Replica, model: str | None, allowed: Allowed) -> bool:
        """Whether a replica is in the allowed regions, and its context may be long enough."""
        if not allowed.allows(replica.region):
            return False
        return not allowed.context or replica.lengths.fits(self._own_name(model), allowed.context)

    def _lengths(self, model: str | None) -> list[int]:
        """Return the context length of each replica that serves a model or may serve it."""
        name = self._own_name(model)
        return [r.lengths.of(name) for r in self._known(model)]

    def _known(self, model: str | None) -> list[Replica]:
        return [r for r in self.replicas.values() if self._may_serve(r, model)]

    def _own_name(self, model: str | None) -> str | None:
        """Return the name of a model in the lists of replicas."""
        target = None if model is None else self.names.pooled.get(model)
        return model if target is None else self._listed_name(target.model)

    def _resident(self, model: str | None, allowed: Allowed) -> Residents:
        """Return the replicas for a model in the allowed regions."""
        if model is not None and model not in self._by_model:
            model = ""  # Clients may invent names of models, so these names share one entry.
        key = (model, allowed.lane)
        found = self._residents.get(key)
        if found is None:
            fit: list[Replica] = [*self._serving_everywhere(model)]
            fit += self._passed_over.get(model, ())
            found = self._residents[key] = Residents(
                fit, self._known(model), allowed, self._own_name(model), self._clock()
            )
        return found

    def absent_since(self, model: str | None, allowed: Allowed | None) -> float:
        """Return the time since which no fit replica of the allowed regions serves a model.

        `model`: `None` means any model. `allowed`: `None` means all regions. Infinity: a fit
        replica serves the model.
        """
        if self.serving(model, allowed):
            return NEVER
        if allowed is not None and allowed.context:
            own = self._resident(model, allowed).own
            times = [self.replica_absent_since(replica.id) for replica in own]
            return max(times, default=self._absent_since)
        if allowed is not None and self.nearest.is_used:
            lost = self._region_absences.since(model, allowed)
            if lost is not None:
                return lost
        since = None if model is None else self._absent_models.since(model)
        return self._absent_since if since is None else since

    def replica_absent_since(self, replica_id: str) -> float:
        """Return the time since which a replica has not been fit.

        Infinity: the replica is fit; minus infinity: the replica is unknown.
        """
        if replica_id in self.ready_ids:
            return NEVER
        since = self._absent_replicas.since(replica_id)
        return -NEVER if since is None else since

    def _none_for(self, model: str | None, allowed: Allowed | None) -> RouterError:
        if allowed is not None:
            residents = self._resident(model, allowed)
            if not residents.is_served:
                return not_allowed(model, allowed)
            if residents.is_short and not residents.preferred:
                words = "no replica is up whose context is long enough for this request"
                return RouterError(Reason.NO_REPLICA, words, retry_after_s=RETRY_AFTER_S)
            if self.ready and not residents.preferred and allowed.regions is not None:
                words = f"no replica is up in the regions that this key may use ({allowed})"
                return RouterError(Reason.NO_REPLICA, words, retry_after_s=RETRY_AFTER_S)
        if not self.ready:
            return RouterError(Reason.NO_REPLICA, "no replica is up", retry_after_s=RETRY_AFTER_S)
        if model is not None and model not in self._known_models:
            return RouterError(
                Reason.MODEL_NOT_FOUND, f"the model `{model}` does not exist", param="model"
            )
        return RouterError(
            Reason.MODEL_RESTARTING,
            "no replica serves this model at the moment",
            retry_after_s=RETRY_AFTER_S,
        )

    def owner_of(self, response: str, party: str, allowed: Allowed | None) -> Replica | None:
        """Return the fit replica that holds a stored response; `None` if no holder is known.

        Raises RouterError if the replica is known but not available, if it is not in an allowed
        region, or if the response belongs to another client (`party`).
        """
        replica_id = self.response_affinity.find(response, party)
        if replica_id is None:
            return None
        ready = self.ready_ids.get(replica_id)
        if ready is not None:
            if allowed is not None and not allowed.allows(ready.region):
                raise not_allowed(None, allowed)
            return ready
        if replica_id in self.replicas:
            raise RouterError(
                Reason.NO_REPLICA,
                "the replica that holds this response is not up",
                retry_after_s=RETRY_AFTER_S,
            )
        raise RouterError(Reason.STATE_LOST, "the replica that held this response is gone")

    def pinned(self, replica_id: str, allowed: Allowed | None) -> Replica | None:
        """Return the replica with an ID if it is fit and in an allowed region, else `None`."""
        found = self.ready_ids.get(replica_id)
        return found if found is None or _is_allowed(found, allowed) else None

    def refusal_of_pinned(self, replica_id: str, allowed: Allowed | None) -> RouterError | None:
        """Return the error for requests that wait for one replica that is in no allowed region.

        The result is `None` if the requests must continue to wait.
        """
        found = self.replicas.get(replica_id)
        if allowed is None or found is None or _is_allowed(found, allowed):
            return None
        return not_allowed(None, allowed)

    def models_of(self, replica: Replica) -> frozenset[str] | None:
        """Return the models that a replica serves, whether or not it is fit; `None` means any
        model."""
        models = replica.models
        if models is None:
            return frozenset() if self._lists_models else None
        if not self.names.pooled:
            return models
        return models | {name for name in self.names.pooled if self._may_serve(replica, name)}

    def served_text(self, models: Collection[str] | None, allowed: Allowed | None) -> str:
        """Return the served models as text for an error message.

        `models`: the models that the client may use; `None`: all. `allowed`: the regions to which
        its requests may be sent; `None`: all.
        """
        names: Iterable[str] = self._by_model
        if self.names.is_used:
            names = {name for name in self._by_model if name not in self.names.pooled}
            names |= {named.name for named in self.names.aliases}
        if allowed is not None:
            listed = self.model_list(allowed)
            names = [name for name in names if listed.entry(name) is not None]
        return served_text(names, models)

    @property
    def known_models(self) -> dict[str, None]:
        return self._known_models

    def model_list(self, allowed: Allowed | None) -> ModelList:
        """Return the answer to /v1/models: for each model the entry of its first ready replica.

        `allowed`: only models of replicas in these regions; `None`: all regions. Ejected replicas
        of these regions count, too, because they are used if no other one is up (`Residents`).
        """
        key = "" if allowed is None else allowed.lane
        models = self._model_lists.get(key)
        if models is None:
            if len(self._model_lists) >= _LISTS_MAX:
                self._model_lists.clear()
            self._model_lists[key] = models = ModelList(self._model_objects(allowed))
        return models

    def _model_objects(self, allowed: Allowed | None) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        listed: Iterable[Replica] = self.ready_ids.values()
        if allowed is not None:
            replicas = self.replicas.values()
            listed = [r for r in replicas if allowed.allows(r.region) and _is_listed(r)]
        for replica in listed:
            for name, entry in replica.objects.items():
                found.setdefault(name, entry)
            for name in sorted((replica.models or frozenset()) - {ANY}):
                found.setdefault(
                    name, {"id": name, "object": "model", "created": 0, "owned_by": "hedgerow"}
                )
        for named in self.names.aliases:
            for target in named.targets:
                shown = found.get(self._listed_name(target.model))
                if shown is not None and self.serving(target.routed, allowed):
                    found.setdefault(named.name, {**shown, "id": named.name})
        return found

    # -- results of requests and polls --------------------------------------------------------

    def succeeded(
        self, replica: Replica, dispatched: float | None = None, *, content: bool = True
    ) -> None:
        """Record that an attempt succeeded. `content`: the attempt was a request to generate
        content."""
        replica.served += 1
        health = replica.health
        if health.refusals:
            health.took(dispatched)
        if health.failures or health.half_open or health.suspected_at is not None:
            if health.succeeded(self._clock(), content=content, dispatched=dispatched):
                self._on_event("recovered", replica)
            self.rebuild()

    def showed_content(
        self,
        replica: Replica,
        now: float,
        dispatched: float,
        ttft_s: float | None,
        tokens: int,
        is_alone: bool = True,
        is_timed: bool = True,
    ) -> None:
        """Record the first content of an attempt. `ttft_s`: time to first token; `None` if the
        content is the whole answer.

        `is_alone`: no other request waited at the replica when this one was sent. `is_timed`: False
        if the content may have arrived before it was read; then the time is not used.
        """
        progress = replica.progress
        progress.at = now
        if not is_timed:
            pass
        elif ttft_s is not None:
            if ttft_s < replica.speed.rtt_s:  # No content comes sooner than a round trip takes.
                self.timed(replica, ttft_s)
            replica.answered(ttft_s, tokens, is_alone)
        else:
            progress.whole_answer(now - dispatched)
        health = replica.health
        if health.suspected_at is not None or health.zombie:
            if health.showed_content(now, dispatched):
                self._on_event("recovered", replica)
            self.rebuild()
        elif health.races_lost or health.refusals:
            health.showed_content(now, dispatched)
        self._room(replica)

    def overdue(
        self, replica: Replica, dispatched: float, now: float, request_id: bytes = b""
    ) -> float:
        """Record that the first token of an attempt is overdue. `dispatched`: when the attempt was
        sent.

        Returns when to check the attempt again, if the replica still works for other requests.
        Returns NEVER if the attempt now counts against the replica, or if the replica has left the
        fleet.
        """
        if replica.removed:
            return NEVER
        silent_since = max(replica.progress.at, dispatched)
        again = silent_since + replica.silence_s(now)
        if again > now:
            return again
        health = replica.health
        was_suspect = health.is_suspect(now) or health.is_ejected(now)
        is_ejected = health.overdue(now, self._rng, self._may_eject(replica, now), dispatched)
        if not is_ejected and (was_suspect or not health.is_suspect(now)):
            return NEVER
        health.why = (
            f"no first token for {now - dispatched:.1f} s, usual {replica.progress.first_s:.2f} s, "
            f"and no sign of work for {now - silent_since:.1f} s{_by(request_id)}"
        )
        self._turned_against(replica, is_ejected)
        return NEVER

    def outrun(self, replica: Replica, dispatched: float, now: float) -> bool:
        """Record that an attempt lost the race to its hedged copy, which was sent later.

        Returns True if the lost race makes the replica suspect or ejects it. If the replica has
        shown work since `dispatched`, it was busy and did not hang. Then only its weight is lowered
        for a while.
        """
        if replica.removed:
            return False
        health = replica.health
        health.lags(now)
        replica.weight = replica.config.weight * health.factor(now)
        self._arm(now)
        if replica.progress.at > dispatched:
            return False
        was_suspect = health.is_suspect(now)
        may_eject = health.races_lost + 1 >= RACES and self._may_eject(replica, now)
        is_ejected = health.outrun(now, self._rng, may_eject)
        if not is_ejected and (was_suspect or not health.is_suspect(now)):
            return False
        health.why = f"{health.races_lost} races in a row lost to copies, without a sign of work"
        self._turned_against(replica, is_ejected)
        return True

    def _turned_against(self, replica: Replica, is_ejected: bool) -> None:
        """Report that the replica has just become suspect or was ejected, and rebuild the table."""
        self._on_event("ejected" if is_ejected else "suspect", replica)
        if is_ejected:
            replica.give_up()
        self.rebuild()

    def busy(self, replica: Replica, retry_after: bytes | None, now: float) -> None:
        """Record an answer 429 or 503: the replica is busy, and is avoided for a while.

        `retry_after`: the value of the answer's Retry-After header; `None`: it has none.
        """
        if replica.removed:
            return
        pause_s = None if retry_after is None else seconds_of(retry_after, time())
        if not replica.health.refused(now, self._rng, pause_s):
            return
        if len(self.replicas) <= LARGE:
            self.rebuild()
        # If all replicas are busy, rebuilding the table for each answer would take too much CPU
        # time.
        else:
            self.deadline = min(self.deadline, now)
            self._sweeper.add(self)

    def failed(
        self,
        replica: Replica,
        reason: Reason,
        dispatched: float = NEVER,
        shown: float = NEVER,
        *,
        was_overdue: bool = False,
        request_id: bytes = b"",
    ) -> None:
        """Record that an attempt at the replica failed.

        `dispatched`: when the attempt was sent. `shown`: when the attempt last showed content, or
        else `dispatched`.
        """
        if reason not in BLAMED or replica.removed:
            return
        if reason is Reason.CONNECT_FAILED and replica.duty != Duty.IN_SERVICE:
            return  # Requests that wait for a connection leave a reclaimed replica.
        now = self._clock()
        if reason in UNCONNECTED:
            # No rank of the address can be reached.
            for other in replica.ranks:
                if other is replica or other.removed:
                    continue
                if other.health.failed(now, self._rng, self._may_eject(other, now)):
                    other.health.why = f"{reason.value} at rank {replica.rank}"
                    self._turned_against(other, True)
        if reason in SILENT:
            worked_at = replica.progress.at
            if worked_at > shown + _SAME_S and now - worked_at < replica.silence_s(now):
                return  # The replica works for other requests, so the failure does not count.
        health = replica.health
        may_eject = self._may_eject(replica, now)
        if health.failed(
            now,
            self._rng,
            may_eject,
            was_overdue=was_overdue,
            dispatched=None if dispatched == NEVER else dispatched,
        ):
            last = f"{reason.value}{_by(request_id)}"
            health.why = f"{health.failures} failures in a row, the last: {last}"
            self._turned_against(replica, True)

    def probed(self, replica: Replica, good: bool, *, at_start: bool = False) -> None:
        """Record the result of an active probe.

        `learned` must be called with the model list before a good probe is reported. `at_start`:
        the router itself has just started, so the replica may have been running for a long time.
        """
        health = replica.health
        was_new = health.is_new
        if replica.removed or not self._probed(replica, good):
            return
        # Connections that were opened before the change may be stale, so they are closed, as in
        # Envoy.
        if health.up:
            replica.close_idle()
        else:
            replica.give_up()
        if at_start and health.up:
            for rank in replica.ranks:
                rank.health.warm_since = None
        else:
            self._on_event("up" if health.up else "down", replica)
        self.rebuild()
        if was_new:
            self._decided()

    def _probed(self, replica: Replica, good: bool) -> bool:
        """Record a probe of the address for all of its ranks. Returns whether a state changed."""
        now = self._clock()
        has_changed = False
        for rank in replica.ranks:
            has_changed = rank.health.probed(good, now) or has_changed
        return has_changed

    def _decided(self) -> None:
        tell = self.on_first_probe
        if tell is not None:
            tell()

    def learned(self, replica: Replica, objects: dict[str, dict[str, Any]]) -> None:
        """Record the replica's answer to /v1/models.

        The model list of a replica is kept while the replica restarts.
        """
        changed = [self._learned(rank, objects) for rank in replica.ranks]
        if any(changed):
            self.rebuild()

    def _learned(self, replica: Replica, objects: dict[str, dict[str, Any]]) -> bool:
        """Returns whether the table must be rebuilt."""
        listed = frozenset(objects)
        if len(listed) >= MODELS_MOST and listed != replica.listed:
            self._on_event("models_left_out", replica)
        reported = read_lengths(objects)
        # Some engines report the length on another path, which is read after the model list.
        if reported != UNKNOWN or listed != replica.listed:
            replica.reported_lengths = reported
        lengths = lengths_of(replica.config.max_model_len, replica.reported_lengths)
        replica.listed = listed
        listed_adapters = adapters(objects)
        models = served(replica.config, replica.listed)
        assert models is not None, "the replica has just listed its models"
        shown = {name: entry for name, entry in objects.items() if name in models}
        if shown != replica.objects:
            replica.objects = shown
            self._model_lists.clear()
        self._noticed(replica)
        models = self._pools.same(models)
        is_other = replica.adapters != listed_adapters
        replica.adapters = listed_adapters
        if is_other or models != replica.models or lengths != replica.lengths:
            replica.models = models
            replica.lengths = lengths
            return True
        return False

    def _noticed(self, replica: Replica) -> None:
        """Note an answer from the replica: the engine may have been detected by this answer."""
        self.dialects.noticed(replica)
        self.aliases.noticed(replica)
        self.defaults.noticed(replica)

    def observed(self, replica: Replica, signals: Signals, poll: int, now: float) -> None:
        """Record the result of a poll of the replica's metrics. `poll`: the poll's number, from
        `poll_begins`."""
        if replica.removed:
            return
        before, last = replica.signals, replica.last_signals
        replica.signals = replica.last_signals = signals
        replica.signals_at = now
        replica.slots = signals.slots
        self._noticed(replica)
        self._same_engine.observed(replica, last)
        replica.polls_awaited = 0
        poll_counted(replica, poll, signals.running, signals.waiting, now)
        if signals.kv_tokens is not None:
            replica.kv_tokens = signals.kv_tokens
        report_kv(replica, signals.kv_usage, signals.running)
        replica.learned.observed(
            signals.running,
            signals.waiting,
            signals.kv_usage,
            signals.preemptions,
            replica.pending_tokens,
            replica.inflight,
        )
        if replica.adapters:
            replica.loaded_adapters.reported(signals.adapters, signals.adapter_slots)
        replica.cadence_s = replica.cadence.look(now)
        replica.speed_learner.look(replica, now)
        self._speeds.share(replica)
        if has_worked(last, signals):
            replica.progress.at = now
            if self._look(replica, now):
                self.rebuild()
        self.knowledge.sized(replica)
        self.knowledge.tend()
        if restarted(last, signals):  # The signals in `last` may be older than `stale_s`.
            self.knowledge.restarted(replica)
            replica.learned.forget()
            replica.loaded_adapters.clear()
            replica.health.begins_slowly(now)
            # The new process may be another version of the engine.
            replica.refuses_priority = False
            self._on_event("restarted", replica)
        elif replica.misses_cache(last.cache_hits, signals.cache_hits, now):
            self.knowledge.restarted(replica)
            self._on_event("cache_reset", replica)
        if signals.asleep != before.asleep:
            if signals.asleep:  # A sleeping vLLM or SGLang frees the memory of the KV cache.
                replica.loaded_adapters.clear()
                self.knowledge.restarted(replica)
            self._on_event("asleep" if signals.asleep else "awake", replica)
            self.rebuild()
        self._room(replica)

    def timed(self, replica: Replica, round_trip_s: float) -> None:
        """Store a measured round-trip time to the replica's address, in seconds."""
        for rank in replica.ranks:
            rank.round_trip.add(round_trip_s, self._clock())
            rank.speed.rtt_s = rank.round_trip.seconds

    def load_reported(self, replica: Replica, value: bytes) -> None:
        """Read the header `endpoint-load-metrics` of a response. vLLM sends this header if the
        client's request asked for it."""
        usage = read_load_header(value).kv_usage
        if usage is not None:
            report_kv(replica, usage, max(0, replica.load - replica.waiting))

    def unobserved(self, replica: Replica, problem: str, now: float) -> None:
        """Record a poll without a result. The last signals stay valid until they are too old
        (`stale_s`)."""
        self.polls_failed[problem] = self.polls_failed.get(problem, 0) + 1
        self._noticed(replica)
        poll_failed(replica)
        if replica.polls_awaited:
            replica.polls_awaited = 0 if problem in WITHOUT_METRICS else replica.polls_awaited - 1
        replica.cadence_s = replica.cadence.look(now)
        replica.speed_learner.look(replica, now)
        self._speeds.share(replica)
        if replica.signals is not NO_SIGNALS and now - replica.signals_at > self.stale_s:
            was_asleep = replica.signals.asleep
            replica.signals = NO_SIGNALS
            report_kv(replica, None, None)
            replica.slots = None
            signals_lost(replica)
            if was_asleep:
                self.rebuild()
        self._room(replica)

    def _may_eject(self, replica: Replica, now: float) -> bool:
        """Return whether each pool that the replica serves keeps enough other replicas."""
        is_fit = not replica.is_away and not replica.health.is_ejected(now)
        share = self.rules.eject_share
        pools = self._pools.of(replica.models)
        return len(pools) > 0 and all(pool.may_eject(is_fit, share) for pool in pools)

    def on_deadline(self, now: float) -> None:
        for replica in self.replicas.values():
            self._look(replica, now)
        self.rebuild()

    def _look(self, replica: Replica, now: float) -> bool:
        """Return whether an ejection or a suspicion of the replica has just ended."""
        health, worked_at = replica.health, replica.progress.at
        if health.reopened(now) or health.revived(now, worked_at):
            replica.before_trial = replica.inflight
            self._on_event("half_open", replica)
            return True
        return health.unsuspected(worked_at)

    @property
    def panic(self) -> dict[str, bool]:
        """For each model, whether so few replicas are fit that unfit replicas receive requests,
        too."""
        return {name: pool.is_panicking for name, pool in self._pools.names.items()}

    def rebuild(self) -> None:
        """Compute again everything that requests read: the fit and preferred replicas, the pools
        and the model list."""
        now = self._clock()
        self.dialects.changed()
        self.aliases.changed()
        self.defaults.changed()
        away: set[Replica] = set()
        ejected: set[Replica] = set()
        awaits_list = False
        for replica in self.replicas.values():
            health = replica.health
            if replica.is_away:
                away.add(replica)
                awaits_list = awaits_list or replica.models is None
            if health.is_ejected(now):
                ejected.add(replica)
            replica.weight = replica.config.weight * health.factor(now)
            replica.limit = replica.limit_now
        self._look_at_models()
        # If other replicas list models, a replica that lists none is in no pool and gets no
        # request.
        lists = self._lists_models
        pools = ModelPools(r for r in self.replicas.values() if not lists or r.models is not None)
        self._pools = pools
        self._by_model = {}
        self._passed_over = {}
        self._residents = {}
        candidates: set[Replica] = set()
        for pool in pools.all:
            pool.judge(away, ejected, self.rules.panic_share)
            found = pool.candidates
            candidates.update(found)
            preferred = tuple(preferred_of(found, now))
            for name in pool.names:
                self._by_model[name] = preferred
            if len(preferred) < len(found):
                others = without(found, preferred)
                for name in pool.names:
                    self._passed_over[name] = others
        self._any_model = tuple(preferred_of(pools.any.candidates, now))
        for name, target in self.names.pooled.items():
            self._gather(name, target, now)
        ready = [r for r in self.replicas.values() if r in candidates]
        if not ready and self.ready_ids:
            self._absent_since = now
        self.ready_ids = {r.id: r for r in ready}
        for replica in self.replicas.values():
            replica.is_fit = replica in candidates
        listing = {r: (r.models, r.region) for r in self.replicas.values() if _is_listed(r)}
        if listing != self._listing:
            self._listing = listing
            self._model_lists.clear()
        self.ready = tuple(preferred_of(ready, now))
        if len(self.ready) < len(ready):
            self._passed_over[None] = without(ready, self.ready)
        self._has_limits = any(r.limit != UNLIMITED for r in self.replicas.values())
        self._one_pool = len(pools.all) - bool(pools.any.members) <= 1
        self._remember(awaits_list)
        known = self._known_models
        served = known if self._any_model else {m for m, found in self._by_model.items() if found}
        self._absent_models.update(known, served, now)
        self._absent_replicas.update(self.replicas, self.ready_ids, now)
        self.nearest.rebuilt(list(self.replicas.values()))
        pooled = self.names.pooled
        self.adapter_names.rebuilt(
            [replica.adapters for replica in self.replicas.values()],
            {name: self._listed_name(target.model) for name, target in pooled.items()},
        )
        self.context_levels.rebuilt(
            {r: (r.lengths, r.models) for r in self.replicas.values()},
        )
        self._region_absences.update(pools.all if self.nearest.is_used else (), now)
        self._arm(now)
        self._room(None)

    def _gather(self, name: str, target: Target, now: float) -> None:
        """List the replicas of a target's pool under the name `model@pool`."""
        pool = self._pools.names.get(self._listed_name(target.model), self._pools.any)
        found = [r for r in pool.candidates if r.config.pool == target.pool]
        self._by_model[name] = preferred = tuple(preferred_of(found, now))
        if len(preferred) < len(found):
            self._passed_over[name] = without(found, preferred)

    def _listed_name(self, model: str) -> str:
        """Return a model's name if a replica lists it, else the model that stands for it."""
        return model if model in self._pools.names else self.aliases.of(model)

    def _may_serve(self, replica: Replica, model: str | None) -> bool:
        """Whether a replica serves a model, or may serve it because its models are not known yet.

        The replica need not be fit. `model`: `None` means any model.
        """
        models = replica.models
        target = None if model is None else self.names.pooled.get(model)
        if target is not None:
            if target.pool != replica.config.pool:
                return False
            model = self._listed_name(target.model)
        if models is None:
            return not replica.is_unlisted
        return model is None or model in models

    def _remember(self, awaits_list: bool) -> None:
        """Remember all models that a replica lists, whether or not it is up.

        The names of targets with a pool are remembered as long as they are configured. A model
        that no replica lists any more is forgotten. `awaits_list`: a replica that is down
        or asleep has not listed its models yet; then no model is forgotten.
        """
        listed, known = self._pools.names, self._known_models
        for name in listed:
            if len(known) >= _KNOWN_MAX:
                break
            known[name] = None
        if len(known) > len(listed) and not awaits_list:
            for name in [name for name in known if name not in listed]:
                del known[name]
        for name in self.names.pooled:
            known[name] = None

    def _look_at_models(self) -> None:
        """Find the replicas whose models are unknown while other replicas list their models."""
        self.awaits_probe = False
        self._lists_models = any(r.models is not None for r in self.replicas.values())
        for replica in self.replicas.values():
            health = replica.health
            if health.is_new:
                self.awaits_probe = True
            was_unlisted = replica.is_unlisted
            replica.is_unlisted = self._lists_models and replica.models is None and health.up
            if replica.is_unlisted and not was_unlisted:
                self._on_event("lists no models", replica)

    def _arm(self, now: float) -> None:
        """Schedule the next check: at the end of an ejection or a pause, and repeatedly during a
        suspicion or while a weight is lowered."""
        due: list[float] = []
        for replica in self.replicas.values():
            health = replica.health
            if health.ejected_until:
                due.append(health.ejected_until)
                if health.zombie:
                    due.append(now + SUSPICION_S)
            if health.is_busy(now):
                due.append(health.busy_until)
            if health.is_suspect(now):
                due.append(now + SUSPICION_S)
            if health.factor(now) < 1.0:
                due.append(now + WARMING_S)
        self.deadline = min(due) if due else NEVER
        if due:
            self._sweeper.add(self)
        else:
            self._sweeper.discard(self)


def _unnamed() -> RouterError:
    return RouterError(
        Reason.MODEL_REQUIRED,
        "the fleet serves several models: name one in `model`",
        param="model",
    )


def _by(request_id: bytes) -> str:
    """Return text for people that names the request by its id; "" if the request has no id."""
    return f"; request {request_id.decode('latin-1')}" if request_id else ""


def _is_listed(replica: Replica) -> bool:
    """Whether a list of models for some request contains the models of the replica."""
    return replica.is_fit or not replica.is_away


def _is_allowed(replica: Replica, allowed: Allowed | None) -> bool:
    return allowed is None or allowed.allows(replica.region)
