"""The fleet: which replicas exist, which are fit, who serves which model.

Requests read two prepared structures, `ready` and the lists per model; whatever changes the fleet
(a probe, a failure, a reload, a model list) rebuilds them. What comes back from requests re-enters
only here: `succeeded`, `failed`, `outrun`, `busy`, `attempt_ended`.

What is not known is not eligible. A replica waits for its first good probe and for its model list;
one that lists no models serves any model only where no replica of the fleet lists its own.

Which replicas are fit and which of them are preferred are two questions, asked for each model: a
replica that is suspect or busy is passed over as long as one that is neither serves the model.

A replica is ejected only where each pool that it serves (`model_pools.py`) keeps another fit one.
Nothing that only says that a replica was silent counts while the replica shows work.

Must never: do I/O, or make a request wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from random import Random
from time import monotonic, time
from typing import Any

from router.config.model import Health as HealthRules
from router.core.errors import Reason, RouterError
from router.core.kv_estimate import report_kv
from router.core.lease import poll_counted, poll_failed, signals_lost
from router.core.replica_load import UNLIMITED
from router.fleet.absences import Absences
from router.fleet.aliases import Aliases
from router.fleet.defaults import Defaults
from router.fleet.dialects import Dialects
from router.fleet.engines.common.models import MODELS_MOST, adapters
from router.fleet.engines.common.orca import read_load_header
from router.fleet.health import BLAMED, RACES, SILENT
from router.fleet.listed import ANY, served, told
from router.fleet.model_list import ModelList
from router.fleet.model_pools import ModelPools
from router.fleet.prefix_lookup import PrefixLookup
from router.fleet.replica import Replica
from router.fleet.response_affinity import ResponseAffinity
from router.fleet.same_engine import SameEngine
from router.fleet.signal_changes import has_worked, restarted
from router.fleet.signals import NO_SIGNALS, Signals
from router.wire.retry_after import seconds_of
from router.wire.sweep import NEVER, Register

RETRY_AFTER_S = 2  # a replica that was just lost is back, or ejected, within seconds
SUSPICION_S = 1.0  # between two looks at a suspect or an ejected zombie, ...
WARMING_S = 0.5  # ... and between two steps of a slow start
POLLS_AWAITED = 3  # in a row that fail, until an engine is taken for one that tells nothing ...
TELLS_NOTHING = frozenset(("status", "garbage", "nothing"))  # ... or one that fails like this
LARGE = 64  # replicas; of a larger fleet the next tick passes over all that refused meanwhile
_KNOWN_MAX = 10_000  # model names remembered through restarts
_SAME_S = 0.001  # an attempt's own last content is no later sign of work


class Fleet:
    """All replicas by id. `on_change` is told which ids exist after each change."""

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
        self.stale_s = stale_s  # older signals count as unknown
        self._clock = clock
        self.polls_failed: dict[str, int] = {}  # by what was wrong
        self.rules = rules
        self.replicas: dict[str, Replica] = {}
        self.dialects = Dialects(self.replicas)  # what a number in a client's body means
        self.aliases = Aliases(self.replicas)  # for names that nobody lists
        self.defaults = Defaults(self.replicas)  # for engines that do not read a body's `model`
        self.leaving: set[Replica] = set()  # removed, with leases still out
        self.owners = ResponseAffinity()
        self._same_engine = SameEngine()
        self.ready: tuple[Replica, ...] = ()  # tuples: a policy sees these very objects
        self.ready_ids: dict[str, Replica] = {}
        self._pools = ModelPools()
        self._by_model: dict[str, tuple[Replica, ...]] = {}
        self._any_model: tuple[Replica, ...] = ()  # ready, where no replica tells its models
        # Fit and passed over, for when everybody else was tried; None: of the whole fleet.
        self._passed_over: dict[str | None, tuple[Replica, ...]] = {}
        self._known_models: dict[str, None] = {}
        self._model_list: ModelList | None = None  # None: to be made anew when asked for
        self._listing: dict[Replica, frozenset[str] | None] = {}  # the replicas that it is made of
        self._absent_models = Absences()
        self._absent_replicas = Absences()
        self._absent_since = clock()  # when the fleet became empty last: here, or in `rebuild`
        self._one_pool = True
        self._lists_models = False  # a replica of the fleet tells its models
        self.awaits_probe = False  # a replica of the fleet waits for its first probe
        # Told when one has had it, or has left the fleet without.
        self.on_first_probe: Callable[[], None] | None = None
        self._has_limits = False
        self._sweeper = sweeper
        self._rng = rng
        self._on_change = on_change
        self._on_event = on_event
        # Told of a replica that may have room now; None: of all, for the fleet is another.
        self.on_room: Callable[[Replica | None], None] | None = None
        self.deadline = NEVER  # the next ejection that runs out

    # -- membership ---------------------------------------------------------------------------

    def add(self, replica: Replica) -> None:
        self.add_all((replica,))

    def add_all(self, replicas: Sequence[Replica]) -> None:
        """Add replicas at once: each change of the fleet looks at all of its replicas."""
        if not replicas:
            return
        for replica in replicas:
            models = replica.models
            if models is not None:
                replica.models = self._pools.same(models)
            self.replicas[replica.id] = replica
        self.knowledge.add_all(replicas)
        self._membership_changed()

    def remove(self, replica_id: str, successor: Replica | None = None) -> None:
        """No new requests; those under way finish. Their connections close with them.

        `successor` takes the place and the id: who waits for a connection moves on to it.
        """
        replica = self.replicas.pop(replica_id)
        replica.removed = True
        self.knowledge.remove(replica)
        self._same_engine.remove(replica)
        if replica.inflight:
            self.leaving.add(replica)
        if successor is not None:
            self.replicas[successor.id] = successor
            self.knowledge.add(successor)
        self._membership_changed()
        replica.close()
        if replica.health.is_new:
            self._decided()

    def attempt_ended(self, replica: Replica, dispatched: float = NEVER) -> None:
        """A lease of a replica was given back, of an attempt that was dispatched then."""
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
        self, model: str | None, tried: Collection[object] = (), *, anyone: bool = False
    ) -> Sequence[Replica]:
        """Fit replicas for a model (None: the request names none) that are not in `tried`.

        `anyone`: no model is needed, whatever the fleet serves.
        Raises RouterError if there is none.
        """
        if model is None and not self._one_pool and not anyone:
            raise _unnamed()
        found: Sequence[Replica] = self.serving(model)
        if tried:
            found = [r for r in found if r not in tried]
            if not found and self._passed_over:
                found = [r for r in self._passed_over.get(model, ()) if r not in tried]
        if not found:
            raise self._none_for(model)
        if self._has_limits:
            found = [r for r in found if r.inflight < r.limit]
            if not found:
                raise RouterError(
                    Reason.FLEET_FULL, "every replica is at its limit", retry_after_s=1
                )
        return found

    def check(self, model: str | None) -> None:
        """Raises RouterError where no wait would help: the fleet is there, and nobody knows the
        model, or it has to be named."""
        if model is None:
            if not self._one_pool:
                raise _unnamed()
        elif self._is_unknown(model):
            raise self._none_for(model)

    def refusal(self, model: str) -> RouterError | None:
        """The error for requests that wait for a model that does not exist; None: they wait on.

        While a first probe is under way, its replica may still list the model.
        """
        if self.awaits_probe or not self._is_unknown(model):
            return None
        return self._none_for(model)

    def _is_unknown(self, model: str) -> bool:
        return bool(self.ready) and model not in self._known_models and not self.serving(model)

    def routed(self, model: str | None) -> str | None:
        """The model by which a request is queued and routed: the one that it names, or what stands
        for a name that nobody lists."""
        if model is None or model in self._by_model or not self._by_model:
            return model
        return self.aliases.of(model)

    def serving(self, model: str | None) -> tuple[Replica, ...]:
        """Fit replicas for a model, whether or not they have reached their limit; the same tuple
        for as long as the fleet is the same."""
        if model is None:
            return self.ready
        return self._by_model.get(model) or self._any_model

    def absent_since(self, model: str | None) -> float:
        """Since when no fit replica serves a model (None: any); infinity: one does."""
        if self.serving(model):
            return NEVER
        since = None if model is None else self._absent_models.since(model)
        return self._absent_since if since is None else since

    def replica_absent_since(self, replica_id: str) -> float:
        """Since when one replica is not fit; infinity: it is. One that has left never was."""
        if replica_id in self.ready_ids:
            return NEVER
        since = self._absent_replicas.since(replica_id)
        return -NEVER if since is None else since

    def _none_for(self, model: str | None) -> RouterError:
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

    def owner_of(self, response: str, party: str) -> Replica | None:
        """The fit replica that holds a stored response; None if nobody is known to.

        Raises RouterError if its holder is known and cannot be asked, or not by this party.
        """
        replica_id = self.owners.find(response, party)
        if replica_id is None:
            return None
        ready = self.ready_ids.get(replica_id)
        if ready is not None:
            return ready
        if replica_id in self.replicas:
            raise RouterError(
                Reason.NO_REPLICA,
                "the replica that holds this response is not up",
                retry_after_s=RETRY_AFTER_S,
            )
        raise RouterError(Reason.STATE_LOST, "the replica that held this response is gone")

    def models_of(self, replica: Replica) -> frozenset[str] | None:
        """What a replica serves, fit or not; None: any model."""
        models = replica.models
        return frozenset() if models is None and self._lists_models else models

    def told_models(self, models: Collection[str] | None) -> str:
        """The models as an error tells them to who may ask for `models` (None: any)."""
        return told(self._by_model, models)

    @property
    def known_models(self) -> dict[str, None]:
        return self._known_models

    def model_list(self) -> ModelList:
        """The answer to /v1/models: of each model the entry that its first ready replica shows."""
        models = self._model_list
        if models is None:
            self._model_list = models = ModelList(self._model_objects())
        return models

    def _model_objects(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for replica in self.ready_ids.values():
            for name, entry in replica.objects.items():
                found.setdefault(name, entry)
            for name in sorted((replica.models or frozenset()) - {ANY}):
                found.setdefault(
                    name, {"id": name, "object": "model", "created": 0, "owned_by": "hedgerow"}
                )
        return found

    # -- what comes back ----------------------------------------------------------------------

    def succeeded(
        self, replica: Replica, dispatched: float | None = None, *, content: bool = True
    ) -> None:
        """An attempt at the replica went well; `content`: it was asked to generate something."""
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
        """An attempt shows its first content; `ttft_s`: None where it is the whole answer.

        `is_alone`: no other request waited at the replica when it was sent. Not `is_timed`: the
        content may have come before it was read.
        """
        progress = replica.progress
        progress.at = now
        if not is_timed:
            pass
        elif ttft_s is not None:
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
        """The first token of an attempt that was dispatched then, for this request, is overdue.

        Returns when to look at it again, because the replica works for other requests; NEVER: the
        attempt counts against the replica, or the replica has left.
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
        """An attempt at the replica, dispatched then, lost to its copy, which was sent later: only
        such attempts are told. True: that makes the replica suspect, or ejects it.

        A replica that showed work meanwhile was busy, and did not hang.
        """
        health = replica.health
        if replica.removed or replica.progress.at > dispatched:
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
        """The replica is suspect, or ejected, from now on."""
        self._on_event("ejected" if is_ejected else "suspect", replica)
        if is_ejected:
            replica.give_up()
        self.rebuild()

    def busy(self, replica: Replica, retry_after: bytes | None, now: float) -> None:
        """The replica answered 429 or 503, with this Retry-After: it is spared for a while."""
        if replica.removed:
            return
        told_s = None if retry_after is None else seconds_of(retry_after, time())
        if not replica.health.refused(now, self._rng, told_s):
            return
        if len(self.replicas) <= LARGE:
            self.rebuild()
        else:  # where all refuse, that would be hundreds of milliseconds a second
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
        """An attempt at the replica for this request, dispatched then, ended badly; `shown`: when
        it last showed content, or was dispatched."""
        if reason not in BLAMED or replica.removed:
            return
        now = self._clock()
        if reason in SILENT:
            worked_at = replica.progress.at
            if worked_at > shown + _SAME_S and now - worked_at < replica.silence_s(now):
                return  # it works for others
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
        """An active probe came back. Tell what the replica serves (`learned`) before a good one.

        `at_start`: the router itself has just started, which says nothing of a replica's age.
        """
        health = replica.health
        was_new = health.is_new
        if replica.removed or not health.probed(good, self._clock()):
            return
        # Connections from before the change may be stale: Envoy closes them, too.
        if health.up:
            replica.close_idle()
        else:
            replica.give_up()
        if at_start and health.up:
            health.warm_since = None
        else:
            self._on_event("up" if health.up else "down", replica)
        self.rebuild()
        if was_new:
            self._decided()

    def _decided(self) -> None:
        tell = self.on_first_probe
        if tell is not None:
            tell()

    def learned(self, replica: Replica, objects: dict[str, dict[str, Any]]) -> None:
        """The replica's /v1/models, read anew. It is remembered while the replica restarts."""
        listed = frozenset(objects)
        if len(listed) >= MODELS_MOST and listed != replica.listed:
            self._on_event("models_left_out", replica)
        replica.listed = listed
        replica.adapters = adapters(objects)
        models = served(replica.config, replica.listed)
        assert models is not None, "it lists them"
        shown = {name: entry for name, entry in objects.items() if name in models}
        if shown != replica.objects:
            replica.objects = shown
            self._model_list = None
        self._noticed(replica)
        models = self._pools.same(models)
        if models != replica.models:
            replica.models = models
            self.rebuild()

    def _noticed(self, replica: Replica) -> None:
        """The router has heard from the replica, so its engine may be known by now."""
        self.dialects.noticed(replica)
        self.aliases.noticed(replica)
        self.defaults.noticed(replica)

    def observed(self, replica: Replica, signals: Signals, poll: int, now: float) -> None:
        """The answer to a poll of the replica's metrics; `poll` is what `poll_begins` gave."""
        if replica.removed:
            return
        before, told = replica.signals, replica.told
        replica.signals = replica.told = signals
        replica.signals_at = now
        replica.slots = signals.slots
        self._noticed(replica)
        self._same_engine.observed(replica, told)
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
        replica.cadence_s = replica.cadence.look(now)
        if has_worked(told, signals):
            replica.progress.at = now
            if self._look(replica, now):
                self.rebuild()
        self.knowledge.sized(replica)
        self.knowledge.tend()
        if restarted(told, signals):  # however long it was silent meanwhile
            self.knowledge.restarted(replica)
            replica.learned.forget()
            replica.health.begins_slowly(now)
            replica.refuses_priority = False  # it may be another version
            self._on_event("restarted", replica)
        elif replica.misses_cache(told.cache_hits, signals.cache_hits, now):
            self.knowledge.restarted(replica)
            self._on_event("cache_reset", replica)
        if signals.asleep != before.asleep:
            if signals.asleep:  # vLLM and SGLang give the KV cache's memory away
                self.knowledge.restarted(replica)
            self._on_event("asleep" if signals.asleep else "awake", replica)
            self.rebuild()
        self._room(replica)

    def told_by_the_way(self, replica: Replica, value: bytes) -> None:
        """A response carried `endpoint-load-metrics` (vLLM, where its client asked for it)."""
        usage = read_load_header(value).kv_usage
        if usage is not None:
            report_kv(replica, usage, max(0, replica.load - replica.waiting))

    def unobserved(self, replica: Replica, problem: str, now: float) -> None:
        """A poll that told nothing. What was told before counts until it is too old."""
        self.polls_failed[problem] = self.polls_failed.get(problem, 0) + 1
        self._noticed(replica)
        poll_failed(replica)
        if replica.polls_awaited:
            replica.polls_awaited = 0 if problem in TELLS_NOTHING else replica.polls_awaited - 1
        replica.cadence_s = replica.cadence.look(now)
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
        """Whether each pool that the replica serves keeps enough others."""
        health = replica.health
        is_fit = health.up and not replica.signals.asleep and not health.is_ejected(now)
        share = self.rules.eject_share
        pools = self._pools.of(replica.models)
        return len(pools) > 0 and all(pool.may_eject(is_fit, share) for pool in pools)

    def on_deadline(self, now: float) -> None:
        for replica in self.replicas.values():
            self._look(replica, now)
        self.rebuild()

    def _look(self, replica: Replica, now: float) -> bool:
        """Whether an ejection or a suspicion of the replica has just ended."""
        health, worked_at = replica.health, replica.progress.at
        if health.reopened(now) or health.revived(now, worked_at):
            replica.before_trial = replica.inflight
            self._on_event("half_open", replica)
            return True
        return health.unsuspected(worked_at)

    @property
    def panic(self) -> dict[str, bool]:
        """Of each model, whether so few of its replicas are fit that unfit ones are asked, too."""
        return {name: pool.is_panicking for name, pool in self._pools.names.items()}

    def rebuild(self) -> None:
        """Prepare what requests read."""
        now = self._clock()
        self.dialects.changed()
        self.aliases.changed()
        self.defaults.changed()
        away: set[Replica] = set()
        ejected: set[Replica] = set()
        is_untold = False
        for replica in self.replicas.values():
            health = replica.health
            if not health.up or replica.signals.asleep:
                away.add(replica)
                is_untold = is_untold or replica.models is None
            if health.is_ejected(now):
                ejected.add(replica)
            replica.weight = replica.config.weight * health.factor(now)
            replica.limit = replica.limit_now
        self._look_at_models()
        # A replica that lists no models beside others that do is in no pool: it gets no request.
        lists = self._lists_models
        pools = ModelPools(r for r in self.replicas.values() if not lists or r.models is not None)
        self._pools = pools
        self._by_model = {}
        self._passed_over = {}
        candidates: set[Replica] = set()
        for pool in pools.all:
            pool.judge(away, ejected, self.rules.panic_share)
            found = pool.candidates
            candidates.update(found)
            preferred = tuple(_preferred(found, now))
            for name in pool.names:
                self._by_model[name] = preferred
            if len(preferred) < len(found):
                others = _without(found, preferred)
                for name in pool.names:
                    self._passed_over[name] = others
        self._any_model = tuple(_preferred(pools.any.candidates, now))
        ready = [r for r in self.replicas.values() if r in candidates]
        if not ready and self.ready_ids:
            self._absent_since = now
        self.ready_ids = {r.id: r for r in ready}
        listing = {r: r.models for r in ready}
        if listing != self._listing:
            self._listing = listing
            self._model_list = None
        self.ready = tuple(_preferred(ready, now))
        if len(self.ready) < len(ready):
            self._passed_over[None] = _without(ready, self.ready)
        self._has_limits = any(r.limit != UNLIMITED for r in ready)
        self._one_pool = len(pools.all) - bool(pools.any.members) <= 1
        self._remember(is_untold)
        known = self._known_models
        served = known if self._any_model else {m for m, found in self._by_model.items() if found}
        self._absent_models.update(known, served, now)
        self._absent_replicas.update(self.replicas, self.ready_ids, now)
        self._arm(now)
        self._room(None)

    def _remember(self, is_untold: bool) -> None:
        """Know all models that a replica lists, whether or not it is up.

        A model that no replica lists any more is forgotten, unless `is_untold`: then a replica that
        starts or is away has not yet said what it serves.
        """
        listed, known = self._pools.names, self._known_models
        for name in listed:
            if len(known) >= _KNOWN_MAX:
                break
            known[name] = None
        if len(known) > len(listed) and not is_untold:
            for name in [name for name in known if name not in listed]:
                del known[name]

    def _look_at_models(self) -> None:
        """Find the replicas whose models are not known, where those of others are."""
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
        """Look again when an ejection, a suspicion or a pause ends, and in a slow start."""
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


def _preferred(fit: Sequence[Replica], now: float) -> Sequence[Replica]:
    """Of fit replicas those that are neither suspect nor busy; rather busy ones than suspects."""
    trusted = [r for r in fit if not r.health.is_suspect(now)] or fit
    return [r for r in trusted if not r.health.is_busy(now)] or trusted


def _by(request_id: bytes) -> str:
    """Which request showed it, for people."""
    return f"; request {request_id.decode('latin-1')}" if request_id else ""


def _without(fit: Sequence[Replica], preferred: Sequence[Replica]) -> tuple[Replica, ...]:
    """Those that are kept for when all that are preferred have failed."""
    asked = set(preferred)
    return tuple([r for r in fit if r not in asked])
