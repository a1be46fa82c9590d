"""Records the results of active probes: whether a replica is up, and the models that it lists.

What a probe shows about an address applies to all data-parallel ranks behind it.

Must never: send a probe.
"""

from __future__ import annotations

from typing import Any

from router.fleet.context import UNKNOWN, lengths_of, read_lengths
from router.fleet.engines.common.models import MODELS_MOST, adapters
from router.fleet.listed import served
from router.fleet.replica import Replica
from router.fleet.table.table import Table


class ProbeResults:
    """The results of the probes of one fleet."""

    __slots__ = ("_table",)

    def __init__(self, table: Table) -> None:
        self._table = table

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
            self._table.hooks.event("up" if health.up else "down", replica)
        self._table.rebuild()
        if was_new:
            self._table.hooks.first_probe()

    def explained(self, replica: Replica, why: str) -> None:
        """Record why the replica is not healthy, as text for people; "": it is healthy."""
        for rank in replica.ranks:
            rank.health.why_down = why

    def is_excused(self, replica: Replica) -> bool:
        """Return whether a probe that timed out is not counted, because the engine works.

        A server may answer late while its engine computes. Content on a stream, or totals that have
        grown in a poll, show this. The probe then counts neither as good nor as bad, and ends a row
        of bad probes. Work does not bring a replica up that is down.
        """
        now = self._table.clock()
        if not replica.health.up:
            return False
        since = now - replica.health.rules.suspect_min_s
        if all(rank.progress.at <= since for rank in replica.ranks):
            return False
        for rank in replica.ranks:
            rank.health.probe_streak = max(rank.health.probe_streak, 0)
        return True

    def _probed(self, replica: Replica, good: bool) -> bool:
        """Record a probe of the address for all of its ranks. Returns whether a state changed."""
        now = self._table.clock()
        has_changed = False
        for rank in replica.ranks:
            has_changed = rank.health.probed(good, now) or has_changed
        return has_changed

    def unlisted(self, replica: Replica, problem: str, *, is_final: bool) -> None:
        """Record that the replica's model list could not be read. `problem`: text for people.

        `is_final`: a later request would have the same result. Then the problem is reported, unless
        it is known already, or the table reports it because other replicas list their models.
        """
        if replica.removed or replica.config.models is not None:
            return
        is_known = replica.listed.problem == problem
        for rank in replica.ranks:
            rank.listed.problem = problem
        is_told = replica.standing.is_unlisted or not self._table.models.lists_models
        if is_final and is_told and not is_known:
            self._table.hooks.event("lists no models", replica)

    def learned(self, replica: Replica, objects: dict[str, dict[str, Any]]) -> None:
        """Record the replica's answer to /v1/models.

        The model list of a replica is kept while the replica restarts.
        """
        changed = [self._learned(rank, objects) for rank in replica.ranks]
        if any(changed):
            self._table.rebuild()

    def _learned(self, replica: Replica, objects: dict[str, dict[str, Any]]) -> bool:
        """Return whether the table must be rebuilt."""
        listed = frozenset(objects)
        if len(listed) >= MODELS_MOST and listed != replica.listed.names:
            self._table.hooks.event("models_left_out", replica)
        reported = read_lengths(objects)
        # Some engines report the length on another path, which is read after the model list.
        if reported != UNKNOWN or listed != replica.listed.names:
            replica.listed.reported_lengths = reported
        lengths = lengths_of(replica.config.max_model_len, replica.listed.reported_lengths)
        replica.listed.names = listed
        replica.listed.problem = ""
        listed_adapters = adapters(objects)
        models = served(replica.config, replica.listed.names)
        assert models is not None, "the replica has just listed its models"
        shown = {name: entry for name, entry in objects.items() if name in models}
        if shown != replica.listed.objects:
            replica.listed.objects = shown
            self._table.listing.clear()
        self._table.noticed(replica)
        models = self._table.models.pools.same(models)
        is_other = replica.listed.adapters != listed_adapters
        replica.listed.adapters = listed_adapters
        if is_other or models != replica.models or lengths != replica.listed.lengths:
            replica.models = models
            replica.listed.lengths = lengths
            return True
        return False
