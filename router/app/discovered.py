"""Applies the answers of discovery's sources to the fleet.

`fleet/discovery/roster.py` decides which replicas are members. A replica that no source names any
more finishes its requests. Large changes are applied in several turns of the event loop, so that
they delay no request.

A replica whose pool is missing, or whose credential cannot be read, does not join; if it is in the
fleet, it keeps its settings. This is tried again after each look.

Must never: change a replica of the configuration or of the admin API, or use a replica without its
own credential.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from router.app.member_changes import change_members, make_replicas
from router.app.parts import Parts
from router.app.restart.fleet_state import adopt_duties
from router.app.restart.messages import FleetState
from router.config.model import Replica as ReplicaConfig
from router.core.clock import monotonic
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
        self.seen_at = dict.fromkeys(parts.origins.roster.sizes, monotonic())
        self._parts = parts
        self._applies = False
        # The state of the sources and of the admin API that is in force; `None`: unknown.
        self._in_force: tuple[int, tuple[str, ...]] | None = None
        self._refused: dict[str, str] = {}  # Why a replica does not join, by source.
        # The state from the process before this one, until every source has answered. It is without
        # the replicas that have joined, because their state may have changed since.
        self._passed_on: FleetState | None = None
        self._passed_on_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        parts.discovery.on_look = self._looked

    @property
    def sizes(self) -> dict[str, int]:
        """The number of replicas in the last valid answer of each source."""
        return self._parts.origins.roster.sizes

    @property
    def _is_settled(self) -> bool:
        """Whether every source has answered, and every replica has joined."""
        return self._parts.origins.roster.has_all_answers and not self._refused

    async def start(self) -> None:
        """Looks at all sources once, and adds their replicas to the fleet. Nothing is probed yet.

        A source that does not answer does not prevent the start.
        """
        parts = self._parts
        await parts.discovery.start()
        members = {name: m for name, m in self._members().items() if self._learns(m)}
        wanted = _replicas(members).values()
        made = make_replicas(parts, parts.config, parts.upstream, wanted)
        parts.origins.discovered = members
        parts.fleet.add_all([*made.values()])
        self.tend()

    def begin(self) -> None:
        """Applies every later change. The fleet must be probed already."""
        self._applies = True
        self._apply()
        for source in [*self._refused]:  # The first looks came before the fleet was probed.
            self._looked(source, Look(0.0))

    def continues(self, state: FleetState) -> None:
        """Applies the state from the process before this one, also to replicas that join later."""
        parts = self._parts
        self._apply()
        adopt_duties(parts, state, parts.fleet.replicas.values())
        self._passed_on = None if self._is_settled else state.without(parts.fleet.replicas)
        self._passed_on_at = monotonic()

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
        roster, problem = self._parts.origins.roster, look.problem
        if source not in roster.sizes:
            return  # A reload has removed the source.
        if look.found is not None:
            left_out = roster.answered(source, look.found, is_complete=look.is_complete)
            if left_out:
                most = self._parts.config.discovery.replicas_max
                problem = problem or f"names {left_out} replicas more than {most}"
        self._apply()
        problem = problem or self._refused.get(source, "")
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
        state = (parts.origins.roster.version, tuple(parts.origins.added))
        if state == self._in_force or not self._applies:
            return
        before = parts.origins.discovered
        members = self._members()
        has_more = self._select(before, members)
        wanted = _replicas(members)
        change = difference(_replicas(before), wanted)
        parts.origins.discovered = members
        if change:
            fleet = parts.fleet.replicas
            present = [fleet[name] for name in (*change.moved, *change.changed, *change.left)]
            made = make_replicas(parts, parts.config, parts.upstream, wanted.values())
            change_members(parts, present, wanted, made)
            _log(change)
            self._pass_on(change.joined)
        self._in_force = None if has_more or self._refused else state
        self.tend()
        if has_more:
            parts.loop.call_soon(self._apply)
        elif self._is_settled:
            self._passed_on = None

    def _members(self) -> dict[str, Member]:
        parts = self._parts
        others = (*parts.config.replicas, *parts.origins.added.values())
        return parts.origins.roster.members(others, parts.config)

    def _select(self, before: Mapping[str, Member], members: dict[str, Member]) -> bool:
        """Removes from `members` the replicas that cannot join now.

        A replica of the fleet that cannot get its new settings keeps those that it has. Returns
        whether more replicas can join in the next turn.
        """
        self._refused = {}
        change = difference(_replicas(before), _replicas(members))
        for name in (*change.moved, *change.changed):
            if not self._learns(members[name]):
                members[name] = before[name]
        joining = 0
        for name in change.joined:
            if joining == _JOIN_MAX:
                del members[name]
            elif self._learns(members[name]):
                joining += 1
            else:
                del members[name]
        return len(change.joined) > joining == _JOIN_MAX

    def _learns(self, member: Member) -> bool:
        """Reads what the requests to a replica need. Returns whether that was possible."""
        try:
            self._parts.upstream.learn(member.replica, self._parts.config)
        except ConfigError as err:
            self._refused.setdefault(member.source, "; ".join(err.problems))
            return False
        return True

    def _pass_on(self, joined: Sequence[str]) -> None:
        """Gives replicas that join late after a restart the duties that they had before it."""
        if self._passed_on is not None:
            replicas = [self._parts.fleet.replicas[name] for name in joined]
            adopt_duties(self._parts, self._passed_on, replicas, monotonic() - self._passed_on_at)
            self._passed_on = self._passed_on.without({*joined})

    def tend(self) -> None:
        """Decides which replicas are on standby because of their SRV priority.

        While a source has several priorities, this is repeated.
        """
        parts = self._parts
        members = parts.origins.discovered
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
