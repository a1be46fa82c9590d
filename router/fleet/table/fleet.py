"""The fleet: which replicas join, leave, or are held back, on top of the table of all replicas.

A replica may be one of several data-parallel ranks behind one address (`fleet/data_parallel.py`).
What concerns the address applies to all of its ranks.

Results of requests, probes and polls enter the table only through `outcomes`, `probes` and `polls`.

Must never: do I/O, or make a request wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from random import Random

from router.config.model import Health as HealthRules
from router.core.clock import monotonic
from router.fleet.data_parallel import resized, with_ranks
from router.fleet.engines.common.base import MOST_RANKS
from router.fleet.names import Names
from router.fleet.prefix.lookup import PrefixLookup
from router.fleet.replica import Replica
from router.fleet.table.hooks import Hooks
from router.fleet.table.outcomes import Outcomes
from router.fleet.table.poll_results import PollResults
from router.fleet.table.probe_results import ProbeResults
from router.fleet.table.table import Table
from router.wire.sweep import NEVER, Register


class Fleet(Table):
    """The table of one fleet, with the methods that add, remove and hold back replicas.

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
        super().__init__(rules, sweeper, rng, Hooks(on_change, on_event), knowledge, clock)
        self.outcomes = Outcomes(self)
        self.probes = ProbeResults(self)
        self.polls = PollResults(self, stale_s)
        # Replicas that were removed from the fleet, but whose leases are not all released.
        self.leaving: set[Replica] = set()

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
        now = self.clock()
        for replica_id in removed:
            leaving = self.replicas[replica_id]
            gone += leaving.ranks if not leaving.rank else (leaving,)
        added = [*with_ranks(r for r in added if not r.rank), *(r for r in added if r.rank)]
        for replica in gone:
            del self.replicas[replica.id]
            replica.removed = True
            replica.standing.note(replica.state(now), now)
            self.same_engine.remove(replica)
            if replica.inflight:
                self.leaving.add(replica)
        self.knowledge.remove_all(gone)
        for replica in added:
            models = replica.models
            if models is not None:
                replica.models = self.models.pools.same(models)
            self.replicas[replica.id] = replica
            replica.standing.joined = now
            self.speeds.share(replica)
        self.knowledge.add_all(added)
        self.hooks.members(frozenset(self.replicas))
        self.rebuild()
        for replica in gone:
            replica.close()
        if any(replica.health.is_new for replica in gone):
            self.hooks.first_probe()

    @property
    def members(self) -> list[Replica]:
        """The replicas that can join and leave: all but the further ranks of an address."""
        return [replica for replica in self.replicas.values() if not replica.rank]

    def set_ranks(self, replica: Replica, count: int, first: int | None = None) -> None:
        """Set the number of data-parallel ranks behind the address of a replica.

        `replica`: the first rank. `count`: a number above MOST_RANKS counts as MOST_RANKS. `first`:
        the engine's number of the first rank; `None`: as before. A rank that leaves gets no new
        request; its requests in progress finish.
        """
        if replica.removed or replica.rank:
            return
        changed = resized(replica, min(count, MOST_RANKS), first)
        if changed is None:
            return
        left, joined = changed
        self.change([r.id for r in left], joined)
        self.hooks.ranks(replica, left)
        self.hooks.event(f"has {replica.rank_count} data-parallel ranks", replica)

    def adopt_names(self, names: Names) -> None:
        """Use the names of another configuration for all later requests."""
        self.models.names = names
        self.listing.clear()
        self.rebuild()

    def set_standby(self, ids: Collection[str]) -> None:
        """Hold back the replicas with these IDs, and no others. See `Standing.is_standby`."""
        changed = [
            r for r in self.replicas.values() if r.standing.is_standby != (r.ranks[0].id in ids)
        ]
        for replica in changed:
            replica.standing.is_standby = not replica.standing.is_standby
        if changed:
            self.rebuild()

    def set_duty(self, replica: Replica, duty: int) -> None:
        """Cordon a replica, or return it to service. `duty`: see `membership.Duty`."""
        if duty != replica.standing.duty:
            for rank in replica.ranks:
                rank.standing.duty = duty
            self.rebuild()

    def attempt_ended(self, replica: Replica, dispatched: float = NEVER) -> None:
        """Note the release of a lease, whose attempt was dispatched at `dispatched`."""
        if replica.removed and not replica.inflight:
            self.leaving.discard(replica)
        health = replica.health
        if health.before_trial and dispatched < health.ended:
            health.before_trial -= 1
            replica.limit = replica.limit_now
        self.hooks.room(replica)
