"""Applies the answers of discovery's sources to the fleet.

`fleet/discovery/roster.py` decides which replicas are members. A replica that no source names any
more finishes its requests. Large changes are applied in several turns of the event loop, so that
they delay no request.

Must never: change a replica of the configuration or of the admin API.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Final

from router.app.member_changes import change_members, make_replicas
from router.app.parts import Parts
from router.config.model import Replica as ReplicaConfig
from router.core.errors import ConfigError
from router.fleet.discovery.roster import Member, standby
from router.fleet.discovery.source import Look
from router.fleet.membership import Difference, difference
from router.observe.events import log_event

_TEND_S: Final = 0.5  # Seconds between two decisions about replicas on standby.
# Maximum number of replicas that join in one turn of the event loop.
# Creating one takes about 50 us.
_JOIN_MAX: Final = 100
_NAMED: Final = 8  # Maximum number of replicas that one log event names.
OK: Final = "ok"
FAILED: Final = "failed"


class Discovered:
    """The replicas that the sources add. Call `start` and `begin` once, and `stop` at the end."""

    def __init__(self, parts: Parts) -> None:
        self.looks: dict[tuple[str, str], int] = {}  # Number of looks, by source and result.
        # Time of the last look without a problem, or else of the source's first use, by source.
        self.seen_at = dict.fromkeys(parts.roster.sizes, monotonic())
        self._parts = parts
        self._applies = False
        # The state of the sources and of the admin API that is in force; `None`: unknown.
        self._in_force: tuple[int, tuple[str, ...]] | None = None
        self._timer: asyncio.TimerHandle | None = None
        parts.discovery.on_look = self._looked

    @property
    def sizes(self) -> dict[str, int]:
        """The number of replicas in the last valid answer of each source."""
        return self._parts.roster.sizes

    async def start(self) -> None:
        """Looks at all sources once, and adds their replicas to the fleet. Nothing is probed yet.

        A source that does not answer does not prevent the start.
        """
        parts = self._parts
        await parts.discovery.start()
        members = parts.roster.members(parts.config.replicas)
        wanted = [member.replica for member in members.values()]
        parts.trust_for(wanted)
        made = make_replicas(parts, parts.config, parts.upstream, wanted)
        parts.discovered = members
        parts.fleet.add_all([*made.values()])
        self.tend()

    def begin(self) -> None:
        """Applies every later change. The fleet must be probed already."""
        self._applies = True
        self._apply()

    def reloaded(self) -> None:
        """Applies a reload, which may have added and removed sources."""
        sizes = self.sizes
        self._in_force = None
        self.looks = {key: n for key, n in self.looks.items() if key[0] in sizes}
        now = monotonic()
        self.seen_at = {source: self.seen_at.get(source, now) for source in sizes}
        self.tend()

    def stop(self) -> None:
        self._applies = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _looked(self, source: str, look: Look) -> None:
        roster, problem = self._parts.roster, look.problem
        if source not in roster.sizes:
            return  # A reload has removed the source.
        if look.found:
            left_out = roster.answered(source, look.found, is_complete=look.is_complete)
            if left_out:
                most = self._parts.config.discovery.replicas_max
                problem = problem or f"names {left_out} replicas more than {most}"
            self._apply()
        result = FAILED if problem else OK
        self.looks[source, result] = self.looks.get((source, result), 0) + 1
        if problem:
            log_event(
                logging.WARNING,
                "a source of replicas has a problem",
                key=source,
                source=source,
                problem=problem,
                replicas=roster.sizes[source],
            )
        else:
            self.seen_at[source] = monotonic()

    def _apply(self) -> None:
        parts = self._parts
        state: tuple[int, tuple[str, ...]] | None = (parts.roster.version, tuple(parts.added))
        if state == self._in_force or not self._applies:
            return
        before = _replicas(parts.discovered)
        members = parts.roster.members((*parts.config.replicas, *parts.added.values()))
        for name in difference(before, _replicas(members)).joined[_JOIN_MAX:]:
            del members[name]
            state = None  # They join in later turns.
        wanted = _replicas(members)
        change = difference(before, wanted)
        if change:
            try:
                parts.trust_for(wanted.values())
            except ConfigError as err:
                log_event(logging.ERROR, "discovery needs a certificate", problems=err.problems)
                return
            fleet = parts.fleet.replicas
            present = [fleet[name] for name in (*change.moved, *change.changed, *change.left)]
            made = make_replicas(parts, parts.config, parts.upstream, wanted.values())
            parts.discovered = members
            change_members(parts, present, wanted, made)
            _log(change)
        parts.discovered = members
        self._in_force = state
        self.tend()
        if state is None:
            parts.loop.call_soon(self._apply)

    def tend(self) -> None:
        """Decides which replicas are on standby because of their SRV priority.

        While a source has several priorities, this is repeated.
        """
        parts = self._parts
        members = parts.discovered
        fleet = parts.fleet.replicas.values()
        available = {replica.id for replica in fleet if replica.is_available}
        parts.fleet.set_standby(standby(members, available))
        ranks = {(member.source, member.priority) for member in members.values()}
        is_needed = len(ranks) > len({source for source, _ in ranks})
        if self._timer is not None:
            self._timer.cancel()
        self._timer = parts.loop.call_later(_TEND_S, self.tend) if is_needed else None


def _replicas(members: Mapping[str, Member]) -> dict[str, ReplicaConfig]:
    return {name: member.replica for name, member in members.items()}


def _log(change: Difference) -> None:
    log_event(
        logging.INFO,
        "fleet changed by discovery",
        key=None,
        joined=_named(change.joined),
        moved=_named(change.moved),
        changed=_named(change.changed),
        left=_named(change.left),
    )


def _named(ids: Sequence[str]) -> list[str]:
    more = len(ids) - _NAMED
    return [*ids[:_NAMED], *([f"and {more} more"] if more > 0 else [])]
