"""Passes the state of the fleet that is not in the configuration file to the new process.

This state consists of the replicas that the admin API added, the replicas of discovery that it
removed, the duties of replicas (cordoned, draining), the notices that spot machines are reclaimed,
and the state of addons. The replicas of discovery are not passed; the new process asks the sources.
Learned values, such as the speed of a replica or the prefixes that it holds, are not passed either;
the new process learns them anew.

Must never: change what the new configuration file says about a replica.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from router.app.member_changes import change_members
from router.app.parts import Parts
from router.app.restart.messages import FleetState, Reclaimed
from router.config.model import Replica as ReplicaConfig
from router.fleet.membership import Duty, kept
from router.fleet.replica import Replica


def state_of(parts: Parts) -> FleetState:
    duties: dict[str, int] = {}
    reclaims: dict[str, Reclaimed] = {}
    for replica in parts.fleet.members:
        left = parts.reclaims.seconds_left(replica)
        if left is not None:
            reclaims[replica.id] = Reclaimed(left, parts.reclaims.sources_of(replica))
        # A reclaimed replica drains only until its machine is back, and then has this duty again.
        duty = parts.reclaims.duty_before(replica)
        if duty != Duty.IN_SERVICE:
            duties[replica.id] = duty
    roster = parts.origins.roster
    return FleetState(
        tuple(parts.origins.added.values()),
        removed=tuple(roster.removed_engines),
        sources=tuple(roster.answering),
        duties=duties,
        reclaims=reclaims,
        addons={
            name: msgspec.Raw(msgspec.json.encode(state))
            for name, addon in parts.addons.items()
            if (state := addon.state()) is not None
        },
    )


def adopt_members(
    parts: Parts, state: FleetState, listed: Collection[ReplicaConfig], *, is_watching: bool
) -> None:
    """Gives the fleet the members of this state. May be called again with a later state.

    `listed`: the replicas that are in the fleet anyway. `is_watching`: replicas are probed already,
    so the added replicas are probed at once, too. Raises ConfigError.
    """
    for name, passed in state.addons.items():
        if name in parts.addons:
            parts.addons[name].continues(passed)
    parts.origins.roster.keep_out(state.removed)
    wanted = {replica.id: replica for replica in kept(state.added, listed)}
    for replica_id in [*parts.origins.added]:
        if replica_id not in wanted:
            del parts.origins.added[replica_id]
            change_members(parts, [parts.fleet.replicas[replica_id]], {}, {})
    for replica_id, config in wanted.items():
        if replica_id not in parts.origins.added:
            parts.upstream.learn(config, parts.config, is_added=True)
            replica = parts.make_replica(config, parts.config, parts.upstream)
            parts.origins.added[replica_id] = config
            if not is_watching:
                parts.fleet.add(replica)
                continue
            # The admin API takes precedence over discovery, which may have found the same ID.
            found = parts.origins.discovered.pop(replica_id, None)
            present = () if found is None else (parts.fleet.replicas[replica_id],)
            change_members(parts, present, {replica_id: config}, {replica_id: replica})


def adopt_duties(
    parts: Parts, state: FleetState, replicas: Iterable[Replica], age_s: float = 0.0
) -> None:
    """Gives these replicas their duties and notices. `age_s`: the age of the state in seconds.

    May be called again with a later state, which may lack a notice of the earlier state.
    """
    for replica in [*replicas]:
        if replica.rank:  # Its first rank decides.
            continue
        duty = state.duties.get(replica.id, Duty.IN_SERVICE)
        passed = state.reclaims.get(replica.id)
        if parts.reclaims.seconds_left(replica) is None:
            parts.fleet.set_duty(replica, duty)
            if passed is not None:
                seconds = max(0.0, passed.seconds - age_s)
                parts.reclaims.continues(replica, seconds, passed.sources)
        elif passed is None:
            parts.reclaims.ended_before(replica, duty)
