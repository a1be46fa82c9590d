"""The fleet's table: all replicas, and everything that is computed from them for requests.

Each change of the fleet (a probe, a failure, a reload, a model list) rebuilds the whole table.
Requests read the prepared lists only (`serving.py`, `eligibility.py`).

A replica is eligible only if its state is known: a new replica waits for its first good probe and
for its model list.

A replica is ejected only if each pool that it serves (`model_pools.py`) keeps another fit replica.

Must never: do I/O, or make a request wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from router.config.model import Health as HealthRules
from router.core.clock import monotonic
from router.fleet.adapters import AdapterNames
from router.fleet.context import ContextLevels
from router.fleet.defaults import Defaults
from router.fleet.dialects import Dialects
from router.fleet.engines.common.descriptor import Engine
from router.fleet.model_speeds import ModelSpeeds
from router.fleet.monitor.signal_changes import SameEngine
from router.fleet.prefix.lookup import PrefixLookup
from router.fleet.prefix.response_affinity import ResponseAffinity
from router.fleet.regions.nearest import Nearest
from router.fleet.replica import Replica
from router.fleet.suspects import Suspects
from router.fleet.table.absent_since import AbsentSince
from router.fleet.table.eligibility import Eligibility
from router.fleet.table.hooks import Hooks
from router.fleet.table.listing import Listing
from router.fleet.table.models import FleetModels
from router.fleet.table.serving import Serving
from router.wire.sweep import NEVER, Register

# The engine, whether it serves lower priority numbers first, and the listed adapters.
Facts = tuple[Engine, bool | None, frozenset[str]]
# Seconds between two checks of a replica that is suspect, or that was ejected because it generated
# nothing.
SUSPICION_S: Final = 1.0
WARMING_S: Final = 0.5  # Seconds between two updates of a replica's weight while it is lowered.


class Table:
    """All replicas by ID, and the lists that are made from them.

    The classes that record results (`outcomes.py`, `probe_results.py`, `poll_results.py`) get this
    object. It registers itself with `sweeper` while a check of a replica is due (`deadline`).
    """

    def __init__(
        self,
        rules: HealthRules,
        sweeper: Register,
        rng: Random,
        hooks: Hooks,
        knowledge: PrefixLookup,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.rules = rules
        self.rng = rng
        self.hooks = hooks
        self.knowledge = knowledge
        self.clock = clock
        self.replicas: dict[str, Replica] = {}
        # The priority dialects: the meaning of a number in a client's `priority`.
        self.dialects = Dialects(self.replicas)
        # The own models of replicas, for engines that do not read a body's `model`.
        self.defaults = Defaults(self.replicas)
        # By replica: the facts from which the tables of `_derive_again` were made.
        self._facts: dict[Replica, Facts] = {}
        self.adapter_names = AdapterNames()  # The models that are LoRA adapters.
        self.models = FleetModels(self.replicas)
        self.serving = Serving(self.replicas, self.models, clock)
        self.response_affinity = ResponseAffinity()
        self.eligibility = Eligibility(
            self.replicas, self.models, self.serving, self.response_affinity, clock
        )
        self.absent_since = AbsentSince(self.serving, clock())
        self.listing = Listing(self.replicas, self.models, self.serving)
        # The context lengths of the replicas, by model.
        self.context_levels = ContextLevels(self.models.lengths_of, knowledge.ratio)
        self.nearest = Nearest(self.serving.everywhere)  # The order of regions by distance.
        self.same_engine = SameEngine()
        self.speeds = ModelSpeeds()
        self.suspects = Suspects()  # The bodies that were in flight when engines died.
        # The next time (monotonic seconds) at which an ejection, a suspicion, a pause or a slow
        # start must be checked.
        self.deadline = NEVER
        self._sweeper = sweeper

    # -- deaths of engines --------------------------------------------------------------------

    def lost(self, replica: Replica, body: bytes, sent_at: float) -> None:
        """Record that a replica has lost a request. `body`: the hash of its body; b"": unknown."""
        if body and not replica.removed and self.suspects.is_enabled:
            self.suspects.lost(replica.ranks[0].id, body, self.clock(), sent_at)
            self.hooks.lost(replica.ranks[0])

    def died(self, replica: Replica) -> None:
        """Record that the process at the address of a replica has died."""
        if self.suspects.died(replica.ranks[0].id, self.clock()):
            self.hooks.event("died from a suspect request", replica)

    # -- changes ------------------------------------------------------------------------------

    def rebuild(self) -> None:
        """Compute again everything that requests read: the fit and preferred replicas, the pools
        and the model list.

        The order matters: `serving` reads the judged pools and decides which replicas are fit, the
        lists after it read that, and the queue, which is told last, reads everything.
        """
        now = self.clock()
        models = self.models
        self._derive_again()
        away: set[Replica] = set()
        ejected: set[Replica] = set()
        awaits_list = False
        unread_until = -NEVER
        for replica in self.replicas.values():
            health = replica.health
            if replica.is_away:
                away.add(replica)
                awaits_list = awaits_list or replica.models is None
                if replica.models is None and not health.up:
                    unread_until = max(
                        unread_until, replica.standing.joined + self.rules.models_wait_s
                    )
            if health.is_ejected(now):
                ejected.add(replica)
            replica.weight = replica.config.weight * health.factor(now)
            replica.limit = replica.limit_now
        models.unread_until = unread_until
        pools = models.rebuild(self.hooks.event)
        for pool in pools.all:
            pool.judge(away, ejected, self.rules.panic_share)
        self.serving.rebuild(pools, now)
        self.listing.rebuild()
        models.remember(awaits_list)
        for replica in self.replicas.values():
            replica.standing.note(replica.state(now), now)
        nearest = self.nearest
        nearest.rebuilt(list(self.replicas.values()))
        self.absent_since.rebuild(models.known, self.replicas, pools.all, nearest.is_used, now)
        self.adapter_names.rebuilt(
            [replica.listed.adapters for replica in self.replicas.values()],
            {name: models.listed_name(each.model) for name, each in models.names.pooled.items()},
        )
        self.context_levels.rebuilt(
            {r: (r.listed.lengths, r.models) for r in self.replicas.values()},
        )
        self.schedule_check(now)
        self.hooks.room(None)

    def noticed(self, replica: Replica) -> None:
        """Note an answer from the replica: it may have shown the engine, or another fact."""
        if self._facts.get(replica) != _facts_of(replica):
            self._derive_again()

    def _derive_again(self) -> None:
        """Let the tables that depend on engines and adapters be made again when they are read."""
        self._facts = {replica: _facts_of(replica) for replica in self.replicas.values()}
        self.dialects.changed()
        self.models.aliases.changed()
        self.defaults.changed()

    def read_list(self, replica: Replica) -> None:
        """Let the model list of a replica be read again soon, because it may be out of date."""
        self.hooks.doubted_list(replica.ranks[0])

    def may_learn(self, model: str | None) -> bool:
        """Whether a read in progress may show a replica for a model that now has none: a first
        probe, or a read of all model lists. If no replica lists the model, such a read begins,
        unless the last one was a short time ago."""
        models = self.models
        is_unknown = model is not None and model not in models.known
        return (is_unknown and self.hooks.unknown_model()) or models.awaits_probe

    # -- ejections ----------------------------------------------------------------------------

    def may_eject(self, replica: Replica, now: float) -> bool:
        """Return whether each pool that the replica serves keeps enough other replicas."""
        is_fit = not replica.is_away and not replica.health.is_ejected(now)
        share = self.rules.eject_share
        pools = self.models.pools.of(replica.models)
        return len(pools) > 0 and all(pool.may_eject(is_fit, share) for pool in pools)

    @property
    def panic(self) -> dict[str, bool]:
        """For each model, whether so few replicas are fit that unfit replicas receive requests,
        too."""
        return {name: pool.is_panicking for name, pool in self.models.pools.names.items()}

    # -- checks -------------------------------------------------------------------------------

    def look(self, replica: Replica, now: float) -> bool:
        """Return whether an ejection or a suspicion of the replica has just ended."""
        health, worked_at = replica.health, replica.progress.at
        if health.reopened(now) or health.revived(now, worked_at):
            health.before_trial = replica.inflight
            self.hooks.event("half_open", replica)
            return True
        return health.unsuspected(worked_at)

    def on_deadline(self, now: float) -> None:
        for replica in self.replicas.values():
            self.look(replica, now)
        self.rebuild()

    def schedule_check(self, now: float) -> None:
        """Schedule the next check that the health of any replica needs.

        A check is due at the end of an ejection or a pause, and repeatedly during a suspicion or
        while a weight is lowered.
        """
        self.deadline = _next_check(self.replicas.values(), now)
        if self.deadline != NEVER:
            self._sweeper.add(self)
        else:
            self._sweeper.discard(self)

    def rebuild_soon(self, now: float) -> None:
        """Let the next tick of the sweep rebuild the table."""
        self.deadline = min(self.deadline, now)
        self._sweeper.add(self)


def _facts_of(replica: Replica) -> Facts:
    return replica.descriptor, replica.endpoint.low_first, replica.listed.adapters


def _next_check(replicas: Iterable[Replica], now: float) -> float:
    """Return the time of the next check (monotonic seconds); NEVER: none is needed."""
    due: list[float] = []
    for replica in replicas:
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
    return min(due) if due else NEVER
